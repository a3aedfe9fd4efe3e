import { useMemo, useState } from 'react'
import { Button, NativeSelect } from '@mantine/core'
import { Link } from 'wouter'
import { send } from '../api/client'
import { useAct, useGet } from '../api/hooks'
import type { Job, Preview, Submitted } from '../api/types'
import { useDraft } from '../lib/draft'
import { number, plural, text, usd, withoutRoutes } from '../lib/format'
import { randomID } from '../lib/random'
import { Answers } from './answers'
import { nameSize, over, testRows } from './job'
import { marksField } from './jobform'
import { Card, useShown } from './page'

const suffix = ' (test)' // of the name of a test run
const maxRuns = 20

type Body = { name?: string; job_priority?: number; limit?: number; sample?: string; reuse?: object }

// A TestRun is a job with a few rows. settings is its submission without the choice of rows.
type TestRun<F> = { job: string; settings: string; form: F }

const settingsOf = ({ name: _, job_priority: __, limit: ___, sample: ____, reuse: _____, ...rest }: Body & Record<string, unknown>) => JSON.stringify(rest)

// useTestRuns returns the test runs of a form. done is the job of the newest test run with the settings
// of the form, if the full run can reuse its answers.
export function useTestRuns<F>(draft: string, body: Body & Record<string, unknown>, form: F, refused: (e: Error) => void) {
  const [{ runs }, setRuns] = useDraft<{ runs: TestRun<F>[] }>(draft, { runs: [] })
  const [rows, setRows] = useState('first')
  const [shown, show] = useState<string>()
  const settings = useMemo(() => settingsOf(body), [body])
  const current = runs.find((t) => t.settings === settings)
  const job = useTestJob(current?.job).data?.job
  const start = useAct(() => {
    const { name, job_priority: _, reuse: __, ...rest } = body
    return send<Submitted>('POST', '/v1/batch-inference', { ...rest, ...(name ? { name: [...name].slice(0, nameSize - suffix.length).join('') + suffix } : {}), limit: testRows, sample: rows }, { 'Idempotency-Key': randomID() })
  }, { quiet: marksField })
  const begin = () =>
    start.mutate(undefined, {
      onSuccess: (r) => {
        setRuns({ runs: [{ job: r.metadata.job_id, settings, form }, ...runs].slice(0, maxRuns) })
        show(undefined)
      },
      onError: refused,
    })
  return {
    runs, shown, show, rows, setRows, settings, begin, busy: start.isPending,
    done: current && job?.status === 'succeeded' && !job.continued_by && !body.limit && !body.reuse ? job : undefined,
  }
}

const useTestJob = (id?: string) => useGet<{ job: Job }>(`/v1/jobs/${id}`, { enabled: !!id, every: (d) => (d && over(d.job.status) ? false : 1_000) })

// wholeCost returns what all rows would cost at the cost of the rows of the test run.
export const wholeCost = ({ job_cost: cost, num_rows: n, input_rows: all }: Job) => (cost != null && n && all ? (cost / n) * all : null)

// TestButton runs a few rows of a submission. The full run then reuses their answers.
export function TestButton<F>({ of: { rows, setRows, begin, busy }, ready }: { of: ReturnType<typeof useTestRuns<F>>; ready: boolean }) {
  return (
    <span className="joined">
      <Button variant="default" disabled={!ready} loading={busy} onClick={begin}>Test {testRows} rows</Button>
      <NativeSelect aria-label="Rows to test" value={rows} onChange={(e) => setRows(e.currentTarget.value)} data={[{ value: 'first', label: 'the first' }, { value: 'random', label: 'random' }]} />
    </span>
  )
}

// TestRuns shows the answers of test runs. The form can return to the settings of an earlier test run.
export function TestRuns<F>({ of: { runs, shown, show, settings }, restore }: { of: ReturnType<typeof useTestRuns<F>>; restore: (form: F) => void }) {
  const card = useShown(runs[0]?.job)
  const chosen = runs.find((t) => t.job === shown) ?? runs[0]
  if (!chosen) return null
  return (
    <div ref={card} className="shown">
      <Card
        title="Test run"
        actions={runs.length > 1 && (
          <NativeSelect
            aria-label="Test runs"
            value={chosen.job}
            onChange={(e) => show(e.currentTarget.value)}
            data={runs.map((t, i) => ({ value: t.job, label: `Test run ${runs.length - i}` }))}
          />
        )}
      >
        <Answered key={chosen.job} run={chosen} earlier={runs[runs.indexOf(chosen) + 1]?.job} n={runs.length - runs.indexOf(chosen)} current={chosen.settings === settings} restore={() => restore(chosen.form)} />
      </Card>
    </div>
  )
}

type AnsweredProps<F> = { run: TestRun<F>; earlier?: string; n: number; current: boolean; restore: () => void }

// Answered shows test run n, and the answers of the test run before it to equal rows.
function Answered<F>({ run, earlier, n, current, restore }: AnsweredProps<F>) {
  const path = `/v1/jobs/${run.job}`
  const { data, error } = useTestJob(run.job)
  const job = data?.job
  const rows = useGet<Preview>(`${path}/preview?limit=${testRows}`, { enabled: !!job?.rows_done, every: job && over(job.status) ? false : 1_000 })
  const before = useGet<Preview>(`/v1/jobs/${earlier}/preview?limit=${testRows}`, { enabled: !!earlier, fresh: Infinity }).data?.rows.filter((r) => r.status === 'done')
  const answers = new Map(before?.map((r) => [text(r.input), text(r.output)]))
  const done = rows.data?.rows.filter((r) => r.status === 'done' && answers.has(text(r.input))) ?? []
  const differ = done.filter((r) => answers.get(text(r.input)) !== text(r.output)).length
  if (error) return <p className="small">The page cannot read this test run: {error.message}</p>
  return (
    <>
      {!job || !over(job.status) ? (
        <p className="small" role="status">{job?.message ?? 'The page sends the rows.'}</p>
      ) : (
        <p className="small" role="status">
          {job.failure_reason ? <>No answers: {withoutRoutes(job.failure_reason.message)} </> : `${number(job.input_tokens)} tokens in, ${number(job.output_tokens)} out${job.job_cost == null ? '' : `, ${usd(job.job_cost)}`}. `}
          <Link href={`/jobs/${run.job}`}>Open this test run</Link>
        </p>
      )}
      {!current && (
        <div className="actions">
          <Button variant="default" onClick={restore}>Restore these settings</Button>
          <span className="small">The form has changed since this test run. A run of all rows reuses only the answers of a test run with the same settings.</span>
        </div>
      )}
      {before && done.length > 0 && <p className="small">{differ} of {plural(done.length, 'answer')} {differ === 1 ? 'differs' : 'differ'} from test run {n - 1}.{job?.json_schema && ` A value that is struck through is from test run ${n - 1}.`}</p>}
      {rows.data && rows.data.rows.length > 0 && <Answers label="Answers of the test run" job={run.job} rows={rows.data.rows} earlier={before && { name: `test run ${n - 1}`, rows: before }} />}
    </>
  )
}
