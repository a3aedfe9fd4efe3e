import { Link } from 'wouter'
import { apiURL, send } from '../api/client'
import { useAct, useCan, useGet, usePages } from '../api/hooks'
import type { Batch } from '../api/types'
import { number, time } from '../lib/format'
import { useEvery } from '../live'
import { Confirm } from '../parts/confirm'
import { Bar, Status } from '../parts/job'
import { Empty, Load } from '../parts/load'
import { LinkButton, More, Page, Table } from '../parts/page'

type List = { data: Batch[]; has_more: boolean; last_id: string }

// A batch is a job, and its id has the same digits.
const jobOf = (id: string) => id.replace(/^batch_(.{8})(.{4})(.{4})(.{4})(.{12})$/, 'job-$1-$2-$3-$4-$5')

const looks: Record<string, string> = {
  validating: 'starting', in_progress: 'running', finalizing: 'running', completed: 'succeeded',
  failed: 'failed', expired: 'failed', cancelling: 'cancelled', cancelled: 'cancelled',
}

export default function Batches() {
  const can = useCan()
  const pages = usePages<List>('/v1/batches?limit=50', (p) => (p.has_more ? p.last_id : null), 'after', useEvery(5_000))
  const batches = pages.data?.pages.flatMap((p) => p.data) ?? []
  const cancel = useAct((id: string) => send('POST', `/v1/batches/${id}/cancel`), { done: () => 'The batch is being cancelled.', paths: ['/v1/batches'] })
  return (
    <Page title="Batches" lead="Batches from clients of OpenAI’s API. Each batch is also a job.">
      <Load query={pages}>
        {() =>
          batches.length === 0 ? (
            <Empty next={<LinkButton href="/jobs" variant="default">See jobs</LinkButton>}>No batches yet.</Empty>
          ) : (
            <>
              <Table label="Batches" heads={['Batch', 'State', 'Progress', 'Model', 'Endpoint', 'Created', 'Files', ...(can.act ? ['Actions'] : [])]}>
                {batches.map((b) => (
                  <BatchRow key={b.id} listed={b} cancel={can.act ? cancel.mutate : undefined} />
                ))}
              </Table>
              <More of={pages} count={`${number(batches.length)} of ${pages.hasNextPage ? 'more' : number(batches.length)} shown`} />
            </>
          )
        }
      </Load>
    </Page>
  )
}

// The node makes the files of a batch on request; until then the batch is finalizing.
function BatchRow({ listed, cancel }: { listed: Batch; cancel?: (id: string) => void }) {
  const { data: b = listed } = useGet<Batch>(`/v1/batches/${listed.id}`, { enabled: listed.status === 'finalizing', every: useEvery(5_000) })
  return (
    <tr>
      <td><Link href={`/jobs/${jobOf(b.id)}`}>{b.id.slice(0, 14)}…</Link></td>
      <td><Status is={looks[b.status] ?? 'pending'}>{b.status}</Status></td>
      <td>
        <span className="done">
          <Bar label={`Progress of ${b.id}`} done={b.request_counts.completed + b.request_counts.failed} failed={b.request_counts.failed} all={b.request_counts.total || null} />
          <span>{number(b.request_counts.completed)} of {number(b.request_counts.total)}</span>
        </span>
      </td>
      <td>{b.model}</td>
      <td><code>{b.endpoint}</code></td>
      <td className="number">{time(b.created_at)}</td>
      <td>
        <Content id={b.input_file_id} name="input" /> <Content id={b.output_file_id} name="output" /> <Content id={b.error_file_id} name="errors" />
      </td>
      {cancel && (
        <td>
          {(b.status === 'validating' || b.status === 'in_progress') && (
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
  id && <a href={apiURL(`/v1/files/${id}/content`)} download={`${id}.jsonl`}>{name}</a>
