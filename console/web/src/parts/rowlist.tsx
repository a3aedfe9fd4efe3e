import type { ReactNode, RefObject } from 'react'
import { useSearchParams } from 'wouter'
import { useGet } from '../api/hooks'
import type { Job, PreviewRow, PropertyCounts, Row } from '../api/types'
import { parseObject, splitAnswer } from '../lib/answer'
import { none, number, sentence, text, tokens, took } from '../lib/format'
import { useEvery } from '../live'
import { over, rowState } from './job'

export const rowHeight = 40
export const headHeight = 28 // of the heads, which stay at the top of the list

// shownProperties is the largest number of columns for properties of answers.
export const shownProperties = 6

// Columns says which columns a list of rows has, besides the fixed columns.
export type Columns = { rows: number; hasIDs: boolean; properties: string[]; counts?: PropertyCounts }

// withIDs adds the column for IDs if a row has an ID.
export const withIDs = (columns: Columns, rows: (PreviewRow | undefined)[]): Columns => ({ ...columns, hasIDs: rows.some((r) => r?.id != null) })

// useColumns reads how often the values of answers occur, and chooses the columns. If most
// answers are JSON objects, their properties are columns, unless ?view=text.
export function useColumns(job: Job): Columns {
  const [search] = useSearchParams()
  const every = useEvery(10_000)
  const counts = useGet<PropertyCounts>(`/v1/jobs/${job.job_id}/preview/counts`, { every: over(job.status) ? false : every }).data
  const names = counts?.properties.filter((p) => p.property !== '' && p.rows * 2 > counts.counted - job.failed_rows).map((p) => p.property) ?? []
  return { rows: job.num_rows ?? 0, hasIDs: false, properties: search.get('view') === 'text' ? [] : names.slice(0, shownProperties), counts }
}

// Layout describes the columns of a list of rows: their widths, the smallest width of the list, the
// widths on a phone without the cells of the class less, and the heads. With under, a phone shows the
// cell of this class below the input.
export type Layout = { grid: string; wide: string; small: string; under?: boolean; heads: ReactNode }

// layoutOf returns the layout of a list of answers.
export function layoutOf({ rows, hasIDs, properties }: Columns): Layout {
  const numbers = `${1 + number(rows).length * 0.5}rem`
  const answers = properties.length ? properties.map(() => 'minmax(6rem, 1fr)').join(' ') : '3fr'
  return {
    grid: `${numbers} ${hasIDs ? '7rem ' : ''}.7rem minmax(8rem, ${properties.length ? 3 : 2}fr) ${answers} 4rem 5.5rem`,
    wide: `${38 + properties.length * 5}rem`,
    small: `${numbers} .7rem minmax(5rem, 1fr)${properties.length ? '' : ' minmax(5rem, 1.4fr)'}`,
    under: properties.length > 0,
    heads: (
      <>
        <span className="n">Row</span>
        {hasIDs && <span className="less">ID</span>}
        <span className="dot">State</span>
        <span className="cell">Input{properties.length > 0 && <span className="together">, {properties.join(' · ')}</span>}</span>
        {properties.length ? properties.map((p) => <span key={p} className="cell less" title={p}>{p}</span>) : <span>Answer</span>}
        <span className="n less" title="Tokens of the answer">Tokens</span>
        <span className="n less">Time</span>
      </>
    ),
  }
}

type RowListProps = { box?: RefObject<HTMLDivElement | null>; layout: Layout; label?: string; height: number; children: ReactNode }

export function RowList({ box, layout: { grid, wide, small, under, heads }, label = 'Rows', height, children }: RowListProps) {
  return (
    <div ref={box} className="rows" data-under={under || undefined} tabIndex={0} role="region" aria-label={label} style={{ '--rows': `${height + headHeight + 2}px`, '--grid': grid, '--wide': wide, '--small': small } as never}>
      <div className="rowheads" aria-hidden="true">{heads}</div>
      <div role="list" style={{ height }}>
        {children}
      </div>
    </div>
  )
}

type LineProps = { job: Job; n: number; at: number; position: number; size: number; row?: PreviewRow; columns: Columns; show: (row: number) => void }

// Line shows row n at a distance from the top of the list. It reads a failed row, for the message of its error.
export function Line({ job, n, at, position, size, row, columns, show }: LineProps) {
  const answer = splitAnswer(text(row?.output)).answer
  const value = columns.properties.length ? parseObject(answer) : undefined
  const ended = row && row.status !== 'pending'
  const failed = useGet<Row>(`/v1/jobs/${job.job_id}/rows/${n}`, { fresh: Infinity, enabled: !!row?.code }).data?.error
  return (
    <div role="listitem" aria-setsize={size} aria-posinset={position} style={{ transform: `translateY(${at}px)` }}>
      <button type="button" onClick={() => show(n)} disabled={!ended}>
        <span className="n">{number(n)}</span>
        {columns.hasIDs && <span className="cell less" dir="auto">{row?.id}</span>}
        <span className="status dot" data-is={row?.status ?? 'pending'} title={row && rowState(job, row.status)}>
          {ended && row.status}
        </span>
        <span className="cell" dir="auto">{text(row?.input).slice(0, 300)}</span>
        {value ? (
          <>
            {columns.properties.map((p) => <span key={p} className="cell less" dir="auto">{cell(value[p])}</span>)}
            <span className="cell under together" dir="auto">{columns.properties.map((p) => cell(value[p])).join(' · ')}</span>
          </>
        ) : (
          <span className="cell under" dir="auto" style={{ '--span': columns.properties.length || 1 } as never}>
            {ended ? row.code ? <span className="failures" title={row.code}>{failed ? sentence(failed.message) : row.code}</span> : answer.slice(0, 300) : <span className="small">{row ? rowState(job, row.status) : '…'}</span>}
          </span>
        )}
        <span className="n less">{ended ? tokens(row.output_tokens, row.status === 'failed') : ''}</span>
        <span className="n less">{ended ? took(row.duration_seconds) : ''}</span>
      </button>
    </div>
  )
}

export const cell = (value: unknown) => (value === undefined ? none : typeof value === 'string' ? value : JSON.stringify(value)).slice(0, 300)
