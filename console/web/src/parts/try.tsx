import { useState } from 'react'
import { Button, NativeSelect } from '@mantine/core'
import { Link, useLocation } from 'wouter'
import { send } from '../api/client'
import { useAct, useGet } from '../api/hooks'
import type { Job, Preview, Submitted } from '../api/types'
import { isSimulated, splitAnswer } from '../lib/answer'
import { useDraft } from '../lib/draft'
import { number, plural, text, usd } from '../lib/format'
import { randomID } from '../lib/random'
import { nameSize, over, Status, tryRows } from './job'
import { Card, Table } from './page'

const suffix = ' (try)' // of the name of a try
const maxTries = 20

type Body = { name?: string; job_priority?: number; limit?: number; sample?: string }

// A Trial is a job with a few rows. settings is its submission without the choice of rows.
type Trial<F> = { job: string; settings: string; form: F }

const settingsOf = ({ name: _, job_priority: __, limit: ___, sample: ____, ...rest }: Body & Record<string, unknown>) => JSON.stringify(rest)

// Try runs a few rows of a submission and shows their answers. The full run then takes these
// answers over. Earlier tries stay in a list, and the form can return to their settings.
export function Try<F>({ draft, body, note, ready, form, restore, submitted }: {
  draft: string
  note: string
  body: Body & Record<string, unknown>
  ready: boolean
  form: F
  restore: (form: F) => void
  submitted: () => void
}) {
  const [{ tries }, setTries] = useDraft<{ tries: Trial<F>[] }>(draft, { tries: [] })
  const [sample, setSample] = useState('first')
  const [shown, show] = useState<string>()
  const settings = settingsOf(body)
  const start = useAct(() => {
    const { name, job_priority: _, ...rest } = body
    return send<Submitted>('POST', '/v1/batch-inference', { ...rest, ...(name ? { name: [...name].slice(0, nameSize - suffix.length).join('') + suffix } : {}), limit: tryRows, sample }, { 'Idempotency-Key': randomID() })
  })
  const run = () =>
    start.mutate(undefined, {
      onSuccess: (r) => {
        setTries({ tries: [{ job: r.metadata.job_id, settings, form }, ...tries].slice(0, maxTries) })
        show(undefined)
      },
    })
  const chosen = tries.find((t) => t.job === shown) ?? tries[0]
  return (
    <Card title="Try">
      <div className="actions">
        <Button variant="default" disabled={!ready} loading={start.isPending} onClick={run}>
          Try {tryRows} rows
        </Button>
        <NativeSelect aria-label="Rows to try" value={sample} onChange={(e) => setSample(e.currentTarget.value)} data={[{ value: 'first', label: 'first rows' }, { value: 'random', label: 'random rows' }]} />
        {note && <span className="small">{note}</span>}
        {tries.length > 1 && (
          <NativeSelect
            aria-label="Tries"
            value={chosen?.job}
            onChange={(e) => show(e.currentTarget.value)}
            data={tries.map((t, i) => ({ value: t.job, label: `Try ${tries.length - i}` }))}
          />
        )}
      </div>
      {chosen && <Answers key={chosen.job} trial={chosen} current={chosen.settings === settings} body={body} restore={() => restore(chosen.form)} submitted={submitted} />}
    </Card>
  )
}

function Answers<F>({ trial, current, body, restore, submitted }: { trial: Trial<F>; current: boolean; body: Body; restore: () => void; submitted: () => void }) {
  const [, go] = useLocation()
  const path = `/v1/jobs/${trial.job}`
  const { data, error } = useGet<{ job: Job }>(path, { every: (d) => (d && over(d.job.status) ? false : 1_000) })
  const job = data?.job
  const rows = useGet<Preview>(`${path}/preview?limit=${tryRows}`, { enabled: !!job?.rows_done, every: job && over(job.status) ? false : 1_000 })
  const rest = useAct(() => send<Submitted>('POST', `${path}/resume`, { rows: 'rest', name: body.name, job_priority: body.job_priority ?? 0 }))
  if (error) return <p className="small">This try cannot be read: {error.message}</p>
  const all = job?.input_rows
  const cost = job?.job_cost != null && job.num_rows && all ? (job.job_cost / job.num_rows) * all : null
  return (
    <>
      {!job || !over(job.status) ? (
        <p className="small" role="status">{job?.message ?? 'The rows are sent.'}</p>
      ) : (
        <p className="small" role="status">
          {job.failure_reason ? <>No answers: {job.failure_reason.message}</> : `${number(job.input_tokens)} tokens in, ${number(job.output_tokens)} out${job.job_cost == null ? '' : `, ${usd(job.job_cost)}`}`};{' '}
          <Link href={`/jobs/${trial.job}`}>open this try</Link>
        </p>
      )}
      {rows.data && rows.data.rows.length > 0 && (
        <Table label="Answers of the try" heads={['Row', 'Input', 'Answer']}>
          {rows.data.rows.map((r) => (
            <tr key={r.row}>
              <td className="number">{number(r.row)}</td>
              <td className="wide" dir="auto">{text(r.input)}</td>
              <td className="wide" dir="auto">
                {r.status === 'pending' ? '…' : r.code ? <><Status is="failed">{r.code}</Status> <Link href={`/jobs/${trial.job}/rows?row=${r.row}&open=${r.row}`}>why</Link></> : (
                  <>
                    {isSimulated(r.output) && <span className="tag">simulated</span>} {splitAnswer(text(r.output)).answer.slice(0, 2_000)}
                  </>
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
      <div className="actions">
        {!current && <Button variant="default" onClick={restore}>Return to the settings of this try</Button>}
        {current && job?.status === 'succeeded' && all != null && all > (job.num_rows ?? 0) && (
          <Button
            loading={rest.isPending}
            onClick={() =>
              rest.mutate(undefined, {
                onSuccess: (r) => {
                  submitted()
                  go(`/jobs/${r.metadata.job_id}`)
                },
              })
            }
          >
            Run all {plural(all, 'row')}{cost == null ? '' : ` (≈ ${usd(cost)})`}
          </Button>
        )}
        {!current && <span className="small">The form has changed since this try. A run of all rows takes over only answers of a try with the same settings.</span>}
      </div>
    </>
  )
}
