import { useState } from 'react'
import { Button, NumberInput } from '@mantine/core'
import { Link, useLocation } from 'wouter'
import { send } from '../api/client'
import { useAct, useCan } from '../api/hooks'
import type { Job, Submitted } from '../api/types'
import { number } from '../lib/format'
import { jobHref, useIsOther } from './account'

// truncatedCode is the error code of rows that max_tokens cut off.
export const truncatedCode = 'output_truncated'

// ContinuedBy says which job has taken over the rows of a job.
export function ContinuedBy({ job, children }: { job: Job; children?: string }) {
  const isOther = useIsOther()
  if (!job.continued_by) return null
  return (
    <p className="small" role="note">
      A later job continues this job: <Link href={jobHref(job.continued_by, isOther(job.account) ? job.account : undefined)}>{job.continued_by}</Link>. {children}
    </p>
  )
}

// Retry runs the failed rows of a job again, in a new job.
export function Retry({ job, params, disabled, text }: { job: Job; params?: { max_tokens: number }; disabled?: boolean; text?: string }) {
  const can = useCan()
  const [, go] = useLocation()
  const again = !!job.continued_by
  const retry = useAct(() => send<Submitted>('POST', `/v1/jobs/${job.job_id}/resume`, { rows: 'failed', sampling_params: params, again }), {
    done: (r) => r.metadata.message,
    paths: ['/v1/list-jobs', '/v1/jobs'],
  })
  if (!can.act) return null
  const rows = (job.num_rows ?? 0) - job.rows_done + job.failed_rows
  return (
    <Button variant="default" size="xs" className="wraps" disabled={disabled} loading={retry.isPending} onClick={() => retry.mutate(undefined, { onSuccess: (r) => go(`/jobs/${r.metadata.job_id}`) })}>
      Retry {rows === 1 ? 'this row' : `these ${number(rows)} rows`}{again && ' once more'}{text}
    </Button>
  )
}

// RetryLonger is Retry with a larger max_tokens. truncated is the number of rows with truncatedCode.
export function RetryLonger({ job, truncated }: { job: Job; truncated: number }) {
  const can = useCan()
  const was = job.sampling_params.max_tokens as number | undefined
  const [limit, setLimit] = useState<number | string>(was ? was * 2 : '')
  if (!can.act) return null
  return (
    <div className="fields">
      <NumberInput
        label="New max_tokens"
        description={`${number(truncated)} ${truncated === 1 ? 'answer was' : 'answers were'} cut at ${was ? `max_tokens ${number(was)}` : 'the limit of the server'}. Answers of other rows stay.`}
        min={1}
        allowDecimal={false}
        value={limit}
        onChange={setLimit}
      />
      <Retry job={job} params={{ max_tokens: Number(limit) }} disabled={!Number(limit)} text={Number(limit) ? ` with max_tokens ${number(Number(limit))}` : ' with this max_tokens'} />
    </div>
  )
}
