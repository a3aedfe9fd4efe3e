import { useState } from 'react'
import { Button, NumberInput } from '@mantine/core'
import { useLocation } from 'wouter'
import { send } from '../api/client'
import { useAct, useCan } from '../api/hooks'
import type { ErrorCounts, Job, Submitted } from '../api/types'
import { number, plural } from '../lib/format'
import { useIsOther } from './account'
import { Confirm } from './confirm'
import { JobName } from './job'
import { nextName } from './jobform'

// truncatedCode is the error code of rows that max_tokens cut off.
export const truncatedCode = 'output_truncated'

// rejectedCode is the error code of rows that the server refuses for good.
const rejectedCode = 'engine_rejected'

// ContinuedBy says which job continues a job.
export function ContinuedBy({ job, children }: { job: Job; children?: string }) {
  const isOther = useIsOther()
  const account = isOther(job.account) ? job.account : undefined
  if (!job.continued_by) return null
  return (
    <p className="small" role="note">
      A later job continues this job: <JobName id={job.continued_by} account={account} />. {children}
    </p>
  )
}

// hopeless are the failures that another job on the same input would have too.
const hopeless = ['row_quota_exceeded', 'token_quota_exceeded', 'cost_quota_exceeded', 'invalid_input_file', 'row_too_long']

export const canResume = (job: Job) => job.num_rows != null && !hopeless.includes(job.failure_reason?.code ?? '')

type RetryProps = { job: Job; maxTokens?: number; ending?: string; disabled?: boolean; primary?: boolean; size?: 'xs' }

// Retry runs the failed rows of a job again, in a new job, with the rows that did not run. If an earlier job
// did this already, it asks before it pays for them again.
export function Retry({ job, maxTokens, ending, disabled, primary, size }: RetryProps) {
  const can = useCan()
  const [, go] = useLocation()
  const again = !!job.continued_by
  const params = maxTokens ? { max_tokens: maxTokens } : undefined
  const retry = useAct(() => send<Submitted>('POST', `/v1/jobs/${job.job_id}/resume`, { rows: 'failed', sampling_params: params, again, ...(job.name && { name: nextName(job.name) }) }), {
    done: (r) => r.metadata.message,
    paths: ['/v1/list-jobs', '/v1/jobs'],
  })
  if (!can.act) return null
  const others = (job.num_rows ?? 0) - job.rows_done
  const label = `Retry ${plural(job.failed_rows, 'failed row')}${others > 0 ? ` and run ${number(others)} more` : ''}${ending ?? (maxTokens ? ` with max_tokens ${number(maxTokens)}` : '')}`
  const run = () => retry.mutate(undefined, { onSuccess: (r) => go(`/jobs/${r.metadata.job_id}`) })
  const look = { size: size ?? 'sm', disabled, className: 'wraps' }
  if (again)
    return (
      <Confirm {...look} button={label} title="Run these rows once more" color="cyan" act={run} busy={retry.isPending}>
        <ContinuedBy job={job}>Another job runs these rows again, and they cost again.</ContinuedBy>
      </Confirm>
    )
  return (
    <Button {...look} variant={primary ? 'filled' : 'default'} loading={retry.isPending} onClick={run}>
      {label}
    </Button>
  )
}

const leastLonger = 256 // tokens; a smaller limit often cuts the answers again

const limitOf = (job: Job) => job.sampling_params.max_tokens as number | undefined

// longer returns a larger max_tokens than the one of a job; undefined if the job has none.
export const longer = (job: Job) => (limitOf(job) ? Math.max(leastLonger, limitOf(job)! * 2) : undefined)

// mostTruncated reports whether max_tokens cut most of the failed rows, so that another run with the same
// limit fails, too.
export const mostTruncated = ({ counts, counted }: ErrorCounts) => (counts.find((e) => e.code === truncatedCode)?.rows ?? 0) * 2 > counted

// mostRejected reports whether the server refused most of the failed rows for good, so that another run fails, too.
export const mostRejected = ({ counts, counted }: ErrorCounts) => (counts.find((e) => e.code === rejectedCode)?.rows ?? 0) * 2 > counted

// RetryLonger is Retry with a larger max_tokens. truncated is the number of rows with truncatedCode.
export function RetryLonger({ job, truncated, primary }: { job: Job; truncated: number; primary: boolean }) {
  const can = useCan()
  const was = limitOf(job)
  const [limit, setLimit] = useState<number | string>(longer(job) ?? '')
  if (!can.act) return null
  return (
    <div className="fields">
      <NumberInput
        label="New max_tokens"
        description={`${number(truncated)} ${truncated === 1 ? 'answer was' : 'answers were'} cut at ${was ? `max_tokens ${number(was)}` : 'the limit of the server'}. Rows that did not fail keep their answers.`}
        min={1}
        allowDecimal={false}
        value={limit}
        onChange={setLimit}
      />
      <Retry job={job} maxTokens={Number(limit)} ending=" with this limit" disabled={!Number(limit)} primary={primary} />
    </div>
  )
}
