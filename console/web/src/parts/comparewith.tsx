import { Button, Modal } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { Link } from 'wouter'
import { useGet } from '../api/hooks'
import type { Job, JobPage } from '../api/types'
import { Ago } from './ago'
import { Status, titleOf } from './job'
import { Empty, Load } from './load'

export const compareHref = (...ids: string[]) => `/jobs/compare?jobs=${ids.join(',')}`

// CompareWith offers jobs with as many rows as a job, first the jobs of its lineage.
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

function Others({ job }: { job: Job }) {
  const newest = useGet<JobPage>('/v1/list-jobs?limit=100')
  const source = useGet<{ job: Job }>(`/v1/jobs/${job.input_of}`, { enabled: !!job.input_of })
  const before = useGet<{ job: Job }>(`/v1/jobs/${job.continues}`, { enabled: !!job.continues })
  const after = useGet<{ job: Job }>(`/v1/jobs/${job.continued_by}`, { enabled: !!job.continued_by })
  return (
    <Load query={newest}>
      {({ jobs }) => {
        const line = [source.data?.job, before.data?.job, after.data?.job].filter((j) => !!j)
        const offered = [...line, ...jobs.filter((j) => line.every((l) => l.job_id !== j.job_id))].filter(
          (j) => j.job_id !== job.job_id && j.run_type === 'FULL' && j.num_rows === job.num_rows,
        )
        if (offered.length === 0) return <Empty>None of the newest 100 jobs has as many rows.</Empty>
        return (
          <ul className="list">
            {offered.map((j) => (
              <li key={j.job_id}>
                <Link href={compareHref(job.job_id, j.job_id)}>{titleOf(j)}</Link>
                <Status is={j.status} />
                <span className="small">
                  {j.model}, <Ago t={j.datetime_created} />
                  {line.includes(j) && (j.job_id === job.input_of ? ' · source of the input' : j.job_id === job.continues ? ' · the job before' : ' · the job after')}
                </span>
              </li>
            ))}
          </ul>
        )
      }}
    </Load>
  )
}
