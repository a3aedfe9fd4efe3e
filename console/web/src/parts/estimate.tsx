import { useState } from 'react'
import { Button } from '@mantine/core'
import { Link } from 'wouter'
import { send } from '../api/client'
import { useAct, useGet } from '../api/hooks'
import type { Job, Submitted } from '../api/types'
import { compact, duration, number, usd } from '../lib/format'
import { randomID } from '../lib/random'
import { over } from './job'
import { Facts } from './page'

// EstimateFirst asks the node for the cost of a submission with all rows.
export function EstimateFirst({ body, ready }: { body: object; ready: boolean }) {
  const [id, setID] = useState<string>()
  const start = useAct(() => send<Submitted>('POST', '/v1/batch-inference', { ...body, limit: null, sample: null, cost_estimate: true }, { 'Idempotency-Key': randomID() }))
  const estimate = useGet<{ job: Job }>(`/v1/jobs/${id}`, { enabled: !!id, every: (d) => (d && over(d.job.status) ? false : 1_000) })
  const job = id ? estimate.data?.job : undefined
  const waiting = start.isPending || (!!id && !(job && over(job.status)))
  return (
    <>
      <div className="actions">
        <Button variant="default" disabled={!ready} loading={waiting} onClick={() => start.mutate(undefined, { onSuccess: (r) => setID(r.metadata.job_id) })}>
          Estimate the cost
        </Button>
        <span className="small" role="status">{waiting && id ? job?.message : ''}</span>
      </div>
      {job?.failure_reason && <p className="small">No estimate: {job.failure_reason.message}</p>}
      {job?.estimate && (
        <Facts
          facts={[
            ['Would cost', job.cost_estimate == null ? 'the model has no price' : usd(job.cost_estimate)],
            ['Between', job.estimate.low == null ? '–' : `${usd(job.estimate.low)} and ${usd(job.estimate.high)}`],
            ['Would take', job.estimate.seconds == null ? '–' : `${duration(job.estimate.seconds)} (${duration(job.estimate.seconds_low)} to ${duration(job.estimate.seconds_high)})`],
            ['Rows', number(job.num_rows)],
            ['Tokens in', compact(job.estimate.input_tokens)],
            ['Tokens out', compact(job.estimate.output_tokens)],
            ['From', job.estimate.method === 'sampled' ? `the answers to a sample of ${number(job.estimate.sample_rows)} rows` : 'the input alone'],
          ]}
        />
      )}
      {job?.status === 'succeeded' && <Link href={`/jobs/${id}`}>Run all rows, and keep the answers of the sample</Link>}
    </>
  )
}
