import { Link } from 'wouter'
import { apiURL, send } from '../api/client'
import { useAct, useCan, useGet, usePages } from '../api/hooks'
import type { Batch } from '../api/types'
import { plural, duration, none, number, time, until } from '../lib/format'
import { openaiBatch } from '../lib/snippets'
import { useEvery } from '../live'
import { Ago } from '../parts/ago'
import { Confirm } from '../parts/confirm'
import { Code } from '../parts/copy'
import { Bar, Status } from '../parts/job'
import { useJobs } from '../parts/jobnames'
import { Empty, Load } from '../parts/load'
import { More, Page, Table } from '../parts/page'

type List = { data: Batch[]; has_more: boolean; last_id: string }

// A batch is a job, and its id has the same digits.
const jobOf = (id: string) => id.replace(/^batch_(.{8})(.{4})(.{4})(.{4})(.{12})$/, 'job-$1-$2-$3-$4-$5')

// states has the look and the words for each state of OpenAI's API.
const states: Record<string, [look: string, words: string]> = {
  validating: ['starting', 'reads the input'],
  in_progress: ['running', 'running'],
  finalizing: ['running', 'writes the output file'],
  completed: ['succeeded', 'completed'],
  failed: ['failed', 'failed'],
  expired: ['failed', 'expired'],
  cancelling: ['cancelled', 'stops'],
  cancelled: ['cancelled', 'cancelled'],
}

const isCancellable = (status: string) => status === 'validating' || status === 'in_progress'

export default function Batches() {
  const can = useCan()
  const pages = usePages<List>('/v1/batches?limit=50', (p) => (p.has_more ? p.last_id : null), 'after', useEvery(5_000))
  const batches = pages.data?.pages.flatMap((p) => p.data) ?? []
  const cancels = can.act && batches.some((b) => isCancellable(b.status))
  const cancel = useAct((id: string) => send('POST', `/v1/batches/${id}/cancel`), { done: () => 'The batch stops soon.', paths: ['/v1/batches'] })
  return (
    <Page title="Batches" lead="OpenAI clients send a batch as a file of requests, with a time limit. Each batch is also a job.">
      <Load query={pages}>
        {() =>
          batches.length === 0 ? (
            <Empty next={<div className="sample"><Code label="Code" text={openaiBatch()} /></div>}>No batches yet. This code sends a batch with an OpenAI client. It needs a key of this service:</Empty>
          ) : (
            <div className="stack">
              <Table label="Batches" heads={['Batch', 'State', 'Progress', 'Files', 'Created', 'Took', ...(cancels ? ['Actions'] : [])]} less={['Progress', 'Created', 'Took', 'Actions']}>
                {batches.map((b) => (
                  <BatchRow key={b.id} listed={b} cancel={cancels ? cancel.mutate : undefined} />
                ))}
              </Table>
              <More of={pages} count={`${number(batches.length)} of ${pages.hasNextPage ? 'more' : number(batches.length)} shown`} />
              <details>
                <summary>Send a batch with OpenAI’s client</summary>
                <Code label="Code" text={openaiBatch()} />
              </details>
            </div>
          )
        }
      </Load>
    </Page>
  )
}

// The node makes the files of a batch on request; until then the batch is finalizing.
function BatchRow({ listed, cancel }: { listed: Batch; cancel?: (id: string) => void }) {
  const { data: b = listed } = useGet<Batch>(`/v1/batches/${listed.id}`, { enabled: listed.status === 'finalizing', every: useEvery(5_000) })
  const jobs = useJobs()
  const [look, words] = states[b.status] ?? ['pending', b.status]
  const { total, completed, failed } = b.request_counts
  const open = ['validating', 'in_progress', 'finalizing', 'cancelling'].includes(b.status)
  const ended = b.completed_at ?? b.failed_at ?? b.expired_at ?? b.cancelled_at
  return (
    <tr>
      <td>
        <Link href={`/jobs/${jobOf(b.id)}`}>{jobs.get(jobOf(b.id))?.input ?? `${b.id.slice(0, 14)}…`}</Link>
        <span className="id">{b.id.slice(0, 14)}…</span>
        <span className="reason">{b.model}, {b.endpoint.replace('/v1/', '')}</span>
      </td>
      <td>
        <Status is={look}>{words}</Status>
        {b.errors?.data?.[0] && <span className="reason">{b.errors.data[0].message}</span>}
      </td>
      <td>
        <Bar label={`Progress of ${b.id}`} done={completed + failed} failed={failed} all={total || null} ended={!open} />
        <span className="reason">{number(completed)} of {plural(total, 'request')}{failed > 0 && <span className="failures">, {number(failed)} failed</span>}</span>
      </td>
      <td>
        <Content id={b.input_file_id} name="input" /> <Content id={b.output_file_id} name="output" /> <Content id={b.error_file_id} name="errors" />
      </td>
      <td className="number" title={time(b.created_at)}><Ago t={b.created_at} /></td>
      <td className="number" title={time(ended ?? b.expires_at)}>
        {open && b.expires_at ? `expires ${until(b.expires_at)}` : ended ? duration(Math.max(1, ended - b.created_at)) : none}
      </td>
      {cancel && (
        <td>
          {isCancellable(b.status) && (
            <Confirm quiet size="compact-sm" button="Cancel" title="Cancel the batch" act={() => cancel(b.id)}>
              The output keeps the answered requests.
            </Confirm>
          )}
        </td>
      )}
    </tr>
  )
}

const Content = ({ id, name }: { id?: string; name: string }) =>
  id && <a href={apiURL(`/v1/files/${id}/content`)} download>{name}</a>
