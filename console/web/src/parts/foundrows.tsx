import { useEffect, useMemo, useState } from 'react'
import { Button, Switch, TextInput } from '@mantine/core'
import { useSearchParams } from 'wouter'
import { usePages } from '../api/hooks'
import type { Job, Preview, PropertyCounts } from '../api/types'
import { number, percent } from '../lib/format'
import { Empty, Load } from './load'
import { Card } from './page'
import { Line, RowList, rowHeight, withIDs, type Columns } from './rowlist'

const pageSize = 100

// The parameters of a filter, with the same names in the address of the page and in the API.
const parameters = ['text', 'where', 'finish_reason']

// rowFilter returns the filter in an address as the query of a request; empty without a filter.
export function rowFilter(search: URLSearchParams) {
  const query = new URLSearchParams()
  for (const name of parameters) search.getAll(name).forEach((value) => value && query.append(name, value))
  return query.toString()
}

// RowFilters shows the filter of the list, and the values of the answers to choose from.
export function RowFilters({ job, columns }: { job: Job; columns: Columns }) {
  const [search, setSearch] = useSearchParams()
  const [typed, setTyped] = useState(search.get('text') ?? '')
  useEffect(() => setTyped(search.get('text') ?? ''), [search.get('text')])
  const change = (f: (s: URLSearchParams) => void) =>
    setSearch((s) => {
      f(s)
      return s
    }, { replace: true })
  const chosen = ['where', 'finish_reason'].flatMap((name) => search.getAll(name).map((value) => ({ name, value })))
  const toggle = (name: string, value: string) =>
    change((s) => (s.has(name, value) ? s.delete(name, value) : name === 'where' ? s.append(name, value) : s.set(name, value)))
  return (
    <>
      <form
        className="fields"
        onSubmit={(e) => {
          e.preventDefault()
          change((s) => (typed ? s.set('text', typed) : s.delete('text')))
        }}
      >
        <TextInput label="Search in inputs and answers" type="search" value={typed} onChange={(e) => setTyped(e.currentTarget.value)} />
        <Button type="submit" variant="default">Search</Button>
        {columns.counts?.properties.some((p) => p.property !== '') && (
          <Switch
            label="Properties as columns"
            checked={search.get('view') !== 'text'}
            onChange={(e) => (e.currentTarget.checked ? change((s) => s.delete('view')) : change((s) => s.set('view', 'text')))}
          />
        )}
      </form>
      {columns.counts && <Values counts={columns.counts} total={job.rows_done} has={(name, value) => search.has(name, value)} toggle={toggle} />}
      {(chosen.length > 0 || search.get('text')) && (
        <p className="actions" role="group" aria-label="Filter">
          {chosen.map(({ name, value }) => (
            <Button key={name + value} size="xs" variant="light" onClick={() => toggle(name, value)} aria-label={`Remove ${value.replace(/^=/, '')}`}>
              {value.replace(/^=/, '')} ×
            </Button>
          ))}
          <Button size="xs" variant="subtle" onClick={() => change((s) => parameters.forEach((name) => s.delete(name)))}>Remove the filter</Button>
        </p>
      )}
    </>
  )
}

type ValuesProps = { counts: PropertyCounts; total: number; has: (name: string, value: string) => boolean; toggle: (name: string, value: string) => void }

// Values shows the most frequent values of each property as buttons, and numbers as a histogram.
function Values({ counts, total, has, toggle }: ValuesProps) {
  const groups = counts.properties.filter((p) => p.values.length > 0 || p.bins.length > 0)
  const reasons = counts.finish_reasons.length > 1 ? counts.finish_reasons : []
  if (groups.length === 0 && reasons.length === 0) return null
  return (
    <Card title="Values">
      <div className="values">
        {groups.map((p) => (
          <fieldset key={p.property}>
            <legend>{p.property || 'Answer'}</legend>
            {p.values.map((v) => (
              <Value key={v.value} name={v.value} rows={v.rows} all={p.rows} pressed={has('where', `${p.property}=${v.value}`)} press={() => toggle('where', `${p.property}=${v.value}`)} />
            ))}
            {p.bins.map((b) => (
              <Value key={b.from} name={`${bound(b.from)} to ${bound(b.to)}`} rows={b.rows} all={p.rows} />
            ))}
          </fieldset>
        ))}
        {reasons.length > 0 && (
          <fieldset>
            <legend>Finish reason</legend>
            {reasons.map((v) => (
              <Value key={v.value} name={v.value} rows={v.rows} all={counts.counted} pressed={has('finish_reason', v.value)} press={() => toggle('finish_reason', v.value)} />
            ))}
          </fieldset>
        )}
      </div>
      {counts.counted < total && <p className="small">Counts of the first {number(counts.counted)} rows.</p>}
    </Card>
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
            {number(rows.length)} {rows.length === 1 ? 'row' : 'rows'} found
            {read != null && <> in the first {number(read)} of {number(job.num_rows)} rows{pages.isFetching && ', still searching'}</>}.
          </p>
          {rows.length > 0 ? (
            <RowList columns={columns} height={rows.length * rowHeight}>
              {rows.map((row, i) => (
                <Line key={row.row} n={row.row} at={i * rowHeight} position={i + 1} size={rows.length} row={row} columns={columns} show={show} />
              ))}
            </RowList>
          ) : (
            !pages.isFetching && !pages.hasNextPage && <Empty>No row matches the filter.</Empty>
          )}
          {pages.hasNextPage && (
            <Button variant="default" loading={pages.isFetching} onClick={() => setWanted(rows.length + pageSize)}>
              Find more
            </Button>
          )}
        </>
      )}
    </Load>
  )
}
