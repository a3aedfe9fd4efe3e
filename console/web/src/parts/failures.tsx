import { Link } from 'wouter'
import { query } from '../api/client'
import { useCan, useGet } from '../api/hooks'
import type { ErrorCounts, Job, Row, RowError } from '../api/types'
import { none, number, plural, sentence, text } from '../lib/format'
import { useEvery } from '../live'
import { over, recordPath, testRows } from './job'
import { Load } from './load'
import { Card, Long, Table } from './page'
import { mostTruncated, Retry, RetryLonger, truncatedCode } from './retry'

// Failures shows the failed rows of a job by error code.
export function Failures({ job, other }: { job: Job; other: boolean }) {
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
          {over(job.status) && !job.failure_reason && counts.data && !mostTruncated(counts.data) && <Retry job={job} size="xs" />}
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
                  <td className="wide">{sentence(e.message)}</td>
                  {act && (
                    <td>
                      <Link href={`/jobs/new${query({ like: job.job_id, rows: (byCode[e.code]?.slice(0, testRows).map((f) => f.row) ?? [e.first_row]).join(), longer: e.code === truncatedCode || undefined })}`} aria-label={`Test these rows: ${e.code}`}>
                        Test these rows
                      </Link>
                    </td>
                  )}
                </tr>
              ))}
            </Table>
            {act && truncated && over(job.status) && <RetryLonger job={job} truncated={truncated.rows} primary={!job.failure_reason && mostTruncated(c)} />}
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
  const shows = {
    code: examples.length > 1,
    raw: samples.some((e) => e.raw_output),
    why: samples.some((e) => !examples.includes(e.message)), // else the table above says why
  }
  return (
    <Table label="Samples of failed rows" heads={['Row', ...(shows.code ? ['Code'] : []), 'Input', ...(shows.raw ? ['Raw answer'] : []), ...(shows.why ? ['Why'] : [])]} less={['Code', ...(shows.why ? ['Raw answer'] : [])]}>
      {samples.map((e) => <Sample key={e.row} job={job} error={e} shows={shows} />)}
    </Table>
  )
}

function Sample({ job, error: e, shows }: { job: Job; error: RowError; shows: { code: boolean; raw: boolean; why: boolean } }) {
  const { data: row } = useGet<Row>(`/v1/jobs/${job.job_id}/rows/${e.row}`, { fresh: Infinity })
  return (
    <tr>
      <td className="number"><Link href={`/jobs/${job.job_id}/rows?row=${e.row}&open=${e.row}`}>{number(e.row)}</Link></td>
      {shows.code && <td><code>{e.code}</code></td>}
      <td className="wide" dir="auto"><Long text={row ? text(row.input) : '…'} /></td>
      {shows.raw && <td className="wide" dir="auto"><Long text={e.raw_output || none} /></td>}
      {shows.why && <td className="wide">{sentence(e.message)}</td>}
    </tr>
  )
}
