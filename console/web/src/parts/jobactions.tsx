import { useState } from 'react'
import { Button, Modal, NativeSelect } from '@mantine/core'
import { useDisclosure, useMediaQuery } from '@mantine/hooks'
import { useLocation } from 'wouter'
import { apiURL, query, send } from '../api/client'
import { useAct, useCan, useGet } from '../api/hooks'
import type { ErrorCounts, Job, Quota, Submitted } from '../api/types'
import { number } from '../lib/format'
import { jobHref, useIsOther } from './account'
import { CompareWith, CompareWithSource } from './comparewith'
import { Confirm } from './confirm'
import { isEstimate, over, recordPath } from './job'
import { nextName } from './jobform'
import { MoreActions } from './moreactions'
import { LinkButton } from './page'
import { canResume, ContinuedBy, longer, mostRejected, mostTruncated, Retry } from './retry'

// resultsPath is the path of the results of a job.
export const resultsPath = (job: Job, options: Record<string, string | boolean | undefined>) => apiURL(`/v1/jobs/${job.job_id}/results${query(options)}`)

// Actions has the buttons of a job: at most five, and more in a list. On a phone the list also has the comparison and
// the changed job of an ended job.
export function Actions({ job, gone }: { job: Job; gone?: boolean }) {
  const { act } = useCan()
  const ended = over(job.status)
  const withRows = job.run_type === 'FULL' && !gone
  const downloads = job.status === 'succeeded' && job.rows_done > job.failed_rows
  const comparesSource = ended && withRows && !!job.input_of && !job.set // jobs of a set are compared below
  const phone = useMediaQuery('(max-width: 36em)')
  const folds = !!phone && ended && withRows && !job.failure_reason && !!job.num_rows
  return (
    <>
      {withRows && downloads && <Button component="a" variant="filled" size="sm" href={resultsPath(job, { format: 'json', include_inputs: true })} download>Download</Button>}
      {withRows && !(ended && job.num_rows == null) && <LinkButton href={`/jobs/${job.job_id}/rows`} size="sm" variant={job.failure_reason || job.paused || downloads ? 'default' : 'filled'}>See rows</LinkButton>}
      {withRows && ended && !folds && (comparesSource ? <CompareWithSource job={job} /> : <CompareWith job={job} />)}
      {act && !ended && <Schedule job={job} />}
      {ended && !job.failure_reason && <Continue job={job} gone={gone} folds={folds} />}
      {comparesSource && !folds && <CompareWith job={job} />}
      {(folds || (!ended && (withRows || act))) && (
        <MoreActions>
          {comparesSource && <CompareWithSource job={job} quiet />}
          {withRows && <CompareWith job={job} quiet />}
          {act && !ended && <Raise job={job} />}
          {act && <LinkButton href={`/jobs/new?like=${job.job_id}`} variant="subtle" size="sm">Run again with changes</LinkButton>}
        </MoreActions>
      )}
    </>
  )
}

// Schedule has the buttons that stop and continue an open job.
function Schedule({ job }: { job: Job }) {
  const path = `/v1/jobs/${job.job_id}`
  const cancel = useAct(() => send<{ message: string }>('POST', `${path}/cancel`), { done: (r) => r.message, paths: ['/v1/'] })
  const release = useAct(() => send('POST', `${path}/release`), { done: () => 'The job runs again.', paths: ['/v1/'] })
  const pause = useAct((paused: boolean) => send('PATCH', path, { paused }), { paths: ['/v1/'] })
  return (
    <>
      {job.parked_until && <Button variant="default" size="sm" loading={release.isPending} onClick={() => release.mutate()}>Run now</Button>}
      <Button variant={job.paused ? 'filled' : 'default'} size="sm" loading={pause.isPending} onClick={() => pause.mutate(!job.paused)}>{job.paused ? 'Continue' : 'Pause'}</Button>
      <Confirm button="Cancel job" title="Cancel the job" className="danger" act={() => cancel.mutate()} busy={cancel.isPending}>
        Finished rows are kept. You can download them, and another job can run the other rows.
      </Confirm>
    </>
  )
}

// Raise gives a job priority 0. It is absent if the quota of priority 0 is too small for the job.
function Raise({ job }: { job: Job }) {
  const quota = useGet<{ quotas: Quota[] }>('/v1/get-quotas', { fresh: 60_000, enabled: job.job_priority > 0 }).data?.quotas.find((q) => q.priority === 0)
  const raise = useAct(() => send('PATCH', `/v1/jobs/${job.job_id}`, { job_priority: 0 }), { paths: ['/v1/'] })
  if (job.job_priority === 0 || !quota || job.num_rows == null || (quota.row_quota && job.num_rows > quota.row_quota)) return null
  return (
    <Confirm quiet button="Raise priority" color="cyan.9" title="Raise the priority" act={() => raise.mutate()} busy={raise.isPending}>
      The job gets priority 0, so its rows run before the rows of other jobs. Rows that servers run already finish first.
    </Confirm>
  )
}

// DeleteData is absent if there are no data to delete.
export function DeleteData({ job }: { job: Job }) {
  const path = `/v1/jobs/${job.job_id}`
  const { act } = useCan()
  const remove = useAct(() => send('DELETE', `${path}/data`), { done: () => 'The data is deleted.', paths: [path] })
  if (!act || !over(job.status)) return null
  return (
    <Confirm className="danger" button="Delete data" title="Delete the data" act={() => remove.mutate()} busy={remove.isPending}>
      This permanently deletes the input, results and errors. The job stays in the list with its counts and cost.
    </Confirm>
  )
}

// Continue has the actions that make another job of the rows of an ended job. They are beside the reason
// of a failed job, and the first of them is the one that probably helps. It is the filled button. With folds, the list of
// more actions has the changed job.
export function Continue({ job, gone, folds }: { job: Job; gone?: boolean; folds?: boolean }) {
  const { act } = useCan()
  const isOther = useIsOther()
  const retries = !gone && !!job.failure_reason && job.failed_rows > 0 && canResume(job)
  const counts = useGet<ErrorCounts>(recordPath(job, 'errors/counts'), { enabled: retries }).data
  if (!act) return null
  const cuts = job.failure_reason?.code === 'row_too_long' && job.truncate_rows === false
  const limit = counts && mostTruncated(counts) ? longer(job) : undefined
  const helps = retries && !(counts && mostRejected(counts)) // a retry probably helps
  const changes = !!job.failure_reason && !helps && !cuts && !job.continued_by // only changes probably help
  const like = <LinkButton href={`/jobs/new?like=${job.job_id}`} variant={changes ? 'filled' : 'default'} size="sm">Run again with changes</LinkButton>
  return (
    <>
      {changes && like}
      {job.failure_reason && job.continued_by && <LinkButton href={jobHref(job.continued_by, isOther(job.account) ? job.account : undefined)} size="sm">Open the later job</LinkButton>}
      {retries && <Retry job={job} maxTokens={limit} primary={helps && !job.continued_by} />}
      {cuts && <LinkButton href={`/jobs/new?like=${job.job_id}&cut`} size="sm">Run again, and cut long rows</LinkButton>}
      {!gone && <Resume job={job} />}
      {!changes && !folds && like}
    </>
  )
}

type RowChoice = { rows: 'rest' | 'missing'; label: string }

// choicesOf returns which rows another job can run without failed rows, which have their own button.
function choicesOf(job: Job): RowChoice[] {
  const missing = (job.num_rows ?? 0) - job.rows_done
  const others = (job.input_rows ?? 0) - job.rows_done
  const choices: RowChoice[] = []
  if (others > missing) choices.push({ rows: 'rest', label: `Run the other ${others === 1 ? 'row' : `${number(others)} rows`}` })
  if (job.failure_reason?.code === 'too_many_failed_rows') return choices // without its failed rows, another job fails, too
  if (missing > 0) choices.push({ rows: 'missing', label: `Run the ${missing === 1 ? 'row' : `${number(missing)} rows`} that did not run` })
  else if (job.failure_reason) choices.push({ rows: 'missing', label: 'Finish in a new job' })
  return choices
}

// Resume runs rows of the input of a job that the job did not run.
function Resume({ job }: { job: Job }) {
  const [open, { open: ask, close }] = useDisclosure()
  const [, go] = useLocation()
  const choices = choicesOf(job)
  const [rows, setRows] = useState<string>(choices[0]?.rows ?? '')
  const chosen = choices.find((c) => c.rows === rows) ?? choices[0]
  const resume = useAct(() => send<Submitted>('POST', `/v1/jobs/${job.job_id}/resume`, { rows: chosen?.rows, again: !!job.continued_by, ...(job.name && { name: nextName(job.name) }) }), {
    done: (r) => r.metadata.message,
    paths: ['/v1/list-jobs', '/v1/jobs'],
  })
  if (!canResume(job) || isEstimate(job) || !chosen) return null
  const run = () => resume.mutate(undefined, { onSuccess: (r) => go(`/jobs/${r.metadata.job_id}`) })
  if (choices.length === 1 && !job.continued_by) return <Button variant="default" size="sm" loading={resume.isPending} onClick={run}>{chosen.label}</Button>
  return (
    <>
      <Button variant="default" size="sm" onClick={ask}>{choices.length === 1 ? chosen.label : 'Run more rows'}</Button>
      <Modal opened={open} onClose={close} title="Run more rows in a new job">
        <div className="stack">
          <ContinuedBy job={job}>Another job runs, and costs, these rows again.</ContinuedBy>
          {choices.length > 1 && <NativeSelect label="Rows to run" data-autofocus value={chosen.rows} onChange={(e) => setRows(e.currentTarget.value)} data={choices.map((c) => ({ value: c.rows, label: c.label.replace(/^Run /, '') }))} />}
          <Button loading={resume.isPending} onClick={run}>{job.continued_by ? `${chosen.label} once more` : chosen.label}</Button>
        </div>
      </Modal>
    </>
  )
}
