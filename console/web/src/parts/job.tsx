import { Link } from 'wouter'
import { query, type ApiError } from '../api/client'
import { useGet } from '../api/hooks'
import type { Counts, Job, JobStatus, Progress } from '../api/types'
import { beginning, idEnd, number, percent, plural } from '../lib/format'
import { jobHref, useIsOther } from './account'
import { Empty } from './load'
import { LinkButton, Page } from './page'

// ShownStatus is a status by which jobs are counted and filtered.
export type ShownStatus = keyof Counts['counts']

export const statuses: ShownStatus[] = ['pending', 'submitted', 'starting', 'running', 'succeeded', 'failed', 'cancelled', 'paused']

export const openStatuses = 'running,starting,submitted,pending,paused'

// nameSize is the longest name of a job, in characters.
export const nameSize = 45

// priorityName returns a priority with its name in the docs.
export const priorityName = (p: number) => [p, ['prototyping', 'production'][p]].filter((part) => part !== undefined).join(', ')

// testRows is how many rows a test run has.
export const testRows = 5

export const over = (s: string) => s === 'succeeded' || s === 'failed' || s === 'cancelled'

// Status uses plain elements, because tables show hundreds of statuses.
export const Status = ({ is, children }: { is: string; children?: string }) => (
  <span className="status" data-is={is}>
    {children ?? is}
  </span>
)

// rowState returns the state of a row to show. A row that is pending at the end of its job never runs.
export const rowState = (job: { status: JobStatus }, state: string) => (state === 'pending' && over(job.status) ? 'not run' : state)

export const isEstimate = (job: Pick<Job, 'run_type'>) => job.run_type === 'COST_ESTIMATE'

// stillRunning returns the number of rows of a paused job that are still in flight.
export const stillRunning = (job: Pick<Job, 'paused'>, p?: Progress) => (job.paused ? (p?.nodes ?? []).reduce((sum, n) => sum + n.rows_assigned, 0) : 0)

// State shows the status of a job. An estimate runs a sample, so it does not "succeed" like a job. A job is
// pausing while its nodes finish rows. A job that has not begun and waits is waiting. A job that succeeded
// with failed rows has the colour of a warning.
export const State = ({ job, pausing }: { job: Pick<Job, 'status' | 'run_type' | 'paused' | 'message' | 'failed_rows'>; pausing?: boolean }) => {
  const waits = ['pending', 'submitted', 'starting'].includes(job.status) && job.message.startsWith('Waiting')
  const now = pausing ? 'pausing' : job.paused ? 'paused' : waits ? 'waiting' : job.status
  return <Status is={job.paused ? 'pending' : waits || (job.status === 'succeeded' && job.failed_rows > 0) ? 'starting' : job.status}>{isEstimate(job) ? `estimate ${now === 'succeeded' ? 'complete' : now}` : now}</Status>
}

// whyStopped returns why no row of a job runs, from the job's message. It returns undefined if rows
// run, or if the job only waits for its turn.
export function whyStopped(message: string): string | undefined {
  if (message.startsWith('Paused')) return 'The job is paused.'
  if (message.startsWith('Waiting for an engine')) return 'No engine serves this model.'
  if (message.startsWith('Waiting for ') && !message.startsWith('Waiting for a turn')) return 'The job waits.'
  return undefined
}

// A Titled job has the fields for its title.
type Titled = Pick<Job, 'job_id' | 'name' | 'model'> & Partial<Pick<Job, 'prompt' | 'system_prompt' | 'num_rows' | 'input' | 'set'>>

const titlePrompt = 40 // the longest beginning of a prompt in a title, in characters

// titleOf returns the name of a job, with its model if jobs of a set share the name. A job without a name
// has a title of its model and its prompt, input or rows.
export function titleOf(job: Titled): string {
  if (job.name) return job.set ? `${job.name}, ${job.model}` : job.name
  const prompt = (job.prompt ?? job.system_prompt ?? '').trim().replace(/\s+/g, ' ')
  const rest = beginning(prompt, titlePrompt) || job.input || (job.num_rows != null && plural(job.num_rows, 'row'))
  return rest ? `${job.model}: ${rest}` : job.model
}

// JobLink leads to a job. With brief, it has no id.
export function JobLink({ job, brief }: { job: Titled & Pick<Job, 'account'>; brief?: boolean }) {
  const isOther = useIsOther()
  return (
    <span className="job">
      <Link href={jobHref(job.job_id, isOther(job.account) ? job.account : undefined)}>{titleOf(job)}</Link>
      {!brief && <span className="id">{idEnd(job.job_id)}</span>}
    </span>
  )
}

// JobName leads to a job of which only the id is known. It shows the id until the job is read.
export function JobName({ id, account }: { id: string; account?: string }) {
  const job = useGet<{ job: Job }>(`/v1/jobs/${id}${query({ account })}`, { fresh: 60_000 }).data?.job
  return <Link href={jobHref(id, account)}>{job ? titleOf(job) : id}</Link>
}

// secondsOf returns how long a job has run: from its start to its end, or until now. It returns undefined
// before the start, and for a paused job.
export const secondsOf = (j: Pick<Job, 'datetime_started' | 'datetime_completed' | 'paused'>) =>
  j.datetime_started && (j.datetime_completed || !j.paused) ? (Date.parse(j.datetime_completed ?? new Date().toISOString()) - Date.parse(j.datetime_started)) / 1000 : undefined

// FailedLink says how many rows of a job failed, with the number of all rows if of has it, and leads to them if the job is of this account.
export function FailedLink({ job, of }: { job: Pick<Job, 'job_id' | 'account' | 'failed_rows'>; of?: number | null }) {
  const isOther = useIsOther()
  if (job.failed_rows === 0) return null
  const count = `${of ? `${number(job.failed_rows)} of ${plural(of, 'row')}` : plural(job.failed_rows, 'row')} failed`
  return isOther(job.account) ? <span className="failures">{count}</span> : <Link className="failures" href={`/jobs/${job.job_id}/rows?failed=1`}>{count}</Link>
}

// recordPath is the path of a part of a job's record, which an operator reads of other accounts too.
export const recordPath = (job: Job, part: string) => `/v1/jobs/${job.job_id}/${part}${query({ account: job.account })}`

// isMissing reports whether the node answered that there is no such job.
export const isMissing = ({ data, error }: { data?: unknown; error: ApiError | null }) => data === undefined && error?.status === 404

export const NoJob = ({ id }: { id: string }) => (
  <Page title="No such job">
    <Empty next={<LinkButton href="/jobs">Show all jobs</LinkButton>}>
      No job of your account has the id <code>{id}</code>. Check the link, or ask its sender which account owns the job.
    </Empty>
  </Page>
)

// A bar of a job that is over is quiet, so that running jobs stand out.
export function Bar({ done, failed, all, label, ended }: { done: number; failed: number; all: number | null; label: string; ended?: boolean }) {
  const part = (n: number) => (all ? Math.min(100, (n / all) * 100) : 0)
  return (
    <span
      className="bar"
      data-over={ended || undefined}
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={all ?? undefined}
      aria-valuenow={all ? done : undefined}
      aria-valuetext={all ? `${number(done)} of ${plural(all, 'row')}, ${percent(done, all)}` : 'rows not counted yet'}
    >
      <span className="good" style={{ width: `${part(done - failed)}%` }} />
      <span className="bad" style={{ width: `${part(failed)}%` }} />
    </span>
  )
}

// Done shows the share of done rows; at the end of a job only its bar, because the counts say more.
export const Done = ({ job }: { job: Titled & Pick<Job, 'status' | 'rows_done' | 'failed_rows' | 'num_rows'> }) => (
  <span className="done">
    <Bar done={job.rows_done} failed={job.failed_rows} all={job.num_rows} ended={over(job.status)} label={`Progress of ${titleOf(job)}`} />
    {!over(job.status) && <span>{percent(job.rows_done, job.num_rows)}</span>}
  </span>
)
