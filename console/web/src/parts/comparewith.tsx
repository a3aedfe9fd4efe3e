import { Button, Modal } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { useQueries } from '@tanstack/react-query'
import { Link } from 'wouter'
import { get } from '../api/client'
import { useGet } from '../api/hooks'
import type { Job, JobPage } from '../api/types'
import { Ago } from './ago'
import { Status, titleOf } from './job'
import { Empty, Load } from './load'

export const compareHref = (...ids: string[]) => `/jobs/compare?jobs=${ids.join(',')}`

// compareJobs is compareHref with the older jobs first, so that a difference shows what the newer job changed.
export const compareJobs = (...jobs: Job[]) => compareHref(...jobs.toSorted((a, b) => Date.parse(a.datetime_created) - Date.parse(b.datetime_created)).map((j) => j.job_id))

// CompareWith offers jobs on an input with as many rows as the input of a job, or with as many rows, first
// the jobs on the same input.
export function CompareWith({ job }: { job: Job }) {
  const [open, { open: ask, close }] = useDisclosure()
  if (!job.num_rows) return null
  return (
    <>
      <Button variant="default" size="sm" onClick={ask}>Compare with…</Button>
      <Modal opened={open} onClose={close} title="Compare with" size="lg">
        <Others job={job} />
      </Modal>
    </>
  )
}

const inputRows = (j: Job) => j.input_rows ?? j.num_rows

function Others({ job }: { job: Job }) {
  const newest = useGet<JobPage>('/v1/list-jobs?limit=100')
  const line = new Set([job.input_of, job.continues, job.continued_by, ...(job.set ?? [])].filter((id) => id != null))
  const read = useQueries({ queries: [...line].map((id) => ({ queryKey: [`/v1/jobs/${id}`], queryFn: ({ signal }: { signal: AbortSignal }) => get<{ job: Job }>(`/v1/jobs/${id}`, signal) })) })
  // shares reports whether a job reads the same input.
  const shares = (j: Job) => line.has(j.job_id) || j.input_of === job.job_id || j.continues === job.job_id || (!!job.input_of && j.input_of === job.input_of)
  return (
    <Load query={newest}>
      {({ jobs }) => {
        const known = new Map([...read.flatMap((r) => r.data?.job ?? []), ...jobs].map((j) => [j.job_id, j]))
        const offered = [...known.values()].filter((j) => j.job_id !== job.job_id && j.run_type === 'FULL' && (j.num_rows === job.num_rows || inputRows(j) === inputRows(job)))
        if (offered.length === 0) return <Empty>None of the newest 100 jobs has the same number of rows.</Empty>
        return (
          <div className="stack">
            <Offered title="Jobs with the same input" job={job} jobs={offered.filter(shares)} />
            <Offered title="Jobs with the same number of rows. Their inputs may differ" job={job} jobs={offered.filter((j) => !shares(j))} />
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
      <ul className="list">
        {jobs.map((j) => (
          <li key={j.job_id}>
            <Link href={compareJobs(job, j)}>{titleOf(j)}</Link>
            <Status is={j.status} />
            <span className="small">
              {j.model}, <Ago t={j.datetime_created} />
              {j.job_id === job.input_of ? ' · source of the input' : j.job_id === job.continues ? ' · the job before' : j.job_id === job.continued_by && ' · the job after'}
            </span>
          </li>
        ))}
      </ul>
    </section>
  )
}
