import { useEffect, useMemo, useRef, useState } from 'react'
import { Button, Modal, NativeSelect, NumberInput, Switch } from '@mantine/core'
import { useHotkeys } from '@mantine/hooks'
import { useQueries } from '@tanstack/react-query'
import { useVirtualizer } from '@tanstack/react-virtual'
import { Link, useParams, useSearchParams } from 'wouter'
import { get, query } from '../api/client'
import { useCan, useGet } from '../api/hooks'
import type { Job, Preview, PreviewRow } from '../api/types'
import { number } from '../lib/format'
import { useEvery } from '../live'
import { FailedRows } from '../parts/failedrows'
import { Chosen, FoundRows, PropertiesAsColumns, rowFilter, Search, Values } from '../parts/foundrows'
import { isMissing, NoJob, over, titleOf } from '../parts/job'
import { Empty, Load } from '../parts/load'
import { Folded, LinkButton, Page } from '../parts/page'
import { headHeight, layoutOf, Line, RowList, rowHeight, useColumns, withIDs, type Columns } from '../parts/rowlist'
import { WholeRow } from '../parts/wholerow'

// Browsers do not draw elements taller than some 16 million pixels, so rows are shown
// in windows. Each window loads its rows in pages.
const windowSize = 100_000
const pageSize = 100

export default function Rows() {
  const { id } = useParams<{ id: string }>()
  const can = useCan()
  const job = useGet<{ job: Job }>(`/v1/jobs/${id}`)
  const [search, setSearch] = useSearchParams()
  const failed = search.get('failed') === '1'
  const [order, setOrder] = useState<number[]>() // the listed rows, if a filter selects them
  const whole = search.has('open') ? Number(search.get('open')) : undefined
  const setWhole = (row?: number) =>
    setSearch((s) => {
      if (row === undefined) s.delete('open')
      else s.set('open', String(row))
      return s
    }, { replace: whole !== undefined })
  // neighbour returns the row before (-1) or after (1) the open row in the list.
  const neighbour = (step: number) => {
    if (order) return order[order.indexOf(whole!) + step]
    const n = whole! + step
    return n >= 0 && n < (job.data?.job.num_rows ?? 0) ? n : undefined
  }
  const step = (by: number) => whole !== undefined && neighbour(by) !== undefined && setWhole(neighbour(by))
  useHotkeys([['ArrowLeft', () => step(-1)], ['ArrowRight', () => step(1)]])
  if (isMissing(job)) return <NoJob id={id} />
  return (
    <Load query={job} title="Rows">
      {({ job }) => (
        <Page
          title={`Rows of ${titleOf(job)}`}
          lead={<>{number(job.rows_done)} of {number(job.num_rows)} done, {number(job.failed_rows)} failed. <Link href={`/jobs/${id}`}>Open the job</Link></>}
        >
          {failed ? (
            <>
              <div className="tools">
                <Search />
                <FailedOnly />
              </div>
              <FailedRows job={job} show={setWhole} listed={setOrder} />
            </>
          ) : !job.num_rows || (over(job.status) && !job.datetime_started) ? (
            <Empty>{over(job.status) ? 'The job ended before a row ran.' : 'The rows are not counted yet.'}</Empty>
          ) : (
            <AllRows job={job} count={job.num_rows} start={Number(search.get('row')) || 0} show={setWhole} listed={setOrder} />
          )}
          <Modal opened={whole !== undefined} onClose={() => setWhole()} title={`Row ${number(whole)}`} size="xl" centered={false}>
            {whole !== undefined && (
              <div className="stack">
                <div className="actions">
                  <Button size="xs" variant="default" disabled={neighbour(-1) === undefined} onClick={() => step(-1)}>Previous</Button>
                  <Button size="xs" variant="default" disabled={neighbour(1) === undefined} onClick={() => step(1)}>Next</Button>
                  {can.act && <LinkButton size="xs" variant="default" href={`/jobs/new${query({ like: id, rows: whole })}`}>Run this row in a new job</LinkButton>}
                </div>
                <WholeRow job={job} row={whole} />
              </div>
            )}
          </Modal>
        </Page>
      )}
    </Load>
  )
}

function FailedOnly() {
  const [search, setSearch] = useSearchParams()
  return (
    <Switch
      label="Failed only"
      checked={search.get('failed') === '1'}
      onChange={(e) => {
        const text = search.get('text')
        setSearch({ ...(e.currentTarget.checked && { failed: '1' }), ...(text && { text }) }, { replace: true })
      }}
    />
  )
}

type AllRowsProps = { job: Job; count: number; start: number; show: (row: number) => void; listed: (rows?: number[]) => void }

function AllRows({ job, count, start, show, listed }: AllRowsProps) {
  const [search] = useSearchParams()
  const columns = useColumns(job)
  const filter = rowFilter(search)
  const clamp = (n: number) => Math.max(0, Math.min(count - 1, n))
  const [target, setTarget] = useState(clamp(start))
  useEffect(() => setTarget(clamp(start)), [start])
  const first = Math.floor(target / windowSize) * windowSize
  return (
    <>
      <div className="tools">
        <Search />
        <FailedOnly />
        <Folded title="Jump and filter">
          <Jump away={!!filter} count={count} first={first} jump={(n) => setTarget(clamp(n))} />
          {columns.counts?.properties.some((p) => p.property !== '') && <PropertiesAsColumns />}
          <Values job={job} counts={columns.counts} />
        </Folded>
      </div>
      <Chosen />
      {filter ? (
        <FoundRows key={filter} job={job} filter={filter} columns={columns} show={show} listed={listed} />
      ) : (
        <Window key={first} job={job} first={first} size={Math.min(windowSize, count - first)} target={target} columns={columns} show={show} />
      )}
    </>
  )
}

// Jump goes to a row. With away it is not there, but keeps its place.
function Jump({ away, count, first, jump }: { away: boolean; count: number; first: number; jump: (row: number) => void }) {
  const [wanted, setWanted] = useState<number | string>('')
  const windows = Math.ceil(count / windowSize)
  return (
    <form
      className={away ? 'away' : undefined}
      onSubmit={(e) => {
        e.preventDefault()
        if (wanted !== '') jump(Number(wanted))
      }}
    >
      {windows > 1 && (
        <NativeSelect
          label="Window"
          value={first}
          onChange={(e) => jump(Number(e.currentTarget.value))}
          data={Array.from({ length: windows }, (_, i) => ({
            value: String(i * windowSize),
            label: `${number(i * windowSize)} to ${number(Math.min(count, (i + 1) * windowSize) - 1)}`,
          }))}
        />
      )}
      <NumberInput label={`Jump to row (0 to ${number(count - 1)})`} min={0} max={count - 1} allowDecimal={false} hideControls value={wanted} onChange={setWanted} />
      <Button type="submit" variant="default">Jump</Button>
    </form>
  )
}

// readPage reads until it has limit rows: an answer may have fewer.
async function readPage(job: string, offset: number, limit: number, signal: AbortSignal) {
  const rows: PreviewRow[] = []
  let next: number | null = offset
  while (next !== null && next < offset + limit) {
    const page: Preview = await get<Preview>(`/v1/jobs/${job}/preview?offset=${next}&limit=${offset + limit - next}`, signal)
    rows.push(...page.rows)
    if (page.rows.length === 0) break
    next = page.next_offset
  }
  return rows
}

type WindowProps = { job: Job; first: number; size: number; target: number; columns: Columns; show: (row: number) => void }

function Window({ job, first, size, target, columns: chosen, show }: WindowProps) {
  const box = useRef<HTMLDivElement>(null)
  const every = useEvery(3_000)
  const list = useVirtualizer({ count: size, getScrollElement: () => box.current, estimateSize: () => rowHeight, overscan: 10, scrollMargin: headHeight, scrollPaddingStart: headHeight })
  useEffect(() => list.scrollToIndex(target - first, { align: 'start' }), [target, first])

  const items = list.getVirtualItems()
  const pages = useMemo(() => {
    const from = Math.floor((items[0]?.index ?? 0) / pageSize)
    const to = Math.floor((items.at(-1)?.index ?? 0) / pageSize)
    return Array.from({ length: to - from + 1 }, (_, i) => first + (from + i) * pageSize)
  }, [items[0]?.index, items.at(-1)?.index, first])
  const path = `/v1/jobs/${job.job_id}/preview`
  const answers = useQueries({
    queries: pages.map((offset) => ({
      queryKey: [path, offset],
      queryFn: ({ signal }: { signal: AbortSignal }) => readPage(job.job_id, offset, Math.min(pageSize, first + size - offset), signal),
      staleTime: over(job.status) ? Infinity : 2_000,
      refetchInterval: (q: { state: { data?: PreviewRow[] } }) => (over(job.status) || !q.state.data?.some((r) => r.status === 'pending') ? false : every),
    })),
  })
  const error = answers.find((a) => a.error)
  const columns = withIDs(chosen, answers.flatMap((a) => a.data ?? []))
  const rowAt = (n: number) => answers[pages.indexOf(n - (n % pageSize))]?.data?.[n % pageSize]
  return (
    <>
      {error && <Load query={error as never}>{() => null}</Load>}
      <RowList box={box} layout={layoutOf(columns)} height={list.getTotalSize()}>
        {items.map((item) => (
          <Line key={item.key} job={job} n={first + item.index} at={item.start - headHeight} position={item.index + 1} size={size} row={rowAt(first + item.index)} columns={columns} show={show} />
        ))}
      </RowList>
      <p className="small">
        Rows {number(first)} to {number(first + size - 1)} of {number(job.num_rows)} are in this list.
      </p>
    </>
  )
}
