import { useEffect, useState } from 'react'
import { Button, NativeSelect, TextInput } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { useSearchParams } from 'wouter'
import { query } from '../api/client'
import { useCan, useGet, usePages } from '../api/hooks'
import type { Counts, Job, JobPage, Model } from '../api/types'
import { compact, duration, number, plural, time, usd } from '../lib/format'
import { useEvery } from '../live'
import { AccountSelect, allAccounts, useIsOther } from '../parts/account'
import { Ago } from '../parts/ago'
import { Done, FailedLink, isEstimate, JobLink, over, secondsOf, State, Status, statuses, titleOf, whyStopped, type ShownStatus } from '../parts/job'
import { Empty, Load } from '../parts/load'
import { LinkButton, More, Page, Table } from '../parts/page'
import { BulkCancel } from '../parts/bulkcancel'
import { compareJobs } from '../parts/comparewith'

const since: Record<string, string> = { '': 'any time', '1h': 'the last hour', '24h': 'the last day', '7d': 'the last 7 days', '30d': 'the last 30 days' }

// start is rounded down to the minute, so that the query does not change at each
// render.
function start(range: string) {
  const hours = { '1h': 1, '24h': 24, '7d': 168, '30d': 720 }[range]
  return hours ? new Date(Math.floor(Date.now() / 60_000 - hours * 60) * 60_000).toISOString().replace('.000', '') : ''
}

// filterStates are the states to filter by, with their statuses. Of the others, a state has a chip only
// if a job has it.
const filterStates: [string, ShownStatus[]][] = [['running', ['running']], ['waiting', ['starting', 'submitted', 'pending']], ['paused', ['paused']], ['failed', ['failed']], ['succeeded', ['succeeded']], ['cancelled', ['cancelled']]]
const alwaysShown = ['running', 'waiting', 'failed', 'succeeded']

export default function Jobs() {
  const can = useCan()
  const [search, setSearch] = useSearchParams()
  const [marked, setMarked] = useState<ReadonlyMap<string, Job>>(new Map())
  const filter = {
    status: search.get('status') ?? '',
    model: search.get('model') ?? '',
    q: search.get('q') ?? '',
    failed_rows: search.get('failed_rows') ?? '',
    since: start(search.get('since') ?? ''),
  }
  const kind = search.get('kind') || (filter.q ? '' : 'whole') // a search finds all jobs
  const set = (name: string, value: string) =>
    setSearch((s) => {
      if (value) s.set(name, value)
      else s.delete(name)
      return s
    }, { replace: true })

  const account = search.get('account') ?? ''
  const own = !useIsOther()(account)
  const change = can.act && own
  const counts = useGet<Counts>(`/v1/jobs/counts${query({ account, kind })}`, { every: useEvery(15_000) })
  const every = useEvery(5_000)
  const pages = usePages<JobPage>(`/v1/list-jobs${query({ limit: 50, ...filter, kind, account })}`, (p) => p.next_cursor, 'cursor', account ? every : false) // there are no events of other accounts
  const jobs = pages.data?.pages.flatMap((p) => p.jobs) ?? []
  const filtered = Object.values(filter).some(Boolean) || search.has('kind')
  const tests = kind === 'whole' ? counts.data?.tests : 0
  // cancellable is true if a filter is set and may match jobs that can be cancelled.
  const cancellable = change && filtered && (jobs.some((j) => !over(j.status)) || pages.hasNextPage) && (!filter.status || filter.status.split(',').some((s) => !over(s)))
  const clear = () => setMarked(new Map())
  const partly = pages.data?.pages.some((p) => p.scanned_all === false)

  return (
    <Page title="Jobs" actions={can.act && <LinkButton href="/jobs/new">New job</LinkButton>}>
      <Filters search={search} set={set} counts={counts.data} />
      <Load query={pages}>
        {() =>
          jobs.length === 0 ? (
            <Empty
              next={
                filtered ? (
                  <Button variant="default" onClick={() => setSearch(account ? { account } : {}, { replace: true })}>Show all jobs</Button>
                ) : (
                  change && <LinkButton href="/jobs/new">Submit your first job</LinkButton>
                )
              }
            >
              {filtered ? `No job matches${partly ? ' among the jobs that were read' : ''}.` : tests ? 'There are only tests and estimates yet.' : 'There are no jobs yet.'}
            </Empty>
          ) : (
            <>
              <JobTable jobs={jobs} marked={marked} mark={own ? setMarked : undefined} accounts={account === allAccounts} />
              <More of={pages} count={shown(jobs.length, pages.hasNextPage, filter, counts.data, partly)} />
            </>
          )
        }
      </Load>
      {(marked.size > 0 || cancellable) && (
        <div className="foot actions">
          {marked.size > 0 && (
            <>
              <span role="status">{number(marked.size)} selected</span>
              <Button size="xs" variant="subtle" onClick={clear}>Clear</Button>
              {change && marked.size === 1 && <LinkButton href={`/jobs/new?like=${[...marked.keys()][0]}`} size="xs" variant="default">Run again with changes</LinkButton>}
              <Compare jobs={[...marked.values()]} />
            </>
          )}
          {change && <BulkCancel marked={jobs.filter((j) => marked.has(j.job_id) && !over(j.status)).map((j) => j.job_id)} filter={{ ...filter, kind }} filtered={cancellable} done={clear} />}
        </div>
      )}
    </Page>
  )
}

// Compare leads to the comparison of jobs, or says why they cannot be compared.
function Compare({ jobs }: { jobs: Job[] }) {
  const rows = new Set(jobs.map((j) => j.input_rows ?? j.num_rows))
  const why =
    jobs.length < 2 || jobs.length > 4 ? 'Select two to four jobs with the same input to compare them.'
    : rows.size > 1 ? 'These jobs cannot be compared: their inputs have different numbers of rows.'
    : ''
  if (why) return <span className="small">{why}</span>
  return <LinkButton href={compareJobs(...jobs)} size="xs" variant="default">Compare {number(jobs.length)} jobs</LinkButton>
}

function shown(n: number, more: boolean, filter: Record<string, string>, counts: Counts | undefined, partly: boolean | undefined) {
  const some = partly ? ' A page reads at most 10,000 jobs; “Show more” reads older jobs.' : ''
  if (!more) return `All ${number(n)} ${n === 1 ? 'job' : 'jobs'} shown.${some}`
  if (!counts || filter.q || filter.model || filter.since || filter.failed_rows) return `${number(n)} shown; there are more.${some}`
  const wanted = filter.status ? filter.status.split(',') : statuses
  const all = wanted.reduce((sum, s) => sum + (counts.counts[s as ShownStatus] ?? 0), 0)
  return `${number(n)} of ${counts.of_all ? '' : 'more than '}${number(all)} shown.${some}`
}

function Filters({ search, set, counts }: { search: URLSearchParams; set: (name: string, value: string) => void; counts?: Counts }) {
  const [q, setQ] = useState(search.get('q') ?? '')
  const [typed] = useDebouncedValue(q, 300)
  const models = useGet<{ data: Model[] }>('/v1/models', { fresh: 60_000 })
  const [open, setOpen] = useState(['account', 'model', 'since'].some((name) => search.get(name))) // on a phone
  const wanted = (search.get('status') ?? '').split(',').filter(Boolean)
  const onlyFailed = search.get('failed_rows') === 'true'
  const narrowed = ['q', 'model', 'since'].some((name) => search.get(name)) // the counts are of all jobs
  useEffect(() => {
    if (typed !== (search.get('q') ?? '')) set('q', typed)
  }, [typed]) // the address wins if it changes for another reason
  const shows = (of: string[]) => wanted.some((w) => of.includes(w))
  const toggle = (of: string[]) => set('status', (shows(of) ? wanted.filter((w) => !of.includes(w)) : [...wanted, ...of]).join(','))
  const count = (n: number | undefined) => <span className="count">{narrowed ? '' : compact(n ?? 0)}</span>
  return (
    <search className="filters">
      <div className="chips" role="group" aria-label="States">
        {filterStates.map(([name, of]) => {
          const all = of.reduce((sum, s) => sum + (counts?.counts[s] ?? 0), 0)
          return (alwaysShown.includes(name) || all > 0 || shows(of)) && (
            <button key={name} type="button" aria-pressed={shows(of)} onClick={() => toggle(of)}>
              <Status is={of[0]!}>{name}</Status> {counts && count(all)}
            </button>
          )
        })}
        {(!!counts?.tests || search.has('kind')) && (
          <button type="button" aria-pressed={search.has('kind')} onClick={() => set('kind', search.has('kind') ? '' : 'tests')}>
            <span className="tests">tests and estimates</span> {counts && count(counts.tests)}
          </button>
        )}
        {(!!counts?.with_failed_rows || onlyFailed) && (
          <button type="button" aria-pressed={onlyFailed} onClick={() => set('failed_rows', onlyFailed ? '' : 'true')}>
            <span className="failures">with failed rows</span> {counts && count(counts.with_failed_rows)}
          </button>
        )}
      </div>
      <div className="fields" data-open={open || undefined}>
        <AccountSelect value={search.get('account') ?? ''} choose={(account) => set('account', account)} />
        <TextInput label="Search" placeholder="name, id or description" type="search" value={q} onChange={(e) => setQ(e.currentTarget.value)} />
        <button type="button" className="link" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? 'Fewer filters' : 'More filters'}</button>
        <NativeSelect
          label="Model"
          value={search.get('model') ?? ''}
          onChange={(e) => set('model', e.currentTarget.value)}
          data={[{ value: '', label: 'any' }, ...new Set([...(search.get('model') ? [search.get('model')!] : []), ...(models.data?.data.map((m) => m.id) ?? [])])]}
        />
        <NativeSelect
          label="Created in"
          value={search.get('since') ?? ''}
          onChange={(e) => set('since', e.currentTarget.value)}
          data={Object.entries(since).map(([value, label]) => ({ value, label }))}
        />
      </div>
    </search>
  )
}

// ran is false for a job that ended before its first row.
const ran = (j: Job) => !over(j.status) || j.rows_done > 0

// rowsOf says how many rows are done, and how many succeeded if an ended job has failed rows.
const rowsOf = (j: Job) => over(j.status) && j.failed_rows > 0 ? `${number(j.rows_done - j.failed_rows)} of ${number(j.num_rows)} succeeded` : `${number(j.rows_done)} of ${number(j.num_rows)}`

const costOf = (j: Job) => (isEstimate(j) && j.cost_estimate != null ? `≈ ${usd(j.cost_estimate)}` : usd(j.job_cost))

function JobTable({ jobs, marked, mark, accounts }: { jobs: Job[]; marked: ReadonlyMap<string, Job>; mark?: (m: ReadonlyMap<string, Job>) => void; accounts: boolean }) {
  const canMark = (j: Job) => !(isEstimate(j) && over(j.status))
  const markable = jobs.filter(canMark)
  const toggle = (j: Job) => {
    const next = new Map(marked)
    if (!next.delete(j.job_id)) next.set(j.job_id, j)
    mark?.(next)
  }
  const all = markable.length > 0 && markable.every((j) => marked.has(j.job_id))
  const box = mark && (
    <input
      type="checkbox"
      aria-label="Mark all shown jobs"
      disabled={markable.length === 0}
      checked={all}
      onChange={() => mark(new Map(all ? [] : markable.map((j) => [j.job_id, j])))}
    />
  )
  return (
    <Table label="Jobs" heads={[...(box ? [box] : []), ...(accounts ? ['Account'] : []), 'Job', 'State', 'Progress', 'Model', 'Time', 'Cost', 'Created']} less={['', 'Model', 'Time', 'Cost', 'Created']}>
      {jobs.map((j) => (
        <tr key={j.job_id}>
          {mark && (
            <td>
              <input
                type="checkbox"
                aria-label={`Mark ${titleOf(j)}`}
                disabled={!canMark(j)}
                checked={marked.has(j.job_id)}
                onChange={() => toggle(j)}
              />
            </td>
          )}
          {accounts && <td>{j.account}</td>}
          <td>
            <JobLink job={j} />
            <span className="reason narrow-only"><Ago t={j.datetime_created} /></span>
          </td>
          <td>
            <State job={j} />
            <span className="reason">{j.failure_reason?.code.replaceAll('_', ' ') ?? (over(j.status) || j.paused ? '' : whyStopped(j.message)?.replace(/\.$/, ''))}</span>
          </td>
          <td>
            {!isEstimate(j) && ran(j) && <Done job={j} />}
            <span className="rowcount">
              {isEstimate(j) || !ran(j) ? <>{!ran(j) && 'not run, '}{j.num_rows == null ? 'not counted' : plural(j.num_rows, 'row')}</> : j.num_rows == null ? 'not counted' : rowsOf(j)}
              {j.failed_rows > 0 && <> <FailedLink job={j} /></>}
            </span>
            {(isEstimate(j) || j.limit) && <span className="reason narrow-only">{costOf(j)}</span>}
          </td>
          <td><span className="brief" title={j.model}>{j.model}</span></td>
          <td className="number">{duration(secondsOf(j))}</td>
          <td className="number">{costOf(j)}</td>
          <td className="number" title={time(j.datetime_created)}>
            <Ago t={j.datetime_created} />
          </td>
        </tr>
      ))}
    </Table>
  )
}
