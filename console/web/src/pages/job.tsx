import { useState, type JSX, type ReactNode } from 'react'
import { Button, Checkbox } from '@mantine/core'
import { Link, useLocation, useParams, useSearchParams } from 'wouter'
import { query } from '../api/client'
import { useGet } from '../api/hooks'
import type { ErrorCounts, Job, Preview, PreviewRow, Progress, Timeline } from '../api/types'
import { compact, duration, number, percent, plural, rate, sentence, time, usd, withoutRoutes } from '../lib/format'
import { useEvery } from '../live'
import { useIsOther } from '../parts/account'
import { Answers } from '../parts/answers'
import { SetOf } from '../parts/comparewith'
import { Code } from '../parts/copy'
import { Curve } from '../parts/curve'
import { EstimateResult } from '../parts/estimate'
import { Failures } from '../parts/failures'
import { Bar, isEstimate, isMissing, NoJob, over, priorityName, recordPath, secondsOf, State, stillRunning, titleOf, whyStopped } from '../parts/job'
import { Actions, Continue, DeleteData, resultsPath } from '../parts/jobactions'
import { Load } from '../parts/load'
import { Card, Facts, Folded, Page, Table } from '../parts/page'
import { ContinuedBy, mostTruncated, Retry } from '../parts/retry'
import { layoutOf, Line, RowList, rowHeight, useColumns, withIDs } from '../parts/rowlist'
import { SimulatedAnswer } from '../parts/simulated'
import { Events, useTimeline } from '../parts/timeline'

export default function JobPage() {
  const { id } = useParams<{ id: string }>()
  const account = useSearchParams()[0].get('account')
  const every = useEvery(5_000)
  const job = useGet<{ job: Job }>(`/v1/jobs/${id}${query({ account })}`, { every: !!account && every }) // there are no events of other accounts
  if (isMissing(job)) return <NoJob id={id} />
  return <Load query={job} title="Job">{({ job }) => <Detail job={job} />}</Load>
}

// jobTitle names the model of a job of a set, because all jobs of the set may have one name.
function jobTitle(job: Job) {
  const title = titleOf(job)
  return job.set && !title.includes(job.model) ? `${title}, ${job.model}` : title
}

function Detail({ job }: { job: Job }) {
  const other = useIsOther()(job.account)
  const estimate = isEstimate(job)
  const timeline = useTimeline(job)
  const gone = timeline.data?.events.some((e) => e.what === 'data_removed') // undefined until loaded
  return (
    <Page title={jobTitle(job)} actions={!other && <Actions job={job} gone={gone} />} lead={job.description}>
      {other && <p className="warning" role="note">This job belongs to the account {job.account}. Operators see its record. Rows and actions need a key of that account.</p>}
      {job.failure_reason && (
        <div className="problem" role="note">
          <Reason job={job} reason={job.failure_reason} />
          {!other && <div className="actions"><Continue job={job} gone={gone} /><Culprit job={job} /></div>}
        </div>
      )}
      {estimate ? <EstimateResult job={job} own={gone === false && !other} /> : <Now job={job} gone={gone || other} />}
      {job.set && !other && <SetOf job={job} />}
      {job.warnings.length > 0 && (
        <div className="warning" role="note">
          {job.warnings.map((w) => (
            <p key={w}>{w}</p>
          ))}
        </div>
      )}
      {gone && <p className="warning" role="note">The service has deleted the data of this job. The record of the job stays.</p>}
      {!estimate && !gone && !other && <Downloads job={job} />}
      {job.failed_rows > 0 && !gone && <Failures job={job} other={other} />}
      {!estimate && gone === false && !other && <FirstAnswers job={job} />}
      {!estimate && job.status === 'running' && !job.paused && <Where job={job} />}
      <div className="two">
        <Events job={job} />
        <Specification job={job} />
      </div>
      {gone === false && !other && <div className="actions end"><DeleteData job={job} /></div>}
    </Page>
  )
}

// Reason says why a job failed. If failed rows are the reason, it begins with their most frequent error,
// and the rule of the service is a note.
function Reason({ job, reason }: { job: Job; reason: NonNullable<Job['failure_reason']> }) {
  const counts = useGet<ErrorCounts>(recordPath(job, 'errors/counts'), { enabled: reason.code === 'too_many_failed_rows' }).data?.counts
  const message = withoutRoutes(reason.message)
  const first = counts?.[0]
  const [some, rule] = first ? message.split(/: (.*)/s) : []
  const failed = job.failed_rows === job.num_rows && job.num_rows > 1 ? `All ${number(job.num_rows)} rows failed` : some
  return (
    <>
      <p>
        <strong>{first ? `${failed}${counts.length > 1 ? `, ${number(first.rows)} of them with this error` : ''}: ${sentence(first.message)}` : message}</strong>
      </p>
      <p className="small">
        {rule && sentence(rule)} Code <code>{reason.code}</code>. {reason.additional_context}
      </p>
    </>
  )
}

// Lost says how many rows of a succeeded job have no answer, and runs them again.
function Lost({ job, acts }: { job: Job; acts: boolean }) {
  const counts = useGet<ErrorCounts>(recordPath(job, 'errors/counts'), { enabled: acts }).data
  const first = counts?.counts[0]
  return (
    <div className="warning" role="note">
      <div className="actions">
        <span>
          {plural(job.failed_rows, 'row')} failed and {job.failed_rows === 1 ? 'has' : 'have'} no answer
          {first ? `${first.rows < job.failed_rows ? `, ${number(first.rows)} of them with this error` : ''}: ${sentence(first.message)}` : '.'}
        </span>
        {acts && counts && !mostTruncated(counts) && <Retry job={job} size="xs" />}
      </div>
    </div>
  )
}

// saidByState are messages that say no more than the state.
const saidByState = ['Processing rows.', 'Job succeeded.']

function Now({ job, gone }: { job: Job; gone?: boolean }) {
  const ended = over(job.status)
  const every = useEvery(2_000)
  const progress = useGet<Progress>(recordPath(job, 'progress'), { every: !ended && every })
  const first = useFirstRows(job, gone === false)
  const p = progress.data
  const still = stillRunning(job, p)
  const message = still > 0 ? `Pausing. ${plural(still, 'row')} in flight ${still === 1 ? 'finishes' : 'finish'} first.` : (p?.waits_for ?? job.message)
  const seconds = secondsOf(job)
  const cost = job.job_cost ?? p?.cost_so_far
  const counted = job.num_rows != null
  const lost = job.status === 'succeeded' && job.failed_rows > 0
  const failed = job.status === 'failed' || lost // the big number is the result, because a share of done rows looks like a success
  const timeline = useTimeline(job)
  const events = timeline.data?.events ?? []
  const pausedAt = job.paused ? events.findLast((e) => e.what === 'paused')?.at : undefined
  return (
    <Card>
      <div className="now">
        <State job={job} pausing={still > 0} />
        {counted && <strong className="big">{failed ? `${number(job.rows_done - job.failed_rows)} of ${plural(job.num_rows!, 'row')} succeeded` : percent(job.rows_done, job.num_rows)}</strong>}
        {counted && <Bar done={job.rows_done} failed={job.failed_rows} all={job.num_rows} label="Progress" />}
      </div>
      {lost ? <Lost job={job} acts={gone === false} /> : !job.failure_reason && !saidByState.includes(message) && <p className={!ended && whyStopped(message) ? 'warning' : 'small'}>{withoutRoutes(message)}</p>}
      {job.deadline && <Deadline job={job} progress={p} />}
      <SimulatedAnswer output={first.data?.rows[0]?.output} />
      <ContinuedBy job={job} />
      <Facts
        facts={[
          ...(failed && counted ? [] : ([['Rows', counted ? `${number(job.rows_done)} of ${number(job.num_rows)}` : ended ? 'none ran' : 'not counted yet']] as [string, string][])),
          ...(job.input_rows ? ([['Rows of the input', number(job.input_rows)]] as [string, string][]) : []),
          ...(counted && !lost && !(failed && job.rows_done === job.failed_rows) ? ([['Failed rows', number(job.failed_rows)]] as [string, string][]) : []),
          ...(ended && job.num_rows! > job.rows_done ? ([['Rows not run', number(job.num_rows! - job.rows_done)]] as [string, string][]) : []),
          ...(ended || job.paused ? [] : ([['Time left', <Left key="left" progress={p} />]] as [string, JSX.Element][])),
          ...(pausedAt ? ([['Paused at', time(pausedAt)]] as [string, string][]) : []),
          ...(seconds !== undefined ? ([[ended ? 'Took' : 'Running for', duration(seconds)]] as [string, string][]) : pausedAt ? ([['Ran for', duration(ranFor(job, events))]] as [string, string][]) : []),
          [job.job_cost == null && !ended ? 'Cost so far' : 'Cost', usd(cost)],
          ...(ended || job.paused
            ? []
            : ([
                ['Rows a second', <Rate key="rate" job={job.job_id} value={p?.rows_per_second} at={progress.dataUpdatedAt} />],
                ['Tokens a second', rate(p?.tokens_per_second, '')],
              ] as [string, ReactNode][])),
          ...(job.output_tokens ? ([['Tokens', `${compact(job.input_tokens)} in, ${compact(job.output_tokens)} out`]] as [string, string][]) : []),
          ...(job.truncated_rows ? ([['Inputs cut to fit', number(job.truncated_rows)]] as [string, string][]) : []),
          ...(job.truncated_outputs ? ([['Answers cut at the limit', number(job.truncated_outputs)]] as [string, string][]) : []),
          ...(job.deduplicated_rows ? ([['Duplicate rows, not run', number(job.deduplicated_rows)]] as [string, string][]) : []),
          ...(job.rows_taken_over ? ([[job.continues ? 'Rows reused from the previous job' : 'Rows reused from other jobs', number(job.rows_taken_over)]] as [string, string][]) : []),
        ]}
      />
    </Card>
  )
}

// ranFor returns how many seconds passed from the creation of a paused job to its last pause, without
// earlier pauses.
function ranFor(job: Job, events: Timeline['events']) {
  let [seconds, since] = [0, Date.parse(job.datetime_created)]
  for (const { what, at } of events) {
    if (what === 'paused') seconds += (Date.parse(at) - since) / 1000
    if (what === 'pause_ended') since = Date.parse(at)
  }
  return seconds
}

// Deadline shows the deadline of a job beside its forecast, and warns if the job is late or will be late.
function Deadline({ job, progress: p }: { job: Job; progress?: Progress }) {
  const left = !over(job.status) && p?.eta_seconds != null ? p.eta_seconds : undefined
  const expected = left === undefined ? (job.forecast?.finishes_at ?? '') : new Date(Date.now() + left * 1000).toISOString()
  const end = job.datetime_completed ?? new Date(Math.max(Date.now(), Date.parse(expected) || 0)).toISOString()
  const late = Date.parse(end) > Date.parse(job.deadline!)
  return (
    <p className={late ? 'warning' : 'small'}>
      Deadline {time(job.deadline)}, forecast {job.forecast ? time(job.forecast.finishes_at) : 'none'}
      {late && (job.datetime_completed ? `. The job ended at ${time(end)}.` : left === undefined ? '. The job will be late.' : `. The job will probably end at ${time(end)}.`)}
    </p>
  )
}

const firstAnswers = 3

// useFirstRows returns the first rows of a job that are done.
const useFirstRows = (job: Job, enabled: boolean) =>
  useGet<Preview>(`/v1/jobs/${job.job_id}/preview?limit=${firstAnswers}&done=true`, {
    enabled: enabled && job.rows_done > 0,
    fresh: 60_000,
    every: (data) => (over(job.status) || (data && data.rows.length >= firstAnswers) ? false : 5_000),
  })

function FirstAnswers({ job }: { job: Job }) {
  const { data } = useFirstRows(job, true)
  const rows = data?.rows.filter((r) => !r.code) ?? []
  if (rows.length === 0) return null
  return (
    <Card title="First answers" actions={<Link href={`/jobs/${job.job_id}/rows`}>See all rows</Link>}>
      {job.json_schema ? <AnswerColumns job={job} rows={rows} /> : <Answers label="First answers" job={job.job_id} rows={rows} brief />}
    </Card>
  )
}

// AnswerColumns shows rows with the properties of their answers as columns.
function AnswerColumns({ job, rows }: { job: Job; rows: PreviewRow[] }) {
  const [, go] = useLocation()
  const columns = withIDs(useColumns(job), rows)
  return (
    <RowList label="First answers" layout={layoutOf(columns)} height={rows.length * rowHeight}>
      {rows.map((row, i) => (
        <Line key={row.row} job={job} n={row.row} at={i * rowHeight} position={i + 1} size={rows.length} row={row} columns={columns} show={(n) => go(`/jobs/${job.job_id}/rows?row=${n}&open=${n}`)} />
      ))}
    </RowList>
  )
}

function Where({ job }: { job: Job }) {
  const { data: p } = useGet<Progress>(recordPath(job, 'progress'))
  if (!p) return null
  const unassigned = (p.num_rows ?? 0) - p.rows_done - (p.nodes ?? []).reduce((sum, n) => sum + n.rows_assigned, 0)
  return (
    <Card title="Progress by node">
      {p.nodes == null ? (
        <p className="small">The owner of the job does not answer.</p>
      ) : (
        <Table label="Rows by node" heads={['Node', 'Done', 'Assigned, not done yet']} less={[]} foot={unassigned > 0 && <tr><td>no node yet</td><td /><td className="number">{number(unassigned)}</td></tr>}>
          {p.nodes.map((n, i) => (
            <tr key={i}>
              <td>{n.node}</td>
              <td className="number">{number(n.rows_done)}</td>
              <td className="number">{number(n.rows_assigned)}</td>
            </tr>
          ))}
        </Table>
      )}
      {p.nodes && <p className="small">The column Done begins at 0 when another node takes the job.</p>}
      {p.shards && p.shards.total > 1 && <p className="small">The service cuts a long input into parts: {number(p.shards.complete)} of {number(p.shards.total)} are complete.</p>}
    </Card>
  )
}

// isIdle reports whether the nodes of a running job finished no row over the last minute. Before, the
// rate of a node is unknown.
const isIdle = ({ nodes }: Progress) => !!nodes && nodes.length > 0 && nodes.every((n) => n.rows_per_second === 0)

function Rate({ job, value, at }: { job: string; value?: number | null; at: number }) {
  return (
    <>
      {rate(value, '')}
      <Curve key={job} value={value} at={at} />
    </>
  )
}

function Left({ progress: p }: { progress?: Progress }) {
  const why = p && (whyStopped(p.waits_for ?? p.message) ?? (isIdle(p) ? 'No row was finished in the last minute.' : undefined))
  if (why) return <>unknown<span className="range">{why}</span></>
  if (p?.eta_seconds == null) return 'no estimate yet'
  return (
    <>
      {duration(p.eta_seconds)}
      {p.eta_low != null && p.eta_high != null && (
        <span className="range">
          {duration(p.eta_low)} to {duration(p.eta_high)}
        </span>
      )}
    </>
  )
}

// Culprit leads to the row that the reason of a failed job names.
function Culprit({ job }: { job: Job }) {
  const row = job.failure_reason?.message.match(/\brow (\d+)\b/i)?.[1]
  if (!row || !job.datetime_started) return null // without a start, no row is stored
  return <Link href={`/jobs/${job.job_id}/rows?row=${row}`}>Show row {number(Number(row))}</Link>
}

function Downloads({ job }: { job: Job }) {
  const [inputs, setInputs] = useState(true)
  const [columns, setColumns] = useState(!!job.keep_columns)
  const [unpack, setUnpack] = useState(false)
  const [meta, setMeta] = useState(false)
  const properties = job.json_schema && 'properties' in job.json_schema
  if (job.rows_done === job.failed_rows) return null // there is no answer
  const partial = job.status !== 'succeeded'
  const href = (format: string) =>
    resultsPath(job, {
      format,
      include_inputs: inputs,
      partial: partial || undefined,
      columns: over(job.status) && columns ? '*' : undefined,
      unpack: over(job.status) && unpack ? true : undefined,
      include: over(job.status) && meta ? 'meta' : undefined,
    })
  return (
    <Card title={partial ? 'Download partial results' : 'Download'}>
      <div className="actions">
        {[['json', 'JSON'], ['jsonl', 'JSON Lines'], ['csv', 'CSV (zip)'], ['parquet', 'Parquet']].map(([format, name]) => (
          <Button key={format} component="a" variant="default" size="sm" href={href(format!)} download>
            {name}
          </Button>
        ))}
        <Checkbox label="with inputs" checked={inputs} onChange={(e) => setInputs(e.currentTarget.checked)} />
        {over(job.status) && job.keep_columns && <Checkbox label="with columns of the input" checked={columns} onChange={(e) => setColumns(e.currentTarget.checked)} />}
        {over(job.status) && properties && <Checkbox label="with a column for each property" checked={unpack} onChange={(e) => setUnpack(e.currentTarget.checked)} />}
        {over(job.status) && <Checkbox label="with tokens, server and errors" checked={meta} onChange={(e) => setMeta(e.currentTarget.checked)} />}
      </div>
    </Card>
  )
}

function Specification({ job }: { job: Job }) {
  return (
    <Card title="Specification">
      <Facts
        facts={[
          ['Id', <code key="id">{job.job_id}</code>, 'long'],
          ...(job.input ? [['Input', job.input, 'long'] as [string, string, 'long']] : []),
          ['Model', job.model],
          ...(job.function
            ? ([['Function', <Link key="f" href={`/functions/${job.function.name}`}>{job.function.name}, revision {job.function.revision}</Link>]] as [string, JSX.Element][])
            : []),
          ['Priority', priorityName(job.job_priority)],
          ...(job.servers ? [['Servers', job.servers.join('; '), 'long'] as [string, string, 'long']] : []),
          ...(job.key_id ? ([['API key', <Link key="k" href={`/usage${query({ key: job.key_id, account: job.account })}`}><code>{job.key_id}</code></Link>]] as [string, JSX.Element][]) : []),
        ]}
      />
      {job.prompt && <><h3>Prompt</h3><Code label="Prompt" text={job.prompt} /></>}
      {job.system_prompt && <><h3>System prompt</h3><Code label="System prompt" text={job.system_prompt} /></>}
      <Folded title={job.json_schema ? 'Schema and parameters' : 'Parameters'}>
        {job.json_schema && <><h3>Schema</h3><Code label="Schema" text={JSON.stringify(job.json_schema, null, 2)} /></>}
        <h3>Parameters</h3>
        <Code label="Parameters" text={JSON.stringify(job.sampling_params, null, 2)} />
      </Folded>
    </Card>
  )
}
