import { Fragment, useEffect, useMemo, useRef, useState } from 'react'
import { Button, Modal, NativeSelect, NumberInput, Switch } from '@mantine/core'
import { useQueries } from '@tanstack/react-query'
import { useVirtualizer } from '@tanstack/react-virtual'
import { Link, useParams, useSearchParams } from 'wouter'
import { get } from '../api/client'
import { useGet, usePages } from '../api/hooks'
import type { Job, Preview, PreviewRow, Row, RowError } from '../api/types'
import { indent, isSimulated, splitAnswer } from '../lib/answer'
import { clock, day, none, number, text, took } from '../lib/format'
import { useEvery } from '../live'
import { Code } from '../parts/copy'
import { over, Status } from '../parts/job'
import { Empty, Load } from '../parts/load'
import { Facts, Long, More, Page, Table } from '../parts/page'

// Browsers do not draw elements taller than some 16 million pixels, so rows are shown
// in windows. Each window loads its rows in pages.
const windowSize = 100_000
const pageSize = 100
const rowHeight = 40
const headHeight = 28 // of the heads, which stay at the top of the list

export default function Rows() {
  const { id } = useParams<{ id: string }>()
  const job = useGet<{ job: Job }>(`/v1/jobs/${id}`)
  const [search, setSearch] = useSearchParams()
  const failed = search.get('failed') === '1'
  const whole = search.has('open') ? Number(search.get('open')) : undefined
  const setWhole = (row?: number) =>
    setSearch((s) => {
      if (row === undefined) s.delete('open')
      else s.set('open', String(row))
      return s
    }, { replace: whole !== undefined })
  return (
    <Load query={job} title="Rows">
      {({ job }) => (
        <Page
          title="Rows"
          lead={<>of <Link href={`/jobs/${id}`}>{job.name || job.job_id}</Link>: {number(job.rows_done)} of {number(job.num_rows)} done, {number(job.failed_rows)} failed</>}
        >
          <Switch
            label="Failed rows only"
            checked={failed}
            onChange={(e) => setSearch(e.currentTarget.checked ? { failed: '1' } : {}, { replace: true })}
          />
          {failed ? (
            <FailedRows job={job} show={setWhole} />
          ) : !job.num_rows ? (
            <Empty>{over(job.status) ? 'The job ended before its rows were counted.' : 'The rows are not counted yet.'}</Empty>
          ) : (
            <Browser job={job} count={job.num_rows} start={Number(search.get('row')) || 0} show={setWhole} />
          )}
          <Modal opened={whole !== undefined} onClose={() => setWhole()} title={`Row ${number(whole)}`} size="xl">
            {whole !== undefined && (
              <>
                <div className="actions">
                  <Button size="xs" variant="default" disabled={whole === 0} onClick={() => setWhole(whole - 1)}>Previous</Button>
                  <Button size="xs" variant="default" disabled={whole + 1 >= (job.num_rows ?? 0)} onClick={() => setWhole(whole + 1)}>Next</Button>
                </div>
                <WholeRow job={job} row={whole} />
              </>
            )}
          </Modal>
        </Page>
      )}
    </Load>
  )
}

type BrowserProps = { job: Job; count: number; start: number; show: (row: number) => void }

function Browser({ job, count, start, show }: BrowserProps) {
  const clamp = (n: number) => Math.max(0, Math.min(count - 1, n))
  const [target, setTarget] = useState(clamp(start))
  const [wanted, setWanted] = useState<number | string>('')
  const first = Math.floor(target / windowSize) * windowSize
  const windows = Math.ceil(count / windowSize)
  useEffect(() => setTarget(clamp(start)), [start])
  return (
    <>
      <form
        className="fields"
        onSubmit={(e) => {
          e.preventDefault()
          if (wanted !== '') setTarget(clamp(Number(wanted)))
        }}
      >
        {windows > 1 && (
          <NativeSelect
            label="Window"
            value={first}
            onChange={(e) => setTarget(Number(e.currentTarget.value))}
            data={Array.from({ length: windows }, (_, i) => ({
              value: String(i * windowSize),
              label: `${number(i * windowSize)} to ${number(Math.min(count, (i + 1) * windowSize) - 1)}`,
            }))}
          />
        )}
        <NumberInput label={`Jump to row (0 to ${number(count - 1)})`} min={0} max={count - 1} allowDecimal={false} hideControls value={wanted} onChange={setWanted} />
        <Button type="submit" variant="default">Jump</Button>
      </form>
      <Window key={first} job={job} first={first} size={Math.min(windowSize, count - first)} target={target} show={show} />
    </>
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

function Window({ job, first, size, target, show }: { job: Job; first: number; size: number; target: number; show: (row: number) => void }) {
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
  const rowAt = (n: number) => answers[pages.indexOf(n - (n % pageSize))]?.data?.[n % pageSize]
  return (
    <>
      {error && <Load query={error as never}>{() => null}</Load>}
      <div ref={box} className="rows" tabIndex={0} role="region" aria-label="Rows">
        <div className="rowheads" aria-hidden="true">
          <span className="n">Row</span>
          <span>State</span>
          <span>Input</span>
          <span>Answer</span>
        </div>
        <div role="list" style={{ height: list.getTotalSize() }}>
          {items.map((item) => (
            <Line key={item.key} n={first + item.index} size={size} at={item.start - headHeight} row={rowAt(first + item.index)} show={show} />
          ))}
        </div>
      </div>
      <p className="small">
        Rows {number(first)} to {number(first + size - 1)} of {number(job.num_rows)} are in this list.
      </p>
    </>
  )
}

function Line({ n, size, at, row, show }: { n: number; size: number; at: number; row?: PreviewRow; show: (row: number) => void }) {
  return (
    <div role="listitem" aria-setsize={size} aria-posinset={(n % windowSize) + 1} style={{ transform: `translateY(${at}px)` }}>
      <button type="button" onClick={() => show(n)} disabled={!row || row.status === 'pending'}>
        <span className="n">{number(n)}</span>
        <span className="status" data-is={row?.status ?? 'pending'}>
          {row ? (row.code ?? row.status) : '…'}
        </span>
        <span className="cell" dir="auto">{text(row?.input).slice(0, 300)}</span>
        <span className="cell" dir="auto">
          {isSimulated(row?.output) && <span className="tag">simulated</span>}
          {splitAnswer(text(row?.output)).answer.slice(0, 300)}
        </span>
      </button>
    </div>
  )
}

function FailedRows({ job, show }: { job: Job; show: (row: number) => void }) {
  const pages = usePages<{ errors: RowError[]; next_cursor: string | null }>(`/v1/jobs/${job.job_id}/errors?limit=100`, (p) => p.next_cursor)
  const errors = pages.data?.pages.flatMap((p) => p.errors) ?? []
  return (
    <Load query={pages}>
      {() =>
        errors.length === 0 ? (
          <Empty>No failed rows.</Empty>
        ) : (
          <>
            <Table label="Failed rows" heads={['Row', 'Code', 'Message', 'Raw answer']}>
              {errors.map((e) => (
                <tr key={e.row}>
                  <td className="number">
                    <button type="button" className="link" onClick={() => show(e.row)} aria-label={`Show row ${e.row}`}>
                      {number(e.row)}
                    </button>
                  </td>
                  <td>
                    <code>{e.code}</code>
                  </td>
                  <td className="wide">{e.message}</td>
                  <td className="wide" dir="auto"><Long text={e.raw_output || none} /></td>
                </tr>
              ))}
            </Table>
            <More of={pages} count={`${number(errors.length)} of ${pages.hasNextPage ? 'more' : number(errors.length)} shown`} />
          </>
        )
      }
    </Load>
  )
}

function WholeRow({ job, row }: { job: Job; row: number }) {
  const whole = useGet<Row>(`/v1/jobs/${job.job_id}/rows/${row}`)
  return (
    <Load query={whole}>
      {(r) => (
        <div className="stack">
          {isSimulated(r.output) && <p className="simulated">Simulated answer: no real model gave it.</p>}
          <Facts
            facts={[
              ['Finished', r.finish_reason ?? '–'],
              ['Tokens in', number(r.input_tokens)],
              ['Tokens out', number(r.output_tokens)],
              ['Time', took(r.duration_seconds)],
              ['Attempts', number(r.attempts)],
              ['Engine', r.engine || none],
            ]}
          />
          <Attempts row={r} />
          <h3>Input</h3>
          <Code label="Input" text={text(r.input)} />
          {r.error ? <Failure error={r.error} /> : <Answer output={r.output} />}
        </div>
      )}
    </Load>
  )
}

// firstAttempts is the number of kept attempts before the omitted attempts.
const firstAttempts = 3

function Attempts({ row }: { row: Row }) {
  const { attempt_log: kept, attempts_omitted: omitted } = row
  if (kept.length === 0) return row.attempts > 1 ? <p className="small">The attempts have no record.</p> : null
  const all = kept.length + omitted
  return (
    <>
      <h3>Attempts</h3>
      <Table label="Attempts" heads={['When', 'Took', 'Server', 'How it ended']}>
        {kept.map((a, i) => (
          <Fragment key={i}>
            {omitted > 0 && i === firstAttempts && (
              <tr>
                <td colSpan={4}>{number(omitted)} more, which were not kept</td>
              </tr>
            )}
            <tr>
              <td className="number">
                {clock(a.at)} <span className="id">{day(a.at)}</span>
              </td>
              <td className="number">{took(a.duration_seconds)}</td>
              <td>
                {a.engine} <span className="id">{a.node}</span>
              </td>
              <td className="wide">
                {a.code == null ? (
                  <Status is="succeeded">answered</Status>
                ) : (
                  <>
                    <code>{a.code}</code>
                    {a.status != null && a.code !== `http_${a.status}` && ` (HTTP ${a.status})`} {a.message}
                  </>
                )}
              </td>
            </tr>
          </Fragment>
        ))}
      </Table>
      {all !== row.attempts && (
        <p className="small">
          {number(row.attempts)} of {number(all)} count: a server that goes away costs a row no attempt.
        </p>
      )}
    </>
  )
}

function Failure({ error }: { error: NonNullable<Row['error']> }) {
  return (
    <>
      <h3>Output</h3>
      <p>
        <Status is="failed">no output</Status> <code>{error.code}</code> {error.message}
      </p>
      {error.raw_output && (
        <>
          <h3>Raw answer of the server</h3>
          <Code label="Raw answer" text={indent(error.raw_output)} />
        </>
      )}
    </>
  )
}

function Answer({ output }: { output: Row['output'] }) {
  const { reasoning, answer } = splitAnswer(text(output))
  return (
    <>
      {reasoning && (
        <>
          <h3>Reasoning</h3>
          <Code label="Reasoning" text={reasoning} />
        </>
      )}
      <h3>Output</h3>
      <Code label="Output" text={indent(answer)} />
    </>
  )
}
