import { useEffect, useMemo, useState } from 'react'
import { Button, Switch, TextInput } from '@mantine/core'
import { useSearchParams } from 'wouter'
import { usePages } from '../api/hooks'
import type { Job, Preview, PropertyCounts } from '../api/types'
import { number, percent, plural } from '../lib/format'
import { over } from './job'
import { Empty, Load } from './load'
import { layoutOf, Line, RowList, rowHeight, withIDs, type Columns } from './rowlist'

const pageSize = 100

// The parameters of a filter, with the same names in the address of the page and in the API.
const parameters = ['text', 'where', 'finish_reason']

// rowFilter returns the filter in an address as the query of a request; empty without a filter.
export function rowFilter(search: URLSearchParams) {
  const query = new URLSearchParams()
  for (const name of parameters) search.getAll(name).forEach((value) => value && query.append(name, value))
  return query.toString()
}

// useChange returns a function that changes the address of the page.
export function useChange() {
  const [, setSearch] = useSearchParams()
  return (change: (s: URLSearchParams) => void) =>
    setSearch((s) => {
      change(s)
      return s
    }, { replace: true })
}

export function Search() {
  const [search] = useSearchParams()
  const change = useChange()
  const wanted = search.get('text') ?? ''
  const [typed, setTyped] = useState(wanted)
  useEffect(() => setTyped(wanted), [wanted])
  return (
    <form
      onSubmit={(e) => {
        e.preventDefault()
        change((s) => (typed ? s.set('text', typed) : s.delete('text')))
      }}
    >
      <TextInput label="Search in inputs and answers" type="search" value={typed} onChange={(e) => setTyped(e.currentTarget.value)} />
      <Button type="submit" variant="default">Search</Button>
    </form>
  )
}

export function PropertiesAsColumns() {
  const [search] = useSearchParams()
  const change = useChange()
  return (
    <Switch
      label="Properties as columns"
      checked={search.get('view') !== 'text'}
      onChange={(e) => {
        const { checked } = e.currentTarget
        change((s) => (checked ? s.delete('view') : s.set('view', 'text')))
      }}
    />
  )
}

// useFilter returns the values that the filter in the address of the page has, and a function that adds or removes one.
function useFilter() {
  const [search] = useSearchParams()
  const change = useChange()
  const toggle = (name: string, value: string) =>
    change((s) => (s.has(name, value) ? s.delete(name, value) : name === 'where' ? s.append(name, value) : s.set(name, value)))
  return { search, change, toggle, chosen: ['where', 'finish_reason'].flatMap((name) => search.getAll(name).map((value) => ({ name, value }))) }
}

// Chosen shows the filter, with buttons that remove its parts.
export function Chosen() {
  const { search, change, toggle, chosen } = useFilter()
  if (chosen.length === 0 && !search.get('text')) return null
  return (
    <p className="actions" role="group" aria-label="Filter">
      {chosen.map(({ name, value }) => (
        <Button key={name + value} size="xs" variant="light" onClick={() => toggle(name, value)} aria-label={`Remove ${value.replace(/^=/, '')}`}>
          {value.replace(/^=/, '')} ×
        </Button>
      ))}
      <Button size="xs" variant="subtle" onClick={() => change((s) => parameters.forEach((name) => s.delete(name)))}>Remove the filter</Button>
    </p>
  )
}

// Values shows the most frequent values of each property as buttons that change the filter. Numbers with
// many values are a histogram.
export function Values({ job, counts }: { job: Job; counts?: PropertyCounts }) {
  const { search, toggle } = useFilter()
  const all = counts?.properties.filter((p) => p.values.length > 0 || p.bins.length > 0) ?? []
  const groups = all.filter((p) => !isDiverse(p))
  const others = all.filter(isDiverse)
  const reasons = counts && counts.finish_reasons.length > 1 ? counts.finish_reasons : []
  if (!counts || groups.length + reasons.length === 0) return null
  return (
    <details className="card" open>
      <summary>
        <h2>Values in all answers</h2> <span className="small">{others.length > 0 && `Nearly all values differ: ${others.map((p) => p.property || 'answer').join(', ')}.`}</span>
      </summary>
      <div className="values">
        {groups.map((p) => (
          <fieldset key={p.property}>
            <legend>{p.property || 'Answer'}</legend>
            <Frequent of={p} isChosen={(where) => search.has('where', where)} toggle={(where) => toggle('where', where)} />
            {p.bins.map((b) => (
              <Value key={b.from} name={`${bound(b.from)} to ${bound(b.to)}`} rows={b.rows} all={p.rows} />
            ))}
          </fieldset>
        ))}
        {reasons.length > 0 && (
          <fieldset>
            <legend>Finish reason</legend>
            {reasons.map((v) => (
              <Value key={v.value} name={v.value} rows={v.rows} all={counts.counted} pressed={search.has('finish_reason', v.value)} press={() => toggle('finish_reason', v.value)} />
            ))}
          </fieldset>
        )}
      </div>
      {counts.counted < job.rows_done && <p className="small">Counts of the first {plural(counts.counted, 'row')}.</p>}
    </details>
  )
}

const shownValues = 10

// isDiverse reports whether a property has many values, and each of them in few rows, as free texts have.
const isDiverse = ({ values, bins, rows }: PropertyCounts['properties'][number]) =>
  bins.length === 0 && values.length > shownValues && values.every((v) => v.rows <= Math.max(1, rows * 0.02))

type FrequentProps = { of: PropertyCounts['properties'][number]; isChosen: (where: string) => boolean; toggle: (where: string) => void }

// Frequent shows the values of a property: numbers in their order, others by their frequency. The rest of
// a long list is behind a button.
function Frequent({ of: p, isChosen, toggle }: FrequentProps) {
  const [all, showAll] = useState(p.values.length <= shownValues + 2)
  const values = p.values.every((v) => v.value && !isNaN(Number(v.value))) ? p.values.toSorted((a, b) => Number(a.value) - Number(b.value)) : p.values
  const others = p.rows - p.values.reduce((sum, v) => sum + v.rows, 0)
  return (
    <>
      {(all ? values : values.slice(0, shownValues)).map((v) => {
        const where = `${p.property}=${v.value}`
        return <Value key={v.value} name={v.value} rows={v.rows} all={p.rows} pressed={isChosen(where)} press={() => toggle(where)} />
      })}
      {!all && <button type="button" className="link small" onClick={() => showAll(true)}>{values.length - shownValues} more values</button>}
      {all && p.values.length > 0 && others > 0 && <Value name="(other values)" rows={others} all={p.rows} />}
    </>
  )
}

const bound = (n: number) => n.toLocaleString('en', { maximumSignificantDigits: 4 })

type ValueProps = { name: string; rows: number; all: number; pressed?: boolean; press?: () => void }

// Value shows a value with its share of the rows. It is a button if rows can be filtered by it.
function Value({ name, rows, all, pressed, press }: ValueProps) {
  const inside = (
    <>
      <span className="cell" dir="auto">{name || '(empty)'}</span>
      <span className="n">{number(rows)}</span>
      <meter value={rows} max={all} aria-label={percent(rows, all)} />
    </>
  )
  return press ? <button type="button" className="value" aria-pressed={pressed} onClick={press}>{inside}</button> : <div className="value">{inside}</div>
}

type FoundRowsProps = { job: Job; filter: string; columns: Columns; show: (row: number) => void; listed: (rows?: number[]) => void }

// FoundRows lists the rows that a filter selects. A request reads a limited number of rows, so it
// continues until a page is full.
export function FoundRows({ job, filter, columns: chosen, show, listed }: FoundRowsProps) {
  const [wanted, setWanted] = useState(pageSize)
  const pages = usePages<Preview>(`/v1/jobs/${job.job_id}/preview?${filter}&limit=${pageSize}`, (p) => (p.next_offset === null ? null : String(p.next_offset)), 'offset')
  const rows = useMemo(() => pages.data?.pages.flatMap((p) => p.rows) ?? [], [pages.data])
  useEffect(() => {
    listed(rows.map((r) => r.row))
    return () => listed(undefined)
  }, [rows])
  useEffect(() => {
    if (pages.hasNextPage && !pages.isFetching && !pages.error && rows.length < wanted) void pages.fetchNextPage()
  }, [pages.hasNextPage, pages.isFetching, pages.error, rows.length, wanted])
  const read = pages.data?.pages.at(-1)?.next_offset
  const columns = withIDs(chosen, rows)
  return (
    <Load query={pages}>
      {() => (
        <>
          <p role="status">
            {read != null ? `Showing ${plural(rows.length, 'match', 'matches')} from the first ${number(read)} of ${plural(job.num_rows ?? 0, 'row')}${pages.isFetching ? '; still searching' : ''}.` : `${plural(rows.length, 'row')} found.`}
          </p>
          {rows.length > 0 ? (
            <RowList layout={layoutOf(columns)} height={rows.length * rowHeight}>
              {rows.map((row, i) => (
                <Line key={row.row} job={job} n={row.row} at={i * rowHeight} position={i + 1} size={rows.length} row={row} columns={columns} show={show} />
              ))}
            </RowList>
          ) : (
            !pages.isFetching && !pages.hasNextPage && <Empty>{over(job.status) ? 'No row matches the filter.' : 'No finished row matches the filter yet.'}</Empty>
          )}
          {pages.hasNextPage && (
            <Button variant="default" loading={pages.isFetching} onClick={() => setWanted(rows.length + pageSize)}>
              Search more rows
            </Button>
          )}
        </>
      )}
    </Load>
  )
}
