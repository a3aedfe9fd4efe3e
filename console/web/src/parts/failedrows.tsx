import { useEffect, useMemo, useRef } from 'react'
import { useInfiniteQuery, type UseQueryResult } from '@tanstack/react-query'
import { useVirtualizer } from '@tanstack/react-virtual'
import { useSearchParams } from 'wouter'
import { get, query, type ApiError } from '../api/client'
import { useGet } from '../api/hooks'
import type { ErrorCounts, Job, Preview, Row, RowError } from '../api/types'
import { number, plural, sentence, text, took } from '../lib/format'
import { useEvery } from '../live'
import { useChange } from './foundrows'
import { over } from './job'
import { Empty, Load } from './load'
import { More } from './page'
import { headHeight, RowList, rowHeight, type Layout } from './rowlist'

const pageSize = 100

const layout: Layout = {
  grid: '4.5rem 10rem minmax(8rem, 2fr) minmax(10rem, 3fr) 4.5rem 5.5rem',
  wide: '51rem',
  small: '2.5rem .7rem minmax(6rem, 1fr)',
  under: true,
  heads: (
    <>
      <span className="n">Row</span>
      <span><span className="less">Error code</span></span>
      <span>Input<span className="together">, message</span></span>
      <span className="less">Message</span>
      <span className="n less">Attempts</span>
      <span className="n less">Time</span>
    </>
  ),
}

type Failed = { row: number; code: string | null; message?: string }

// A Position is the beginning of a page: a cursor of the list of errors, or the offset of the rows with
// one of the codes.
type Position = { cursor?: string; code: number; offset: number }
type FailedPage = { rows: Failed[]; next?: Position }

// useFailed reads the failed rows in pages. With codes it finds the rows with one of these codes and a
// text, one code after the other, because a request filters by one code.
function useFailed(job: string, wanted: string, codes: string[] | undefined, enabled: boolean) {
  return useInfiniteQuery<FailedPage, ApiError, { pages: FailedPage[] }, unknown[], Position>({
    queryKey: [`/v1/jobs/${job}/errors`, 'rows', wanted, codes],
    enabled,
    initialPageParam: { code: 0, offset: 0 },
    getNextPageParam: (page) => page.next,
    queryFn: async ({ pageParam: at, signal }) => {
      if (!codes) {
        const page = await get<{ errors: RowError[]; next_cursor: string | null }>(`/v1/jobs/${job}/errors${query({ limit: pageSize, not_run: false, cursor: at.cursor })}`, signal)
        return { rows: page.errors, next: page.next_cursor ? { ...at, cursor: page.next_cursor } : undefined }
      }
      if (codes.length === 0) return { rows: [] }
      const page = await get<Preview>(`/v1/jobs/${job}/preview${query({ text: wanted, code: codes[at.code], limit: pageSize, offset: at.offset })}`, signal)
      const after = at.code + 1 < codes.length ? { code: at.code + 1, offset: 0 } : undefined
      return { rows: page.rows, next: page.next_offset === null ? after : { ...at, offset: page.next_offset } }
    },
  })
}

// FailedRows lists the failed rows of a job, of one error code or of all.
export function FailedRows({ job, show, listed }: { job: Job; show: (row: number) => void; listed: (rows?: number[]) => void }) {
  const [search] = useSearchParams()
  const change = useChange()
  const every = useEvery(10_000)
  const counts = useGet<ErrorCounts>(`/v1/jobs/${job.job_id}/errors/counts`, { enabled: job.failed_rows > 0, every: !over(job.status) && every }).data
  const [wanted, code] = [search.get('text') ?? '', search.get('code') ?? '']
  const codes = code ? [code] : wanted ? counts?.counts.map((c) => c.code) : undefined
  const pages = useFailed(job.job_id, wanted, codes, !wanted || !!codes || job.failed_rows === 0)
  const rows = useMemo(() => pages.data?.pages.flatMap((p) => p.rows).toSorted((a, b) => a.row - b.row) ?? [], [pages.data])
  useEffect(() => {
    listed(rows.map((r) => r.row))
    return () => listed(undefined)
  }, [rows])
  const short = rows.length % pageSize > 0 || rows.length === 0 // a request reads a limited number of rows for a page
  useEffect(() => {
    if (codes && short && pages.hasNextPage && !pages.isFetching && !pages.error) void pages.fetchNextPage()
  }, [codes, short, pages.hasNextPage, pages.isFetching, pages.error])
  return (
    <>
      {counts && counts.counts.length > 0 && (
        <div className="chips" role="group" aria-label="Error codes">
          {counts.counts.map((c) => (
            <button key={c.code} type="button" aria-pressed={c.code === code} onClick={() => change((s) => (c.code === code ? s.delete('code') : s.set('code', c.code)))}>
              <code>{c.code}</code> <span className="count">{number(c.rows)}</span>
            </button>
          ))}
        </div>
      )}
      <Load query={pages as unknown as UseQueryResult<{ pages: FailedPage[] }, ApiError>}>
        {() =>
          rows.length === 0 ? (
            !pages.isFetching && <Empty>{wanted || code ? 'No failed row matches.' : 'No failed rows.'}</Empty>
          ) : (
            <>
              <List job={job} rows={rows} show={show} />
              <More of={pages} count={wanted || code ? `${plural(rows.length, 'row')} found${pages.hasNextPage ? '; there are more' : ''}.` : `${number(rows.length)} of ${plural(Math.max(job.failed_rows, rows.length), 'failed row')} shown.`} />
            </>
          )
        }
      </Load>
    </>
  )
}

// List draws only the visible rows, because each of them is read.
function List({ job, rows, show }: { job: Job; rows: Failed[]; show: (row: number) => void }) {
  const box = useRef<HTMLDivElement>(null)
  const list = useVirtualizer({ count: rows.length, getScrollElement: () => box.current, estimateSize: () => rowHeight, overscan: 5, scrollMargin: headHeight })
  return (
    <RowList box={box} layout={layout} label="Failed rows" height={list.getTotalSize()}>
      {list.getVirtualItems().map((item) => (
        <Line key={rows[item.index]!.row} job={job} failed={rows[item.index]!} at={item.start - headHeight} position={item.index + 1} size={rows.length} show={show} />
      ))}
    </RowList>
  )
}

type LineProps = { job: Job; failed: Failed; at: number; position: number; size: number; show: (row: number) => void }

function Line({ job, failed, at, position, size, show }: LineProps) {
  const { data: row } = useGet<Row>(`/v1/jobs/${job.job_id}/rows/${failed.row}`, { fresh: Infinity })
  const message = sentence(failed.message ?? row?.error?.message ?? '…')
  return (
    <div role="listitem" aria-setsize={size} aria-posinset={position} style={{ transform: `translateY(${at}px)` }}>
      <button type="button" onClick={() => show(failed.row)}>
        <span className="n">{number(failed.row)}</span>
        <span className="status" data-is="failed"><span className="cell less">{failed.code ?? 'failed'}</span></span>
        <span className="cell" dir="auto">{row ? text(row.input).slice(0, 300) : '…'}</span>
        <span className="cell less">{message}</span>
        <span className="cell under together"><span className="failures">{message}</span></span>
        <span className="n less">{row ? number(row.attempts) : ''}</span>
        <span className="n less">{row ? took(row.duration_seconds) : ''}</span>
      </button>
    </div>
  )
}
