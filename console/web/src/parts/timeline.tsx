import { useGet } from '../api/hooks'
import type { Job, Timeline } from '../api/types'
import { duration, plural, time } from '../lib/format'
import { useIsOther } from './account'
import { isEstimate, JobName, recordPath } from './job'
import { Load } from './load'
import { Card } from './page'

export const useTimeline = (job: Job) => useGet<Timeline>(recordPath(job, 'timeline'))

// Events shows the history of a job.
export function Events({ job }: { job: Job }) {
  const timeline = useTimeline(job)
  const other = useIsOther()(job.account) ? job.account : undefined
  return (
    <Card title="Timeline">
      <Load query={timeline}>
        {({ events, shortened }) => (
          <ol className="timeline">
            {grouped(events.filter((e) => e.what !== 'input_removed' || needsInput(job))).map(({ event, before }, i) => (
              <li key={i}>
                {before.length > 0 && (
                  <details>
                    <summary>{plural(before.length, 'earlier wait')}</summary>
                    <ol className="timeline">{before.map((e, j) => <li key={j}><HistoryEvent event={e} status={job.status} /></li>)}</ol>
                  </details>
                )}
                <HistoryEvent event={event} status={job.status} other={other} />
              </li>
            ))}
            {shortened && <li className="small">The service keeps a limited number of events for a job. Earlier events may be missing.</li>}
          </ol>
        )}
      </Load>
      {job.input_of && <p className="small">Reads the input of <JobName id={job.input_of} account={other} /></p>}
      {job.continues && <p className="small">Continues <JobName id={job.continues} account={other} /></p>}
      {job.reuse && job.reuse.jobs.length > 0 && (
        <p className="small">
          Reuses rows of {job.reuse.jobs.length > 1 && `${plural(job.reuse.jobs.length, 'job')}, the last is `}
          <JobName id={job.reuse.jobs[0]!} account={other} />
        </p>
      )}
      {job.output && <p className="small">The job also writes its results to {job.output}</p>}
    </Card>
  )
}

type TimelineEvent = Timeline['events'][number]

// grouped puts waits before the last wait in a row under this wait: a job may wait dozens of times.
function grouped(events: TimelineEvent[]) {
  const groups: { event: TimelineEvent; before: TimelineEvent[] }[] = []
  for (const event of events) {
    const last = groups.at(-1)
    if (event.what === 'waits' && last?.event.what === 'waits') {
      last.before.push(last.event)
      last.event = event
    } else groups.push({ event, before: [] })
  }
  return groups
}

// needsInput reports whether another job could run rows of the stored input of a job. If not, the service
// removes the input at the end of the job, and the results still contain it.
const needsInput = (job: Job) => job.status !== 'succeeded' || job.failed_rows > 0 || job.input_rows != null || isEstimate(job)

// saidElsewhere are events with a detail that the page shows elsewhere.
const saidElsewhere = ['completed', 'created']

function HistoryEvent({ event: e, status, other }: { event: TimelineEvent; status: string; other?: string }) {
  return (
    <>
      <strong>{e.what === 'completed' ? status : e.what.replace('_', ' ')}</strong>
      <span className="small">
        {time(e.at)}
        {e.what === 'waits' && (e.until == null ? ', until now' : `, for ${lasting(e.at, e.until)}`)}
      </span>
      {e.what === 'continued' ? <JobName id={e.detail!} account={other} /> : e.detail && !saidElsewhere.includes(e.what) && <span className="small">{e.detail.replace(/, epoch \d+$/, '')}</span>}
    </>
  )
}

/** lasting formats the time between two times. */
function lasting(from: string, until: string): string {
  return duration((Date.parse(until) - Date.parse(from)) / 1000)
}
