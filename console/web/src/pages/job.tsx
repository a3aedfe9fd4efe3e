import { useState, type JSX } from 'react'
import { Button, Checkbox, Modal, NativeSelect } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { Link, useLocation, useParams, useSearchParams } from 'wouter'
import { apiURL, query, send } from '../api/client'
import { useAct, useCan, useGet } from '../api/hooks'
import type { ErrorCounts, Job, Preview, Progress, Row, RowError, Submitted, Timeline } from '../api/types'
import { isSimulated } from '../lib/answer'
import { compact, duration, none, number, percent, plural, rate, text, time, usd, withoutRoutes } from '../lib/format'
import { useEvery } from '../live'
import { jobHref, useIsOther } from '../parts/account'
import { Answers } from '../parts/answers'
import { compareHref, CompareWith } from '../parts/comparewith'
import { Confirm } from '../parts/confirm'
import { Code } from '../parts/copy'
import { EstimateResult } from '../parts/estimate'
import { Bar, isEstimate, isMissing, NoJob, over, State, testRows, whyStopped } from '../parts/job'
import { Load } from '../parts/load'
import { Card, Facts, LinkButton, Long, Page, Table } from '../parts/page'
import { canResume, ContinuedBy, Retry, RetryLonger, truncatedCode } from '../parts/retry'

export default function JobPage() {
  const { id } = useParams<{ id: string }>()
  const account = useSearchParams()[0].get('account')
  const every = useEvery(5_000)
  const job = useGet<{ job: Job }>(`/v1/jobs/${id}${query({ account })}`, { every: !!account && every }) // there are no events of other accounts
  if (isMissing(job)) return <NoJob id={id} />
  return <Load query={job} title="Job">{({ job }) => <Detail job={job} />}</Load>
}

// recordPath is the path of a part of a job's record, which an operator reads of other accounts too.
const recordPath = (job: Job, part: string) => `/v1/jobs/${job.job_id}/${part}${query({ account: job.account })}`

function Detail({ job }: { job: Job }) {
  const other = useIsOther()(job.account)
  const estimate = isEstimate(job)
  const timeline = useTimeline(job)
  const gone = timeline.data?.events.some((e) => e.what === 'data_removed') // undefined until loaded
  return (
    <Page title={job.name || job.job_id} actions={!other && <Actions job={job} gone={gone} />} lead={job.description}>
      {other && <p className="warning" role="note">This job belongs to the account {job.account}. Operators see its record. Rows and actions need a key of that account.</p>}
      {job.failure_reason && (
        <div className="problem" role="note">
          <p>
            <strong>{withoutRoutes(job.failure_reason.message)}</strong>
          </p>
          <p className="small">
            Code <code>{job.failure_reason.code}</code>. {job.failure_reason.additional_context}
          </p>
          {!other && <div className="actions"><Continue job={job} gone={gone} /></div>}
        </div>
      )}
      {estimate ? <EstimateResult job={job} own={gone === false && !other} /> : <Now job={job} gone={gone || other} />}
      {job.warnings.length > 0 && (
        <div className="warning" role="note">
          {job.warnings.map((w) => (
            <p key={w}>{w}</p>
          ))}
        </div>
      )}
      {gone && <p className="warning" role="note">The data of this job was deleted. Its record stays.</p>}
      {job.failed_rows > 0 && !gone && <Failures job={job} other={other} />}
      {!estimate && gone === false && !other && <FirstAnswers job={job} />}
      {!estimate && !gone && !other && <Downloads job={job} />}
      {!estimate && job.status === 'running' && <Where job={job} />}
      <div className="two">
        <Events job={job} />
        <Specification job={job} />
      </div>
    </Page>
  )
}

// saidByState are messages that say no more than the state.
const saidByState = ['Processing rows.', 'Job succeeded.']

const useTimeline = (job: Job) => useGet<Timeline>(recordPath(job, 'timeline'))

function Now({ job, gone }: { job: Job; gone?: boolean }) {
  const ended = over(job.status)
  const every = useEvery(2_000)
  const progress = useGet<Progress>(recordPath(job, 'progress'), { every: !ended && every })
  const first = useFirstRows(job, gone === false)
  const p = progress.data
  const message = p?.waits_for ?? job.message
  const cost = job.job_cost ?? p?.cost_so_far
  const counted = job.num_rows != null
  return (
    <Card>
      <div className="now">
        <State job={job} />
        {isSimulated(first.data?.rows[0]?.output) && <span className="tag">simulated answers</span>}
        {counted && <strong className="big">{percent(job.rows_done, job.num_rows)}</strong>}
        {counted && <Bar done={job.rows_done} failed={job.failed_rows} all={job.num_rows} label="Progress" />}
      </div>
      {!job.failure_reason && !saidByState.includes(message) && <p className={!ended && whyStopped(message) ? 'warning' : 'small'}>{withoutRoutes(message)}</p>}
      <ContinuedBy job={job} />
      <Facts
        facts={[
          ['Rows', counted ? `${number(job.rows_done)} of ${number(job.num_rows)}` : ended ? 'none ran' : 'not counted yet'],
          ...(job.input_rows ? ([['Rows of the input', number(job.input_rows)]] as [string, string][]) : []),
          ...(counted ? ([['Failed rows', number(job.failed_rows)]] as [string, string][]) : []),
          ...(ended ? [] : ([['Time left', <Left key="left" progress={p} />]] as [string, JSX.Element][])),
          ['Elapsed', duration(p?.elapsed_seconds)],
          [job.job_cost == null && !ended ? 'Cost so far' : 'Cost', usd(cost)],
          ...(ended || job.paused
            ? []
            : ([
                ['Rows a second', rate(p?.rows_per_second, '')],
                ['Tokens a second', rate(p?.tokens_per_second, '')],
              ] as [string, string][])),
          ...(job.output_tokens ? ([['Tokens', `${compact(job.input_tokens)} in, ${compact(job.output_tokens)} out`]] as [string, string][]) : []),
          ...(job.truncated_rows ? ([['Inputs cut to fit', number(job.truncated_rows)]] as [string, string][]) : []),
          ...(job.truncated_outputs ? ([['Answers cut at the limit', number(job.truncated_outputs)]] as [string, string][]) : []),
          ...(job.deduplicated_rows ? ([['Duplicate rows, not run', number(job.deduplicated_rows)]] as [string, string][]) : []),
          ...(job.rows_taken_over ? ([['Reused from the previous job', number(job.rows_taken_over)]] as [string, string][]) : []),
        ]}
      />
    </Card>
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
      <Answers label="First answers" job={job.job_id} rows={rows} brief />
    </Card>
  )
}

function Where({ job }: { job: Job }) {
  const { data: p } = useGet<Progress>(recordPath(job, 'progress'))
  if (!p) return null
  return (
    <Card title="Progress by node">
      {p.nodes == null ? (
        <p className="small">{job.paused ? 'No row runs while the job is paused.' : 'The owner of the job does not answer.'}</p>
      ) : (
        <Table label="Rows by node" heads={['Node', 'Done', 'Not done yet', 'Rows a second']} less={['Not done yet']}>
          {p.nodes.map((n, i) => (
            <tr key={i}>
              <td>{n.node}</td>
              <td className="number">{number(n.rows_done)}</td>
              <td className="number">{number(n.rows_assigned)}</td>
              <td className="number">{rate(n.rows_per_second, '')}</td>
            </tr>
          ))}
        </Table>
      )}
      {p.shards && (
        <p className="small">
          {number(p.shards.complete)} of {number(p.shards.total)} shards are complete. Done counts rows since the present owner took the job.
        </p>
      )}
    </Card>
  )
}

// isIdle reports whether the nodes of a running job finished no row over the last minute. Before, the
// rate of a node is unknown.
const isIdle = ({ nodes }: Progress) => !!nodes && nodes.length > 0 && nodes.every((n) => n.rows_per_second === 0)

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

function Actions({ job, gone }: { job: Job; gone?: boolean }) {
  const can = useCan()
  const ended = over(job.status)
  const path = `/v1/jobs/${job.job_id}`
  const cancel = useAct(() => send<{ message: string }>('POST', `${path}/cancel`), { done: (r) => r.message, paths: ['/v1/'] })
  const release = useAct(() => send('POST', `${path}/release`), { done: () => 'The job runs again.', paths: ['/v1/'] })
  const reschedule = useAct((change: { paused?: boolean; job_priority?: number }) => send('PATCH', path, change), { paths: ['/v1/'] })
  const remove = useAct(() => send('DELETE', `${path}/data`), { done: () => 'The data is deleted.', paths: [path] })
  return (
    <>
      {job.run_type === 'FULL' && !gone && !(ended && job.num_rows == null) && <LinkButton href={`/jobs/${job.job_id}/rows`} variant={job.failure_reason ? 'default' : 'filled'}>See rows</LinkButton>}
      {job.run_type === 'FULL' && !gone && <CompareWith job={job} />}
      {can.act && job.parked_until && (
        <Button variant="default" size="sm" loading={release.isPending} onClick={() => release.mutate()}>
          Run now
        </Button>
      )}
      {can.act && !ended && (
        <Button variant={job.paused ? 'filled' : 'default'} size="sm" loading={reschedule.isPending} onClick={() => reschedule.mutate({ paused: !job.paused })}>
          {job.paused ? 'Continue' : 'Pause'}
        </Button>
      )}
      {can.act && !ended && job.job_priority > 0 && (
        <Confirm button="Run first" color="cyan.9" title="Run this job first" act={() => reschedule.mutate({ job_priority: 0 })} busy={reschedule.isPending}>
          The job gets priority 0, so its rows run before the rows of other jobs. Rows that servers run already finish first.
        </Confirm>
      )}
      {can.act && !ended && (
        <Confirm button="Cancel" title="Cancel the job" act={() => cancel.mutate()} busy={cancel.isPending}>
          Rows that are answered stay and can be downloaded; a resumed job takes them over.
        </Confirm>
      )}
      {!job.failure_reason && <Continue job={job} gone={gone} />}
      {can.act && ended && !gone && (
        <Confirm button="Delete data" title="Delete the data" act={() => remove.mutate()} busy={remove.isPending}>
          This deletes input, results and failures now and for ever. The record with its figures stays.
        </Confirm>
      )}
    </>
  )
}

// Continue has the actions that make another job of the rows of a job. They are beside the reason of
// a failed job.
function Continue({ job, gone }: { job: Job; gone?: boolean }) {
  const can = useCan()
  if (!can.act) return null
  const ended = over(job.status) && !gone
  const retries = ended && !!job.failure_reason && job.failed_rows > 0 && canResume(job)
  return (
    <>
      {retries && <Retry job={job} primary />}
      {ended && <Resume job={job} />}
      <LinkButton href={`/jobs/new?like=${job.job_id}`} variant={job.failure_reason && !retries ? 'filled' : 'default'} size="sm">Run again with changes</LinkButton>
    </>
  )
}

function Resume({ job }: { job: Job }) {
  const [open, { open: ask, close }] = useDisclosure()
  const [, go] = useLocation()
  const others = (job.input_rows ?? 0) > (job.num_rows ?? 0)
  const [rows, setRows] = useState(others ? 'rest' : job.status === 'succeeded' || job.failure_reason?.code === 'too_many_failed_rows' ? 'failed' : 'missing')
  const resume = useAct(() => send<Submitted>('POST', `/v1/jobs/${job.job_id}/resume`, { rows, again: !!job.continued_by }), {
    done: (r) => r.metadata.message,
    paths: ['/v1/list-jobs', '/v1/jobs'],
  })
  if (!canResume(job) || isEstimate(job) || (job.status === 'succeeded' && job.failed_rows === 0 && !others)) return null
  return (
    <>
      <Button variant="default" size="sm" onClick={ask}>
        Resume
      </Button>
      <Modal opened={open} onClose={close} title="Resume in a new job">
        <div className="stack">
          <ContinuedBy job={job}>Another job runs, and costs, these rows again.</ContinuedBy>
          <NativeSelect
            label="Rows to run"
            data-autofocus
            value={rows}
            onChange={(e) => setRows(e.currentTarget.value)}
            data={[
              ...(others ? [{ value: 'rest', label: 'all other rows of the input' }] : []),
              { value: 'missing', label: 'rows not run yet' },
              { value: 'failed', label: 'rows not run yet, and failed rows' },
            ]}
          />
          <Button
            loading={resume.isPending}
            onClick={() => resume.mutate(undefined, { onSuccess: (r) => go(`/jobs/${r.metadata.job_id}`) })}
          >
            {job.continued_by ? 'Start another job' : 'Start the new job'}
          </Button>
        </div>
      </Modal>
    </>
  )
}

function Downloads({ job }: { job: Job }) {
  const [inputs, setInputs] = useState(true)
  const [columns, setColumns] = useState(!!job.keep_columns)
  const [unpack, setUnpack] = useState(false)
  const [meta, setMeta] = useState(false)
  const properties = job.json_schema && 'properties' in job.json_schema
  if (job.rows_done === 0) return null
  const partial = job.status !== 'succeeded'
  const href = (format: string) =>
    apiURL(`/v1/jobs/${job.job_id}/results${query({
      format,
      include_inputs: inputs,
      partial: partial || undefined,
      columns: over(job.status) && columns ? '*' : undefined,
      unpack: over(job.status) && unpack ? true : undefined,
      include: over(job.status) && meta ? 'meta' : undefined,
    })}`)
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

function Failures({ job, other }: { job: Job; other: boolean }) {
  const every = useEvery(10_000)
  const act = useCan().act && !other
  const counts = useGet<ErrorCounts>(recordPath(job, 'errors/counts'), { every: !over(job.status) && every })
  const byCode = useSamples(job, !other)
  const truncated = counts.data?.counts.find((e) => e.code === truncatedCode)
  return (
    <Card
      title="Failures"
      actions={
        !other && <>
          <Link href={`/jobs/${job.job_id}/rows?failed=1`}>View all failed rows</Link>
          {over(job.status) && !job.failure_reason && <Retry job={job} />}
        </>
      }
    >
      <Load query={counts}>
        {(c) => (
          <div className="stack">
            <Table label="Failures by code" heads={['Code', 'Rows', 'First row', 'Example', ...(act ? ['Actions'] : [])]} less={['First row', 'Actions']}>
              {c.counts.map((e) => (
                <tr key={e.code}>
                  <td>
                    {other ? <code>{e.code}</code> : <Link href={`/jobs/${job.job_id}/rows${query({ failed: 1, code: e.code })}`}><code className="unbroken">{e.code}</code></Link>}
                  </td>
                  <td className="number">{number(e.rows)}</td>
                  <td className="number">
                    {other ? number(e.first_row) : (
                      <Link href={`/jobs/${job.job_id}/rows?row=${e.first_row}&open=${e.first_row}`} aria-label={`Row ${e.first_row}`}>
                        {number(e.first_row)}
                      </Link>
                    )}
                  </td>
                  <td className="wide">{e.message}</td>
                  {act && (
                    <td>
                      <Link href={`/jobs/new${query({ like: job.job_id, rows: (byCode[e.code]?.slice(0, testRows).map((f) => f.row) ?? [e.first_row]).join() })}`} aria-label={`Test these rows: ${e.code}`}>
                        Test these rows
                      </Link>
                    </td>
                  )}
                </tr>
              ))}
            </Table>
            {act && truncated && over(job.status) && <RetryLonger job={job} truncated={truncated.rows} />}
            {c.counted < c.failed_rows && (
              <p className="small">
                {number(c.counted)} of {plural(c.failed_rows, 'failure')} are counted.
              </p>
            )}
            <Samples job={job} byCode={byCode} examples={c.counts.map((e) => e.message)} />
          </div>
        )}
      </Load>
    </Card>
  )
}

const samplesOfCode = 3

// useSamples returns the first failed rows of a job, by code.
function useSamples(job: Job, enabled: boolean) {
  const errors = useGet<{ errors: RowError[] }>(`/v1/jobs/${job.job_id}/errors?limit=100&not_run=false`, { fresh: 60_000, enabled })
  return Object.groupBy(errors.data?.errors ?? [], (e) => e.code)
}

// Samples shows the first failed rows of each code, with input and raw answer.
function Samples({ job, byCode, examples }: { job: Job; byCode: ReturnType<typeof useSamples>; examples: string[] }) {
  const samples = Object.values(byCode).flatMap((all) => all!.slice(0, samplesOfCode))
  if (samples.length === 0) return null
  const why = samples.some((e) => !examples.includes(e.message)) // else the table above says why
  return (
    <Table label="Samples of failed rows" heads={['Row', 'Code', 'Input', 'Raw answer', ...(why ? ['Why'] : [])]} less={['Code', ...(why ? ['Raw answer'] : [])]}>
      {samples.map((e) => <Sample key={e.row} job={job} error={e} why={why} />)}
    </Table>
  )
}

function Sample({ job, error: e, why }: { job: Job; error: RowError; why: boolean }) {
  const { data: row } = useGet<Row>(`/v1/jobs/${job.job_id}/rows/${e.row}`, { fresh: Infinity })
  return (
    <tr>
      <td className="number"><Link href={`/jobs/${job.job_id}/rows?row=${e.row}&open=${e.row}`}>{number(e.row)}</Link></td>
      <td><code>{e.code}</code></td>
      <td className="wide" dir="auto"><Long text={row ? text(row.input) : '…'} /></td>
      <td className="wide" dir="auto"><Long text={e.raw_output || none} /></td>
      {why && <td className="wide">{e.message}</td>}
    </tr>
  )
}

function Events({ job }: { job: Job }) {
  const timeline = useTimeline(job)
  const other = useIsOther()(job.account) ? job.account : undefined
  return (
    <Card title="Timeline">
      <Load query={timeline}>
        {({ events, shortened }) => (
          <ol className="timeline">
            {grouped(events).map(({ event, before }, i) => (
              <li key={i}>
                {before.length > 0 && (
                  <details>
                    <summary>{plural(before.length, 'earlier wait')}</summary>
                    <ol className="timeline">{before.map((e, j) => <li key={j}><HistoryEvent event={e} /></li>)}</ol>
                  </details>
                )}
                <HistoryEvent event={event} other={other} />
              </li>
            ))}
            {shortened && <li className="small">The record keeps a limited number of claims and waits; earlier ones may be missing.</li>}
          </ol>
        )}
      </Load>
      {job.set && <p className="small">One of <Link href={compareHref(...job.set)}>{job.set.length} jobs on the same rows</Link></p>}
      {job.input_of && <p className="small">Reads the input of <Link href={jobHref(job.input_of, other)}>{job.input_of}</Link></p>}
      {job.continues && <p className="small">Continues <Link href={jobHref(job.continues, other)}>{job.continues}</Link></p>}
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

function HistoryEvent({ event: e, other }: { event: TimelineEvent; other?: string }) {
  return (
    <>
      <strong>{e.what.replace('_', ' ')}</strong>
      <span className="small">
        {time(e.at)}
        {e.what === 'waits' && (e.until == null ? ', until now' : `, for ${lasting(e.at, e.until)}`)}
      </span>
      {e.what === 'continued' ? <Link href={jobHref(e.detail!, other)}>{e.detail}</Link> : e.detail && e.what !== 'completed' && <span className="small">{e.detail.replace(/, epoch \d+$/, '')}</span>}
    </>
  )
}

/** lasting formats the time between two times. */
function lasting(from: string, until: string): string {
  return duration((Date.parse(until) - Date.parse(from)) / 1000)
}

function Specification({ job }: { job: Job }) {
  return (
    <Card title="Specification">
      <Facts
        facts={[
          ['Id', <code key="id">{job.job_id}</code>, 'long'],
          ['Model', job.model],
          ...(job.function
            ? ([['Function', <Link key="f" href={`/functions/${job.function.name}`}>{job.function.name}, revision {job.function.revision}</Link>]] as [string, JSX.Element][])
            : []),
          ['Priority', String(job.job_priority)],
          ...(job.servers ? [['Servers', job.servers.join('; '), 'long'] as [string, string, 'long']] : []),
          ...(job.key_id ? ([['API key', <Link key="k" href={`/usage${query({ key: job.key_id, account: job.account })}`}><code>{job.key_id}</code></Link>]] as [string, JSX.Element][]) : []),
        ]}
      />
      {job.prompt && <><h3>Prompt</h3><Code label="Prompt" text={job.prompt} /></>}
      {job.system_prompt && <><h3>System prompt</h3><Code label="System prompt" text={job.system_prompt} /></>}
      {job.json_schema && <><h3>Schema</h3><Code label="Schema" text={JSON.stringify(job.json_schema, null, 2)} /></>}
      <h3>Parameters</h3>
      <Code label="Parameters" text={JSON.stringify(job.sampling_params, null, 2)} />
    </Card>
  )
}
