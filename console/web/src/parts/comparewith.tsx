import { Button, Modal } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { useQueries } from '@tanstack/react-query'
import { Link } from 'wouter'
import { get } from '../api/client'
import { useGet } from '../api/hooks'
import type { Job, JobPage } from '../api/types'
import { beginning } from '../lib/format'
import { Ago } from './ago'
import { over, Status, titleOf } from './job'
import { Empty, Load } from './load'
import { Card, LinkButton } from './page'

export const compareHref = (...ids: string[]) => `/jobs/compare?jobs=${ids.join(',')}`

// compareJobs is compareHref with the older jobs first, so that a difference shows what the newer job changed.
export const compareJobs = (...jobs: Job[]) => compareHref(...jobs.toSorted((a, b) => Date.parse(a.datetime_created) - Date.parse(b.datetime_created)).map((j) => j.job_id))

// CompareWith offers jobs on an input with as many rows as the input of a job, or with as many rows, first
// the jobs on the same input.
export function CompareWith({ job, quiet }: { job: Job; quiet?: boolean }) {
  const [open, { open: ask, close }] = useDisclosure()
  if (!job.num_rows) return null
  return (
    <>
      <Button variant={quiet ? 'subtle' : 'default'} size="sm" onClick={ask}>Compare with…</Button>
      <Modal opened={open} onClose={close} title="Compare with" size="lg">
        <Others job={job} />
      </Modal>
    </>
  )
}

// CompareWithSource compares a job with the job that has its input.
export function CompareWithSource({ job, quiet }: { job: Job; quiet?: boolean }) {
  const [source] = useJobs([job.input_of!])
  return <LinkButton href={source ? compareJobs(job, source) : compareHref(job.input_of!, job.job_id)} variant={quiet ? 'subtle' : 'default'} size="sm">Compare with {source ? beginning(titleOf(source), sourceName) : 'the source'}</LinkButton>
}

const sourceName = 24 // the longest beginning of a title on a button, in characters

// useJobs returns the jobs with these ids that are read. With every, it reads a job again until its end.
export const useJobs = (ids: string[], every?: number) =>
  useQueries({
    queries: ids.map((id) => ({
      queryKey: [`/v1/jobs/${id}`],
      queryFn: ({ signal }: { signal: AbortSignal }) => get<{ job: Job }>(`/v1/jobs/${id}`, signal),
      refetchInterval: (q: { state: { data?: { job: Job } } }) => !!every && !(q.state.data && over(q.state.data.job.status)) && every,
    })),
  }).flatMap((r) => r.data?.job ?? [])

const inputRows = (j: Job) => j.input_rows ?? j.num_rows

function Others({ job }: { job: Job }) {
  const newest = useGet<JobPage>('/v1/list-jobs?limit=100')
  const line = new Set([job.input_of, job.continues, job.continued_by, ...(job.set ?? [])].filter((id) => id != null))
  const read = useJobs([...line])
  // shares reports whether a job reads the same input.
  const shares = (j: Job) => line.has(j.job_id) || j.input_of === job.job_id || j.continues === job.job_id || (!!job.input_of && j.input_of === job.input_of)
  return (
    <Load query={newest}>
      {({ jobs }) => {
        const known = new Map([...read, ...jobs].map((j) => [j.job_id, j]))
        const offered = [...known.values()].filter((j) => j.job_id !== job.job_id && j.run_type === 'FULL' && (j.num_rows === job.num_rows || inputRows(j) === inputRows(job)))
        if (offered.length === 0) return <Empty>None of the newest 100 jobs has the same number of rows.</Empty>
        return (
          <div className="stack">
            <Offered title="Jobs with the same input" job={job} jobs={offered.filter(shares)} />
            <Offered title="Jobs with the same number of rows; the inputs may differ" job={job} jobs={offered.filter((j) => !shares(j))} />
          </div>
        )
      }}
    </Load>
  )
}

function Offered({ title, job, jobs }: { title: string; job: Job; jobs: Job[] }) {
  if (jobs.length === 0) return null
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      <JobLines jobs={jobs} href={(j) => compareJobs(job, j)} note={(j) => (j.job_id === job.input_of ? 'source of the input' : j.job_id === job.continues ? 'the job before' : j.job_id === job.continued_by ? 'the job after' : '')} />
    </section>
  )
}

type LinesProps = { jobs: Job[]; href: (j: Job) => string | undefined; note: (j: Job) => string }

// JobLines lists jobs with their states and models. A job without href has no link.
function JobLines({ jobs, href, note }: LinesProps) {
  return (
    <ul className="list lines">
      {jobs.map((j) => {
        const to = href(j)
        return (
          <li key={j.job_id}>
            {to ? <Link href={to}>{titleOf(j)}</Link> : <strong>{titleOf(j)}</strong>}
            <Status is={j.status} />
            <span className="small">{j.model}, <Ago t={j.datetime_created} />{note(j) && ` · ${note(j)}`}</span>
          </li>
        )
      })}
    </ul>
  )
}

// SetOf shows the jobs that run the same rows as a job of a set.
export function SetOf({ job }: { job: Job }) {
  const jobs = useJobs(job.set ?? [])
  if (!job.set) return null
  return (
    <Card title={`Job ${job.set.indexOf(job.job_id) + 1} of ${job.set.length} on the same rows`} actions={<LinkButton href={compareHref(...job.set)} variant="default" size="xs">Compare the {job.set.length} jobs</LinkButton>}>
      <JobLines jobs={jobs} href={(j) => (j.job_id === job.job_id ? undefined : `/jobs/${j.job_id}`)} note={(j) => (j.job_id === job.job_id ? 'this job' : '')} />
    </Card>
  )
}
