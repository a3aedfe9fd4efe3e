import { useMemo, useState } from 'react'
import { Button, NativeSelect } from '@mantine/core'
import { Link } from 'wouter'
import { send } from '../api/client'
import { useAct, useGet } from '../api/hooks'
import type { Job, Preview, Submitted } from '../api/types'
import { useDraft } from '../lib/draft'
import { number, usd } from '../lib/format'
import { randomID } from '../lib/random'
import { Answers } from './answers'
import { nameSize, over, tryRows } from './job'
import { Card } from './page'

const suffix = ' (try)' // of the name of a try
const maxTries = 20

type Body = { name?: string; job_priority?: number; limit?: number; sample?: string }

// A Trial is a job with a few rows. settings is its submission without the choice of rows.
type Trial<F> = { job: string; settings: string; form: F }

const settingsOf = ({ name: _, job_priority: __, limit: ___, sample: ____, ...rest }: Body & Record<string, unknown>) => JSON.stringify(rest)

// useTries returns the tries of a form, and the newest one with the settings of the form: done is its
// job, if the full run can take its answers over.
export function useTries<F>(draft: string, body: Body & Record<string, unknown>) {
  const [{ tries }, setTries] = useDraft<{ tries: Trial<F>[] }>(draft, { tries: [] })
  const settings = useMemo(() => settingsOf(body), [body])
  const current = tries.find((t) => t.settings === settings)
  const job = useTriedJob(current?.job).data?.job
  return { tries, setTries, settings, body, done: current && job?.status === 'succeeded' && !job.continued_by && !body.limit ? job : undefined }
}

const useTriedJob = (id?: string) => useGet<{ job: Job }>(`/v1/jobs/${id}`, { enabled: !!id, every: (d) => (d && over(d.job.status) ? false : 1_000) })

// wholeCost returns what all rows would cost at the cost of the tried rows.
export const wholeCost = ({ job_cost: cost, num_rows: n, input_rows: all }: Job) => (cost != null && n && all ? (cost / n) * all : null)

// Try runs a few rows of a submission and shows their answers. The full run then takes these
// answers over. Earlier tries stay in a list, and the form can return to their settings.
export function Try<F>({ of: { tries, setTries, settings, body }, note, ready, form, restore, refused }: {
  of: ReturnType<typeof useTries<F>>
  note: string
  ready: boolean
  form: F
  restore: (form: F) => void
  refused: (e: Error) => void
}) {
  const [sample, setSample] = useState('first')
  const [shown, show] = useState<string>()
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
      onError: refused,
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
      {chosen && <Answered key={chosen.job} trial={chosen} current={chosen.settings === settings} restore={() => restore(chosen.form)} />}
    </Card>
  )
}

function Answered<F>({ trial, current, restore }: { trial: Trial<F>; current: boolean; restore: () => void }) {
  const path = `/v1/jobs/${trial.job}`
  const { data, error } = useTriedJob(trial.job)
  const job = data?.job
  const rows = useGet<Preview>(`${path}/preview?limit=${tryRows}`, { enabled: !!job?.rows_done, every: job && over(job.status) ? false : 1_000 })
  if (error) return <p className="small">This try cannot be read: {error.message}</p>
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
      {rows.data && rows.data.rows.length > 0 && <Answers label="Answers of the try" job={trial.job} rows={rows.data.rows} />}
      {!current && (
        <div className="actions">
          <Button variant="default" onClick={restore}>Return to the settings of this try</Button>
          <span className="small">The form has changed since this try. A run of all rows takes over only answers of a try with the same settings.</span>
        </div>
      )}
    </>
  )
}
