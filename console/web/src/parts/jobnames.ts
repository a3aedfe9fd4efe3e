import { query } from '../api/client'
import { useGet } from '../api/hooks'
import type { Job, JobPage } from '../api/types'
import { idEnd } from '../lib/format'
import { titleOf } from './job'

// useJobs returns the newest 100 jobs of an account by id, or of the own account without account.
export function useJobs(account?: string): ReadonlyMap<string, Job> {
  const { data } = useGet<JobPage>(`/v1/list-jobs${query({ limit: 100, account })}`, { fresh: 60_000 })
  return new Map(data?.jobs.map((j) => [j.job_id, j]))
}

// nameOf returns the title of a job, or the end of its id if jobs does not have it.
export function nameOf(jobs: ReadonlyMap<string, Job>, id: string): string {
  const job = jobs.get(id)
  return job ? titleOf(job) : idEnd(id)
}
