import { useEffect, useRef, useState } from 'react'
import { Button, NativeSelect, Switch } from '@mantine/core'
import { Link, useSearchParams } from 'wouter'
import { apiURL, get, query } from '../api/client'
import { describe, useGet, usePages } from '../api/hooks'
import type { ComparedJob, ComparedRow, ComparedRows, ComparisonSummary, Model } from '../api/types'
import { parseObject } from '../lib/answer'
import { csv, save } from '../lib/csv'
import { beforeDifference, diff, join, words, type Piece } from '../lib/diff'
import { beginning, compact, duration, none, number, percent, plural, text, usd } from '../lib/format'
import { useEvery } from '../live'
import { Cut } from '../parts/cut'
import { Diff } from '../parts/diff'
import { JobLink, over, rowState, Status } from '../parts/job'
import { Empty, Load } from '../parts/load'
import { Card, Folded, LinkButton, More, Page, Table } from '../parts/page'
import { cell } from '../parts/rowlist'

const route = '/v1/jobs/compare'
const smallInput = 1_000 // rows that a node compares quickly

export default function Compare() {
  const [search] = useSearchParams()
  const jobs = search.get('jobs') ?? ''
  if (!jobs.includes(','))
    return (
      <Page title="Compare jobs">
        <Empty next={<LinkButton href="/jobs">Choose jobs</LinkButton>}>Select two to four jobs with the same input in the list of jobs.</Empty>
      </Page>
    )
  return <Comparison key={jobs} jobs={jobs} />
}

function Comparison({ jobs }: { jobs: string }) {
  const every = useEvery(30_000)
  const summary = useGet<ComparisonSummary>(`${route}/summary${query({ jobs })}`, {
    every: (s) => !!s && !s.jobs.every((j) => over(j.status)) && (s.num_rows <= smallInput ? 2_000 : every),
    fresh: 60_000,
  })
  const models = useGet<{ data: Model[] }>('/v1/models', { fresh: 60_000 })
  const uncounted = summary.error?.code === 'no_rows'
  useEffect(() => {
    if (!uncounted) return
    const timer = setInterval(() => void summary.refetch(), 1_000)
    return () => clearInterval(timer)
  }, [uncounted])
  if (uncounted)
    return (
      <Page title="Compare jobs">
        <Empty next={<LinkButton href={`/jobs/${jobs.split(',')[0]}`}>Open the first job</LinkButton>}>{summary.error!.message}</Empty>
      </Page>
    )
  return (
    <Load query={summary} title="Compare jobs">
      {(s) => (
        <Page title="Compare jobs" lead={columns(s.jobs).map((name) => `“${name}”`).join(', ')}>
          {s.different_inputs > 0 && (
            <p className="warning" role="note">
              The inputs of these jobs differ in {number(s.different_inputs)} of {plural(s.counted, 'row')}. The answers of these rows cannot be compared.
            </p>
          )}
          {s.jobs.some((j) => j.num_rows !== s.num_rows) && <p role="note">Compares the {plural(s.num_rows, 'row')} that {s.jobs.length === 2 ? 'both' : 'all'} jobs have.</p>}
          <Heads jobs={s.jobs} />
          <Prompts jobs={s.jobs} />
          {s.properties.length > 0 && <Agreement summary={s} />}
          {!models.isPending && <Rows summary={s} ids={jobs} isText={!s.jobs.some((j) => models.data?.data.some((m) => m.id === j.model && m.kind === 'embedding'))} />}
        </Page>
      )}
    </Load>
  )
}

const modelOf = (j: ComparedJob) => (j.function ? `${j.model}, revision ${j.function.revision}` : j.model)

const promptName = 40 // the longest beginning of a prompt that names a job, in characters

// columns returns different names for the jobs: their own names, models or system prompts, whichever
// differs between all jobs. If all of them are equal, it returns the ids.
function columns(jobs: ComparedJob[]): string[] {
  const ways = [(j: ComparedJob) => j.name, modelOf, (j: ComparedJob) => j.system_prompt && beginning(j.system_prompt.trim().replace(/\s+/g, ' '), promptName), (j: ComparedJob) => j.job_id]
  const names = ways.map((name) => jobs.map(name)).find((names) => names.every((name, i) => name && names.indexOf(name) === i))
  return names as string[]
}

function Heads({ jobs }: { jobs: ComparedJob[] }) {
  return (
    <Table label="Jobs" heads={['Job', 'State', 'Model', 'Rows done', 'Cost', 'Tokens in', 'Tokens out', 'Took']} less={['Model', 'Cost', 'Tokens in', 'Tokens out', 'Took']}>
      {jobs.map((j) => (
        <tr key={j.job_id}>
          <td><JobLink job={j} /></td>
          <td>
            <Status is={j.status} />
            <span className="reason narrow-only">{modelOf(j)}</span>
            <span className="reason narrow-only">{duration(j.seconds)}</span>
          </td>
          <td>{modelOf(j)}</td>
          <td className="number">
            {number(j.rows_done)} of {number(j.num_rows)}{j.failed_rows > 0 && <span className="rowcount failures">{number(j.failed_rows)} failed</span>}
            <span className="reason narrow-only">{usd(j.cost)}</span>
          </td>
          <td className="number">{usd(j.cost)}</td>
          <td className="number">{compact(j.input_tokens)}</td>
          <td className="number">{compact(j.output_tokens)}</td>
          <td className="number">{duration(j.seconds)}</td>
        </tr>
      ))}
    </Table>
  )
}

function Agreement({ summary: s }: { summary: ComparisonSummary }) {
  return (
    <Card title="Agreement">
      <p>{number(s.equal)} of {plural(s.counted, 'row')} {s.equal === 1 ? 'is' : 'are'} equal ({percent(s.equal, s.counted)}).</p>
      {s.counted < s.num_rows && <p className="small">The first {number(s.counted)} of {plural(s.num_rows, 'row')} {s.counted === 1 ? 'is' : 'are'} counted.</p>}
      {s.properties.length === 1 ? <Folded title="Values"><Values jobs={s.jobs} property={s.properties[0]!} /></Folded> : s.properties.toSorted((a, b) => a.equal / a.rows - b.equal / b.rows).map((f) => (
        <details key={f.property} className="agreement">
          <summary>
            <meter value={f.equal / f.rows} aria-hidden /> {f.property ? <code>{f.property}</code> : 'Answer'}: {number(f.equal)} of {number(f.rows)} equal ({percent(f.equal, f.rows)})
          </summary>
          <Values jobs={s.jobs} property={f} />
        </details>
      ))}
    </Card>
  )
}

type Property = ComparisonSummary['properties'][number]

// Values shows for two jobs which values occur together, and for more jobs how often each
// value occurs.
function Values({ jobs, property: f }: { jobs: ComparedJob[]; property: Property }) {
  const names = columns(jobs)
  const values = f.values.map((v) => (typeof v === 'string' ? v || '(empty)' : JSON.stringify(v)))
  const rows = f.confusion ?? f.values.map((_, i) => f.counts.map((counts) => counts[i]!))
  return (
    <>
      {f.confusion && <p className="small">A cell counts the rows in which “{names[0]}” has the value at the left, and “{names[1]}” the value above.</p>}
      <Table label={`Values of ${f.property || 'the answer'}`} heads={[f.property || 'Answer', ...(f.confusion ? values : names)]}>
        {rows.map((counts, i) => (
          <tr key={i}>
            <td className="wide">{values[i]}</td>
            {counts.map((n, j) => (
              <td key={j} className="number">{f.confusion && i === j ? <strong>{number(n)}</strong> : number(n)}</td>
            ))}
          </tr>
        ))}
      </Table>
    </>
  )
}

const written = (j: ComparedJob) =>
  [
    `model: ${modelOf(j)}`,
    ...(j.system_prompt ? ['system prompt:', j.system_prompt] : []),
    ...(j.prompt ? ['prompt:', j.prompt] : []),
  ].join('\n')

function Prompts({ jobs }: { jobs: ComparedJob[] }) {
  const [search, set] = useParameter()
  const others = jobs.slice(1)
  const to = others.find((j) => j.job_id === search.get('prompt')) ?? others[0]!
  const names = columns(jobs)
  return (
    <Card title="Models and prompts">
      {others.length > 1 && (
        <div className="fields"><NativeSelect
          label={`Compare ${names[0]} with`}
          value={to.job_id}
          onChange={(e) => set('prompt', e.currentTarget.value)}
          data={others.map((j, i) => ({ value: j.job_id, label: names[i + 1]! }))}
        /></div>
      )}
      {written(jobs[0]!) === written(to) ? <p className="small">The models and the prompts are equal.</p> : <div className="short"><Diff from={written(jobs[0]!)} to={written(to)} /></div>}
    </Card>
  )
}

// useParameter returns the parameters of the address, and sets one of them.
function useParameter() {
  const [search, setSearch] = useSearchParams()
  const set = (name: string, value: string) =>
    setSearch((s) => {
      if (value) s.set(name, value)
      else s.delete(name)
      return s
    }, { replace: true })
  return [search, set] as const
}

// Rows shows only different rows unless the user chose all rows, no row was different, or the answers
// are embeddings. A phone shows fewer rows at first, and less of their inputs.
function Rows({ summary: { jobs, num_rows, equal, counted, ...counts }, ids, isText }: { summary: ComparisonSummary; ids: string; isText: boolean }) {
  const [differs] = useState(counts.different > 0) // a running job changes the list only if the user asks
  const [phone] = useState(() => matchMedia('(max-width: 48em)').matches)
  const [search, set] = useParameter()
  const every = useEvery(30_000)
  const running = !jobs.every((j) => over(j.status))
  const different = search.has('different') ? search.get('different') === '1' : isText && differs
  const filter = { jobs: ids, different: different || undefined }
  const pages = usePages<ComparedRows>(`${route}${query({ ...filter, limit: phone ? 10 : 20 })}`, (p) => (p.next_offset == null ? null : String(p.next_offset)), 'offset', running && every)
  const rows = pages.data?.pages.flatMap((p) => p.rows) ?? []
  const nothing = pages.data?.pages.at(-1)?.rows.length === 0 // the node reads a limited number of rows for a page
  useEffect(() => {
    if (nothing && pages.hasNextPage && !pages.isFetchingNextPage) void pages.fetchNextPage()
  }, [nothing, pages.hasNextPage, pages.isFetchingNextPage])
  return (
    <Card title="Rows" actions={<>{jobs.every((j) => j.status === 'succeeded' && j.num_rows === num_rows) && <Button component="a" variant="default" size="xs" href={apiURL(`${route}/results${query({ jobs: ids })}`)} download="compared.parquet">Download Parquet</Button>}<Export filter={filter} names={columns(jobs)} /></>}>
      <Switch label="Only different rows" checked={different} description={`${counts.properties.length > 0 ? '' : `${number(equal)} of ${plural(counted, 'row')} ${equal === 1 ? 'is' : 'are'} equal. `}${counts.pending ? `${number(counts.pending)} ${running ? 'are pending' : 'did not run'}.` : ''}` || undefined} onChange={(e) => set('different', e.currentTarget.checked ? '1' : '0')} />
      <Load query={pages}>
        {() => (
          <>
            {rows.length > 0 && (
              <Table label="Rows" heads={['Row', 'Input', ...columns(jobs)]}>
                {rows.map((r) => <Line key={r.row} jobs={jobs} names={columns(jobs)} row={r} lines={phone ? 2 : 3} />)}
              </Table>
            )}
            <More of={pages} count={shown(rows.length, pages.hasNextPage, different)} />
          </>
        )}
      </Load>
    </Card>
  )
}

function shown(n: number, more: boolean, different: boolean) {
  const rows = `${different ? 'different ' : ''}${n === 1 ? 'row' : 'rows'}`
  if (more) return `${number(n)} ${rows} shown; “Show more” reads on.`
  return n ? `All ${number(n)} ${rows} shown.` : `No ${rows}.`
}

function Line({ jobs, names, row, lines }: { jobs: ComparedJob[]; names: string[]; row: ComparedRow; lines: number }) {
  const first = row.outputs[0]!
  const start = beforeDifference(row.outputs.filter((o) => o.status === 'done').map((o) => text(o.output)))
  return (
    <tr data-row={row.row} data-different={row.different || undefined}>
      <td className="number">
        <Link href={`/jobs/${jobs[0]!.job_id}/rows?row=${row.row}&open=${row.row}`} aria-label={`Row ${row.row}`}>{number(row.row)}</Link>
      </td>
      <td className="wide" dir="auto">
        {row.input == null ? none : <Cut text={row.input} lines={lines} />}
        {!row.same_input && <span className="tag">inputs differ</span>}
      </td>
      {row.outputs.map((o, i) => (
        <td key={i} className="wide" data-name={names[i]} dir="auto">
          {o.status === 'done' ? (
            <Output text={text(o.output)} start={start} before={i > 0 && first.status === 'done' ? text(first.output) : undefined} />
          ) : (
            <Status is={o.status}>{o.code ?? rowState(jobs[i]!, o.status)}</Status>
          )}
          {o.cut && <span className="tag">cut</span>}
        </td>
      ))}
    </tr>
  )
}

// unmarked is the length of the texts that have marks only if they are open, in characters.
const unmarked = 240

// Texts with a smaller share of equal words are shown without marks, because nearly each word would
// have one. Short answers always have marks.
const leastShare = 0.4
const shortAnswer = 80

const size = (pieces: Piece[]) => pieces.reduce((n, p) => n + p.text.length, 0)
const share = (pieces: Piece[]) => size(pieces.filter((p) => p.sign === ' ' && p.text.trim())) / Math.max(1, size(pieces.filter((p) => p.sign !== '-')))

// Properties shows the properties of a JSON answer, and the values that differ from the answer before.
function Properties({ value, before }: { value: Record<string, unknown>; before?: Record<string, unknown> }) {
  return [...new Set([...Object.keys(before ?? {}), ...Object.keys(value)])].map((name) => {
    const [now, old] = [cell(value[name]), before && cell(before[name])]
    return (
      <div key={name} className="output property">
        <span className="small">{name}: </span>
        {old === undefined || old === now ? now : <><del>{old}</del><ins>{now}</ins></>}
      </div>
    )
  })
}

// Output shows an output, and what changed from the output before. A long output is cut before start.
function Output({ text, start, before }: { text: string; start: number; before?: string }) {
  const value = parseObject(text)
  if (value) return <Properties value={value} before={parseObject(before ?? '')} />
  return (
    <Cut text={text} start={start}>
      {(open, from) => {
        if (before === undefined || before === text || (!open && Math.max(text.length, before.length) - from > unmarked)) return undefined
        const pieces = diff(words(before.slice(from)), words(text.slice(from)))
        if (!pieces || (text.length > shortAnswer && share(pieces) < leastShare)) return undefined
        return join(pieces).map((p, i) => (p.sign === '-' ? <del key={i}>{p.text}</del> : p.sign === '+' ? <ins key={i}>{p.text}</ins> : p.text))
      }}
    </Cut>
  )
}

// Export reads all pages of the rows and saves them as a CSV file.
function Export({ filter, names }: { filter: { jobs: string; different?: boolean }; names: string[] }) {
  const [read, setRead] = useState<number>()
  const [problem, setProblem] = useState('')
  const stop = useRef<AbortController>(undefined)
  const run = async () => {
    stop.current = new AbortController()
    setProblem('')
    try {
      const texts = [csv([['row', 'input', ...names]])]
      for (let offset: number | null = 0; offset !== null; ) {
        setRead(offset)
        const page: ComparedRows = await get<ComparedRows>(`${route}${query({ ...filter, limit: 1000, offset })}`, stop.current.signal)
        texts.push(csv(page.rows.map((r) => [r.row, r.input ?? '', ...r.outputs.map((o) => text(o.output))])))
        offset = page.next_offset
      }
      save('comparison.csv', ...texts)
    } catch (e) {
      if (!stop.current.signal.aborted) setProblem(describe(e as Error))
    }
    setRead(undefined)
  }
  return (
    <>
      {problem && <span role="alert" className="failures">{problem}</span>}
      {read === undefined ? (
        <Button variant="default" size="xs" onClick={() => void run()}>Export as CSV</Button>
      ) : (
        <>
          <span className="small">{plural(read, 'row')} read</span>
          <Button variant="default" size="xs" onClick={() => stop.current?.abort()}>Stop</Button>
        </>
      )}
    </>
  )
}
