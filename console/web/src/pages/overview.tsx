import { lazy, Suspense, useMemo, useState } from 'react'
import { Button } from '@mantine/core'
import { useMediaQuery } from '@mantine/hooks'
import { useQuery } from '@tanstack/react-query'
import { Link } from 'wouter'
import { apiURL } from '../api/client'
import { useCan, useGet, useMe } from '../api/hooks'
import type { Counts, Engines, ErrorCounts, Job, JobPage, Progress, Quotas, Stats, Usage, Webhook } from '../api/types'
import { plain } from '../lib/fault'
import { compact, none, number, percent, plural, rate, sentence, timeLeft, usd, usdOf, withoutRoutes } from '../lib/format'
import { openai } from '../lib/snippets'
import { useEvery } from '../live'
import { Ago } from '../parts/ago'
import { allAccounts } from '../parts/account'
import { useSpending } from '../parts/budget'
import { Code } from '../parts/copy'
import { Done, FailedLink, isEstimate, JobLink, openStatuses, recordPath, State, Status, stillRunning, titleOf, whyStopped, type ShownStatus } from '../parts/job'
import { Empty, Load } from '../parts/load'
import { nearLimit } from '../parts/meter'
import { Card, Facts, LinkButton, Page } from '../parts/page'
import { outputHref, sinceOf, useServers } from '../parts/servers'
import { isBroken, problem, webhookName } from '../parts/webhook'

const Chart = lazy(() => import('../parts/chart').then((m) => ({ default: m.Chart })))

// The tiles and the lists of ended jobs leave out tests and estimates, as the page Jobs does. Counts has the
// number of tests beside them.
const wholeCounts = '/v1/jobs/counts?kind=whole'

export default function Overview() {
  const can = useCan()
  const { data: counted } = useGet<Counts>(wholeCounts)
  const empty = counted && counted.counted + counted.tests === 0
  return (
    <Page title="Overview" actions={can.act && <LinkButton href="/jobs/new" variant={empty ? 'default' : undefined}>New job</LinkButton>}>
      <Attention empty={empty} />
      {can.act && empty ? (
        <FirstJob />
      ) : (
        <>
          <States />
          <Running />
          <Failing />
          <Finished />
          <Throughput />
        </>
      )}
    </Page>
  )
}

// FirstJob shows an account without jobs how to get one.
function FirstJob() {
  return (
    <>
      <p className="small">You have no jobs yet. A job runs a model over many rows.</p>
      <div className="two">
        <Card title="Run an example job">
          <p>This opens a new job with ten short reviews and a prompt. You can change them before you submit the job.</p>
          <div className="actions"><LinkButton href="/jobs/new?sample">Run an example job</LinkButton></div>
        </Card>
        <Card title="Upload a file">
          <p>CSV, Parquet, JSON Lines or plain text, with one row for each answer that you want.</p>
          <div className="actions"><LinkButton href="/jobs/new?file" variant="default">Upload a file</LinkButton></div>
        </Card>
      </div>
      <Card title="Use an OpenAI client">
        <p>An OpenAI client needs this base URL and an API key of Rowmill. It can then use files and batches. This code lists the models:</p>
        <Code label="Address" text={apiURL('/v1')} />
        <Code label="Code" text={openai()} />
      </Card>
    </>
  )
}

// The open jobs: the list below, and the search for jobs that wait.
const shownJobs = 10
const openJobs = `/v1/list-jobs?limit=${shownJobs}&status=${openStatuses}`
const namedJobs = 3 // how many jobs, or accounts, a trouble names

const longWait = 5 * 60_000 // a job that waits so long, in ms, needs a look

// useBudget returns the cost of this month and its limit, if the account has a limit.
function useBudget() {
  const can = useCan()
  const limit = useGet<Quotas>('/v1/quotas', { enabled: can.administer, fresh: 60_000 }).data?.cost_quota_usd
  const used = useGet<Usage>('/v1/usage', { enabled: limit != null, fresh: 60_000 }).data?.total.cost_usd
  return limit != null && used != null ? { used, limit } : undefined
}

// useOverspent returns the other accounts that have used 80 % of their budget or more, the largest share
// first, for an operator. A budget of 0 is not there to be used.
function useOverspent() {
  const can = useCan()
  const { data: me } = useMe()
  const { accounts, usage, used } = useSpending(can.operate)
  if (!me || !usage.data) return []
  return Object.entries(accounts.data?.cost_quotas_usd ?? {})
    .map(([account, limit]) => ({ account, limit, used: used.get(account) ?? 0 }))
    .filter((b) => b.account !== me.account && b.limit > 0 && b.used >= nearLimit * b.limit)
    .sort((a, b) => b.used / b.limit - a.used / a.limit)
}

// The parts of the node that hold jobs and rows, by their names in the answer of /readyz.
const storages: Record<string, string> = { store: 'records of jobs', objects: 'object storage' }

// useStorageAway returns the parts of the storage that the node cannot use now; undefined before the answer.
function useStorageAway() {
  const { data } = useQuery({
    queryKey: ['/readyz'],
    queryFn: async ({ signal }) => (await fetch(apiURL('/readyz?verbose'), { signal })).text(),
    refetchInterval: useEvery(15_000),
    retry: false,
  })
  const broken = data?.split('\n').filter((line) => line.startsWith('[-] ')).map((line) => line.slice(4))
  return broken && Object.keys(storages).filter((name) => broken.includes(name))
}

// useWaiting returns jobs that wait for long, or that no engine runs, with the reason. A job that waits
// for a place waits for the end of running jobs, so the reason names these. A paused job waits for a user,
// and is only in the list of open jobs.
function useWaiting() {
  const { data } = useGet<JobPage>(openJobs)
  const jobs = data?.jobs.filter((j) => !j.paused && (j.status === 'running' ? whyStopped(j.message) : Date.now() - Date.parse(j.datetime_created) > longWait)) ?? []
  const forPlace = (j: Job) => j.message.startsWith('Waiting for a place')
  const running = useGet<JobPage>(`/v1/list-jobs?limit=${namedJobs}&status=running`, { enabled: jobs.some(forPlace) }).data?.jobs ?? []
  const names = running.map(titleOf).join(', ')
  return jobs.map((j) => ({ job: j, why: forPlace(j) && names ? `${j.message} Running now: ${names}.` : j.message.replace(/^Waiting for an engine that serves (\S+)\.(?= |$)/, 'No engine serves $1.') }))
}

// A Trouble needs a person. warn is true if it is not a failure yet.
type Trouble = { id: string; to: string; state: string; what: string; why: string; since: string | null; warn?: boolean }

// Attention lists troubles of the service that the user can see and may repair, failures first. Without
// troubles and failed jobs it says so, unless the account is empty.
function Attention({ empty }: { empty?: boolean }) {
  const can = useCan()
  const every = useEvery(5_000)
  const engines = useGet<Engines>('/v1/engines', { enabled: can.operate, every })
  const servers = useServers(every)
  const webhooks = useGet<{ webhooks: Webhook[] }>('/v1/webhooks', { enabled: can.administer, fresh: 60_000 })
  const open = useGet<JobPage>(openJobs)
  const { ended, failing } = useEnded()
  const waiting = useWaiting()
  const away = useStorageAway()
  const budget = useBudget()
  const overspent = useOverspent()
  const isUp = (e: Engines['engines'][number]) => e.state !== 'down'
  const engine = (e: Engines['engines'][number]): Trouble => ({
    id: `${e.node} ${e.name}`, to: '/engines', state: isUp(e) ? 'rows wait' : 'engine down', what: `${e.name} on ${e.node}`, why: plain(e.last_error ?? ''), since: e.since, warn: isUp(e),
  })
  const costs = (state: string, more = ''): Trouble[] =>
    budget ? [{ id: 'budget', to: '/quotas', what: 'monthly budget', since: null, state, why: `${usdOf(budget.used, budget.limit)} this month.${more}`, warn: !more }] : []
  const ofAccounts = (all: typeof overspent, warn: boolean): Trouble[] => [
    ...all.slice(0, namedJobs).map((b) => ({
      id: `budget of ${b.account}`, to: `/quotas?account=${allAccounts}`, what: `account ${b.account}`, since: null, warn,
      state: warn ? `budget ${percent(b.used, b.limit)} used` : 'budget used up',
      why: `${usdOf(b.used, b.limit)} this month.${warn ? '' : ' New jobs of the account fail until the next month.'}`,
    })),
    ...(all.length > namedJobs ? [{ id: `budgets ${warn}`, to: `/quotas?account=${allAccounts}`, what: plural(all.length - namedJobs, 'more account'), since: null, warn, state: warn ? 'budget nearly used' : 'budget used up', why: '' }] : []),
  ]
  const troubles: Trouble[] = [
    ...(away ?? []).map((name) => ({ id: name, to: can.operate ? '/nodes' : '/jobs', state: 'storage unreachable', what: storages[name]!, why: `The node of this page cannot reach the ${storages[name]}. Jobs wait until the connection works again.`, since: null })),
    ...(engines.data?.engines ?? []).filter((e) => !isUp(e)).map(engine),
    ...servers.filter((s) => s.error).map((s) => ({
      id: `${s.node_id} ${s.name} ended`, to: outputHref(s), state: 'server failed', what: `${s.name} on ${s.node}`, why: sentence(plain(s.error!).replace(/^the server /, '')), since: sinceOf(s),
    })),
    ...(engines.data?.missing_nodes ?? []).map((n) => ({ id: n, to: '/nodes', state: 'no answer', what: `node ${n}`, why: '', since: null })),
    ...(budget && budget.limit > 0 && budget.used >= budget.limit ? costs('budget used up', ' New jobs fail until the next month.') : []),
    ...ofAccounts(overspent.filter((b) => b.used >= b.limit), false),
    ...(webhooks.data?.webhooks ?? []).filter(isBroken).map((w) => {
      const last = w.recent_deliveries?.last_failure
      return {
        id: w.id, to: `/webhooks/${w.id}`, what: webhookName(w),
        ...(w.disabled ? { state: 'disabled', why: w.disabled_reason ?? '', since: w.disabled_at } : { state: 'webhook failing', why: last ? problem(last) : '', since: last?.at ?? null }),
      }
    }),
    ...(engines.data?.engines ?? []).filter((e) => isUp(e) && e.last_error).map(engine),
    ...waiting.slice(0, namedJobs).map(({ job: j, why }) => ({ id: j.job_id, to: `/jobs/${j.job_id}`, state: 'job waits', what: titleOf(j), why, since: j.status === 'running' ? null : j.datetime_created, warn: true })),
    ...(waiting.length > namedJobs
      ? [{ id: 'waiting', to: `/jobs?status=${openStatuses}`, state: 'job waits', what: `${plural(waiting.length - namedJobs, 'more job')}`, why: '', since: null, warn: true }]
      : []),
    ...(budget && budget.used >= nearLimit * budget.limit && budget.used < budget.limit ? costs(`budget ${percent(budget.used, budget.limit)} used`) : []),
    ...ofAccounts(overspent.filter((b) => b.used < b.limit), true),
  ]
  if (troubles.length === 0) {
    const known = open.data && ended.data && away && (!can.operate || engines.data) && (!can.administer || !webhooks.isPending)
    return known && failing.length === 0 && empty === false && <p><Status is="succeeded">Nothing needs attention.</Status></p>
  }
  return (
    <Card title="Needs attention">
      <ul className="list">
        {troubles.map((t) => (
          <li key={t.id}>
            <span className="job"><Link href={t.to}>{t.what}</Link></span>
            <Status is={t.warn ? 'starting' : 'failed'}>{t.state}</Status>
            <span className="small grow" title={t.why}>{t.why}</span>
            {t.since && <span className="small age"><Ago t={t.since} /></span>}
          </li>
        ))}
      </ul>
    </Card>
  )
}

// Tiles of the overview: jobs that wait share one. A rare tile is shown only if it has jobs.
const tiles: { name: string; is: ShownStatus; of: ShownStatus[]; rare?: boolean }[] = [
  { name: 'waiting', is: 'starting', of: ['pending', 'submitted', 'starting'] },
  { name: 'paused', is: 'pending', of: ['paused'], rare: true },
  ...(['running', 'succeeded', 'failed'] as const).map((s) => ({ name: s, is: s, of: [s] })),
]

function States() {
  const can = useCan()
  const counts = useGet<Counts>(wholeCounts)
  const engines = useGet<Engines>('/v1/engines', { enabled: can.operate }).data?.engines
  const cost = useGet<Usage>('/v1/usage', { fresh: 60_000 }).data?.total.cost_usd
  return (
    <section aria-label="In numbers">
      <Load query={counts}>
        {({ counts, counted, tests, of_all }) => (
          <>
            <ul className="states">
              {tiles.map((t) => {
                const n = t.of.reduce((n, s) => n + (counts[s] ?? 0), 0) // an older node does not count paused jobs
                if (t.rare && n === 0) return null
                return (
                  <li key={t.name}>
                    <Link href={`/jobs?status=${t.of.join(',')}`}>
                      <strong>{number(n)}</strong>
                      <Status is={n ? t.is : 'pending'}>{t.name}</Status>
                    </Link>
                  </li>
                )
              })}
              {engines && engines.length > 0 && <li><Link href="/engines"><strong>{number(engines.filter((e) => e.state === 'up').length)} of {number(engines.length)}</strong><span className="small">{engines.length === 1 ? 'engine up' : 'engines up'}</span></Link></li>}
              {cost != null && <li><Link href="/usage"><strong>{cost > 0 && cost < 0.01 ? '< $0.01' : usd(cost)}</strong><span className="small">this month</span></Link></li>}
            </ul>
            {!of_all && <p className="small">The page counts only the newest {number(counted + tests)} jobs. There are more.</p>}
          </>
        )}
      </Load>
    </section>
  )
}

// Running lists the open jobs, without the jobs that Needs attention names.
function Running() {
  const jobs = useGet<JobPage>(openJobs)
  const said = useWaiting().slice(0, namedJobs).map((w) => w.job.job_id)
  if (jobs.data?.jobs.length === 0) return <p className="small">No job runs or waits.</p>
  if (jobs.data?.jobs.every((j) => said.includes(j.job_id))) return null
  return (
    <Card title="Running and waiting" actions={<Link href={`/jobs?status=${openStatuses}`}>View all</Link>}>
      <Load query={jobs}>
        {({ jobs }) => <ul className="list">{jobs.filter((j) => !said.includes(j.job_id)).map((j) => <RunningJob key={j.job_id} job={j} />)}</ul>}
      </Load>
    </Card>
  )
}

function RunningJob({ job }: { job: Job }) {
  const running = job.status === 'running'
  const { data: p } = useGet<Progress>(`/v1/jobs/${job.job_id}/progress`, { enabled: running, every: useEvery(3_000) })
  return (
    <li>
      <JobLink job={job} brief />
      <State job={job} pausing={stillRunning(job, p) > 0} />
      {!isEstimate(job) && <Done job={job} />}
      <span className="small grow">
        {running && !isEstimate(job) && !whyStopped(job.message)
          ? `${rate(p?.rows_per_second, 'rows/s')} · ${p?.eta_seconds == null ? 'no estimate yet' : `${timeLeft(p.eta_seconds)} left`}`
          : job.paused ? `${number(job.rows_done)} of ${job.num_rows == null ? none : plural(job.num_rows, 'row')}` : job.message}
      </span>
    </li>
  )
}

const shownFailures = 5
const shownFinished = 3

function useEnded() {
  const ended = useGet<JobPage>('/v1/list-jobs?limit=50&status=failed,succeeded&kind=whole')
  const last = useMemo(() => ended.data?.jobs.toSorted((a, b) => Date.parse(b.datetime_completed!) - Date.parse(a.datetime_completed!)) ?? [], [ended.data])
  return { ended, last, failing: last.filter(isFailing) }
}

// Failing lists failed jobs, and succeeded jobs with failed rows, that no later job continues.
function Failing() {
  const { ended, failing } = useEnded()
  if (ended.data && failing.length === 0) return null
  return (
    <Card title="Recent failures" actions={<Link href="/jobs?status=failed">All failed jobs</Link>}>
      <Load query={ended}>
        {() => <ul className="list ended failing">{failing.slice(0, shownFailures).map((j) => <FailingJob key={j.job_id} job={j} />)}</ul>}
      </Load>
    </Card>
  )
}

// FailingJob says why a job or its rows failed.
function FailingJob({ job }: { job: Job }) {
  const { data } = useGet<ErrorCounts>(recordPath(job, 'errors/counts'), { enabled: job.failed_rows > 0, fresh: 60_000 })
  const failure = job.failure_reason
  const why = failure && failure.code !== 'too_many_failed_rows' ? withoutRoutes(failure.message) : sentence(data?.counts[0]?.message ?? '')
  return (
    <li>
      <JobLink job={job} brief />
      <Status is={failure ? job.status : 'starting'}>{failure?.code.replaceAll('_', ' ') ?? 'some rows failed'}</Status>
      <span className="small grow why" title={why}>{job.failed_rows > 0 && <><FailedLink job={job} of={job.num_rows} />{why && ': '}</>}{why}</span>
      <span className="small age">{job.status === 'succeeded' && <><Download job={job} /> </>}<Ago t={job.datetime_completed} /></span>
    </li>
  )
}

const Download = ({ job }: { job: Job }) => (
  <a href={apiURL(`/v1/jobs/${job.job_id}/results?format=csv&include_inputs=true`)} download aria-label={`Download CSV: ${titleOf(job)}`}><span className="less">Download </span>CSV</a>
)

// Finished lists the last jobs whose rows all succeeded, with their results.
function Finished() {
  const finished = useEnded().last.filter((j) => j.status === 'succeeded' && !isFailing(j))
  if (finished.length === 0) return null
  return (
    <Card title="Recently finished" actions={<Link href="/jobs?status=succeeded">All succeeded</Link>}>
      <ul className="list ended finished">
        {finished.slice(0, shownFinished).map((j) => (
          <li key={j.job_id}>
            <JobLink job={j} brief />
            <Download job={j} />
            <span className="small grow less">{plural(j.rows_done, 'row')}, {usd(j.job_cost)}</span>
            <span className="small less"><Ago t={j.datetime_completed} /></span>
          </li>
        ))}
      </ul>
    </Card>
  )
}

const isFailing = (j: Job) => !j.continued_by && (j.status === 'failed' || j.failed_rows > 0)

function Throughput() {
  const stats = useGet<Stats>('/v1/stats?range=3600', { every: useEvery(5_000) })
  return (
    <Card title="Last hour">
      <Load query={stats}>{(s) => (s.points.length < 2 ? <Empty>The chart starts in a few seconds: the node measures every {s.step_seconds} s.</Empty> : <Charts stats={s} />)}</Load>
    </Card>
  )
}

function Charts({ stats: { points, step_seconds, nodes, missing_nodes } }: { stats: Stats }) {
  const { times, rows, tokens, last } = useMemo(() => {
    const per = (n: number) => n / step_seconds
    const failed = { name: 'failed rows/s', values: points.map((p) => per(p.failed_rows)), color: '--bad' }
    return {
      times: points.map((p) => Date.parse(p.at) / 1000),
      rows: [
        { name: 'rows/s', values: points.map((p) => per(p.rows - p.failed_rows)), color: '--busy' },
        ...(failed.values.some((n) => n > 0) ? [failed] : []),
      ],
      tokens: [
        { name: 'tokens in/s', values: points.map((p) => per(p.input_tokens)), color: '--good' },
        { name: 'tokens out/s', values: points.map((p) => per(p.output_tokens)), color: '--wait' },
      ],
      last: points.at(-1)!,
    }
  }, [points, step_seconds])
  const phone = useMediaQuery('(max-width: 36em)')
  const [wanted, want] = useState(false)
  const sum = (f: (p: (typeof points)[0]) => number) => points.reduce((n, p) => n + f(p), 0)
  return (
    <Suspense fallback={<div className="chart" />}>
      <Facts
        facts={[
          ['Rows', number(sum((p) => p.rows))],
          ['Tokens', compact(sum((p) => p.input_tokens + p.output_tokens))],
          ['Rows in flight now', `${number(last.in_flight)} (limit ${number(last.window)})`],
          ...(nodes.length > 1 || missing_nodes.length > 0 ? [['Nodes', `${number(nodes.length)} of ${number(nodes.length + missing_nodes.length)}`] as [string, string]] : []),
        ]}
      />
      {phone && !wanted ? <Button className="charts" size="xs" variant="default" onClick={() => want(true)}>Show charts</Button> : (
        <div className="two charts">
          <div><p className="small">Rows a second</p><Chart label="Rows a second over the last hour" times={times} lines={rows} /></div>
          <div><p className="small">Tokens a second</p><Chart label="Tokens a second over the last hour" times={times} lines={tokens} /></div>
        </div>
      )}
    </Suspense>
  )
}
