import { useState, type ReactNode } from 'react'
import { Button } from '@mantine/core'
import { useLocation } from 'wouter'
import { send } from '../api/client'
import { useAct, useCan } from '../api/hooks'
import type { Job, Submitted } from '../api/types'
import { compact, duration, none, number, plural, usd, usdTogether } from '../lib/format'
import { randomID } from '../lib/random'
import { useJobs } from './comparewith'
import { Confirm } from './confirm'
import { over, State } from './job'
import { marksField } from './jobform'
import { Card, Facts, Table, useShown } from './page'
import { ContinuedBy } from './retry'

// useEstimate asks the node for the cost of a submission with all rows, once for each model. settings names
// the settings of the form that an estimate depends on.
export function useEstimate(body: object, models: string[], settings: string, refused: (e: Error) => void) {
  const [made, setMade] = useState<{ ids: string[]; settings: string }>({ ids: [], settings })
  const ask = (model: string) => send<Submitted>('POST', '/v1/batch-inference', { ...body, model, limit: null, sample: null, reuse: null, cost_estimate: true }, { 'Idempotency-Key': randomID() })
  const start = useAct(() => Promise.all(models.map(ask)), { quiet: marksField })
  const jobs = useJobs(made.ids, 1_000)
  const current = made.settings === settings
  const waiting = start.isPending || jobs.length < made.ids.length || jobs.some((j) => !over(j.status))
  return {
    jobs,
    id: made.ids[0],
    current,
    waiting,
    done: current && !waiting && jobs[0]?.status === 'succeeded' ? jobs[0] : undefined,
    begin: () => start.mutate(undefined, { onSuccess: (all) => setMade({ ids: all.map((r) => r.metadata.job_id), settings }), onError: refused }),
  }
}

// Estimated shows an estimate that useEstimate asked for.
export function Estimated({ of: { id, jobs, current, waiting, begin }, ready }: { of: ReturnType<typeof useEstimate>; ready: boolean }) {
  const card = useShown(waiting ? undefined : id)
  if (!id) return null
  const [job, ...others] = jobs
  return (
    <div ref={card} className="shown">
      <Card title="Estimate">
        <p className="small" role="status">{!current ? `The form has changed since this estimate${job && costOf(job) ? ` of ${costOf(job)!.amount}` : ''}.` : waiting && job?.message}</p>
        {!current && <div className="actions"><Button variant="default" disabled={!ready} loading={waiting} onClick={begin}>Estimate again</Button></div>}
        {current && jobs.map((j) => j.failure_reason && <p key={j.job_id} className="small">No estimate{others.length > 0 && ` of ${j.model}`}: {j.failure_reason.message}</p>)}
        {current && (others.length > 0 ? <Costs jobs={jobs} /> : job && <EstimateFacts job={job} />)}
      </Card>
    </div>
  )
}

// Costs shows what the same rows would cost with each model.
function Costs({ jobs }: { jobs: Job[] }) {
  const costs = jobs.map((j) => (j.estimate ? j.cost_estimate : null))
  return (
    <Table label="Estimates" heads={['Model', 'Would cost', 'Would take']} foot={costs.every((c) => c != null) && <tr><td>Together</td><td className="number">{usd(costs.reduce((sum, c) => sum + c, 0))}</td><td /></tr>}>
      {jobs.map((j, i) => (
        <tr key={j.job_id}>
          <td>{j.model}</td>
          <td className="number">{!over(j.status) ? '…' : j.estimate && costs[i] == null ? 'no price' : usd(costs[i])}</td>
          <td className="number">{duration(j.estimate?.seconds)}</td>
        </tr>
      ))}
    </Table>
  )
}

const costOf = ({ cost_estimate: cost, estimate: e }: Job) => (cost == null || !e ? undefined : usdTogether(cost, e.low ?? 0, e.high ?? 0))

// EstimateFacts shows what all rows of an estimate's input would cost and take.
function EstimateFacts({ job, costless }: { job: Job; costless?: boolean }) {
  const e = job.estimate
  if (!e) return null
  const cost = costOf(job)
  return (
    <Facts
      facts={[
        ...(costless && cost ? [] : ([['Would cost', cost ? <>{cost.amount}{cost.range && <span className="range">{cost.range}</span>}</> : 'the model has no price']] as [string, ReactNode][])),
        ['Would take', e.seconds == null ? none : (e.seconds_high ?? 0) < 2 ? duration(e.seconds) : `${duration(e.seconds)} (${duration(e.seconds_low)} to ${duration(e.seconds_high)})`],
        ['Rows', number(job.num_rows)],
        ['Rows sampled', e.method === 'sampled' ? number(e.sample_rows) : 'none: the service has only read the input'],
        ['Tokens in, all rows', compact(e.input_tokens)],
        ['Tokens out, all rows', compact(e.output_tokens)],
      ]}
    />
  )
}

// EstimateResult is the first card of the page of an estimate. own is false if the job belongs to
// another account or has no data.
export function EstimateResult({ job, own }: { job: Job; own: boolean }) {
  const can = useCan()
  const [, go] = useLocation()
  const run = useAct(() => send<Submitted>('POST', `/v1/jobs/${job.job_id}/resume`, { rows: 'rest', again: !!job.continued_by }), {
    done: (r) => r.metadata.message,
    paths: ['/v1/list-jobs', '/v1/jobs'],
  })
  const complete = job.status === 'succeeded'
  const cost = costOf(job)
  const start = () => run.mutate(undefined, { onSuccess: (r) => go(`/jobs/${r.metadata.job_id}`) })
  const label = `Run all ${plural(job.num_rows ?? 0, 'row')}${job.continued_by ? ' once more' : ''}${cost ? ` (≈ ${cost.amount})` : ''}`
  return (
    <Card>
      <div className="now">
        <State job={job} />
        {complete && cost && <span><strong className="big">≈ {cost.amount}</strong>{cost.range && `, ${cost.range}`}</span>}
      </div>
      <p className="small">
        {complete ? 'The estimate is complete. It ran only a sample of the rows.' : over(job.status) ? 'The estimate has no result.' : `An estimate runs only a sample of the rows. ${job.message}`}
      </p>
      {job.estimate ? <EstimateFacts job={job} costless={complete} /> : <Facts facts={[['Rows', number(job.num_rows)], ['Rows sampled', number(job.rows_done)]]} />}
      <ContinuedBy job={job} />
      {own && complete && can.act && job.num_rows != null && (
        <div className="actions">
          {job.continued_by ? (
            <Confirm button={label} title="Run all rows once more" color="cyan" act={start} busy={run.isPending}>
              <ContinuedBy job={job}>If you run the rows again, you pay for them again.</ContinuedBy>
            </Confirm>
          ) : (
            <Button loading={run.isPending} onClick={start}>{label}</Button>
          )}
          <span className="small">The new job reuses the answers of the sample, and runs only the other rows.</span>
        </div>
      )}
    </Card>
  )
}
