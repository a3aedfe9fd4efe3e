import { useState } from 'react'
import { Button } from '@mantine/core'
import { Link, useLocation } from 'wouter'
import { send } from '../api/client'
import { useAct, useCan, useGet } from '../api/hooks'
import type { Job, Submitted } from '../api/types'
import { compact, duration, none, number, plural, usdTogether } from '../lib/format'
import { randomID } from '../lib/random'
import { Confirm } from './confirm'
import { over, State } from './job'
import { marksField } from './jobform'
import { Card, Facts, useShown } from './page'
import { ContinuedBy } from './retry'

// useEstimate asks the node for the cost of a submission with all rows.
export function useEstimate(body: object, refused: (e: Error) => void) {
  const [id, setID] = useState<string>()
  const start = useAct(() => send<Submitted>('POST', '/v1/batch-inference', { ...body, limit: null, sample: null, reuse: null, deadline: null, admit: null, cost_estimate: true }, { 'Idempotency-Key': randomID() }), { quiet: marksField })
  const estimate = useGet<{ job: Job }>(`/v1/jobs/${id}`, { enabled: !!id, every: (d) => (d && over(d.job.status) ? false : 1_000) })
  const job = id ? estimate.data?.job : undefined
  const waiting = start.isPending || (!!id && !(job && over(job.status)))
  return { id, job, waiting, begin: () => start.mutate(undefined, { onSuccess: (r) => setID(r.metadata.job_id), onError: refused }) }
}

// Estimated shows an estimate that useEstimate asked for.
export function Estimated({ of: { id, job, waiting } }: { of: ReturnType<typeof useEstimate> }) {
  const card = useShown(waiting ? undefined : id)
  if (!id) return null
  return (
    <div ref={card} className="shown">
      <Card title="Estimate">
        <p className="small" role="status">{waiting ? job?.message : ''}</p>
        {job?.failure_reason && <p className="small">No estimate: {job.failure_reason.message}</p>}
        {job && <EstimateFacts job={job} />}
        {job?.status === 'succeeded' && <Link href={`/jobs/${id}`}>Run all rows, and keep the answers of the sample</Link>}
      </Card>
    </div>
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
        ...(costless && cost ? [] : ([['Would cost', cost ? [cost.amount, cost.range].filter(Boolean).join(', ') : 'the model has no price']] as [string, string][])),
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
              <ContinuedBy job={job}>If you run it again, you pay again.</ContinuedBy>
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
