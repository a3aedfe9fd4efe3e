import { Fragment } from 'react'
import { Link } from 'wouter'
import { query } from '../api/client'
import { useCan, useGet } from '../api/hooks'
import type { ErrorCounts, Job, Row, RowError } from '../api/types'
import { number, plural, sentence, text } from '../lib/format'
import { useEvery } from '../live'
import { over, recordPath, testRows } from './job'
import { Load } from './load'
import { Card, Long, Table } from './page'
import { mostTruncated, RetryLonger, truncatedCode } from './retry'

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
        !other && <Link href={`/jobs/${job.job_id}/rows?failed=1`}>View all failed rows</Link>
      }
    >
      <Load query={counts}>
        {(c) => {
          const said = c.counts.length === 1 && job.failure_reason?.code === 'too_many_failed_rows' // the reason of the job is this error
          const heads = ['Code', 'Rows', 'First row', ...(said ? [] : ['Example']), ...(act ? ['Actions'] : [])]
          const test = (code: string, first: number, className?: string) => (
            <Link className={className} href={`/jobs/new${query({ like: job.job_id, rows: (byCode[code]?.slice(0, testRows).map((f) => f.row) ?? [first]).join(), longer: code === truncatedCode || undefined })}`} aria-label={`Test these rows: ${code}`}>
              Test these rows
            </Link>
          )
          return <div className="stack">
            <Table label="Failures by code" heads={heads} less={['First row', 'Example', 'Actions']}>
              {c.counts.map((e) => <Fragment key={e.code}>
                <tr>
                  <td>
                    {other ? <code>{e.code}</code> : <Link href={`/jobs/${job.job_id}/rows${query({ failed: 1, code: e.code })}`}><code className="unbroken">{e.code}</code></Link>}
                    {!said && <span className="reason narrow-only">{sentence(e.message)}</span>}
                    {act && test(e.code, e.first_row, 'reason narrow-only')}
                  </td>
                  <td className="number">{number(e.rows)}</td>
                  <td className="number">
                    {other ? number(e.first_row) : (
                      <Link href={`/jobs/${job.job_id}/rows?row=${e.first_row}&open=${e.first_row}`} aria-label={`Row ${e.first_row}`}>
                        {number(e.first_row)}
                      </Link>
                    )}
                  </td>
                  {!said && <td className="wide">{sentence(e.message)}</td>}
                  {act && <td>{test(e.code, e.first_row)}</td>}
                </tr>
                <Samples job={job} code={e.code} errors={byCode[e.code]} example={e.message} columns={heads.length} />
              </Fragment>)}
            </Table>
            {act && truncated && over(job.status) && <RetryLonger job={job} truncated={truncated.rows} primary={!job.failure_reason && mostTruncated(c)} />}
            {c.counted < c.failed_rows && (
              <p className="small">
                {number(c.counted)} of {plural(c.failed_rows, 'failure')} are counted.
              </p>
            )}
          </div>
        }}
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

// Samples shows the first failed rows of a code, with input and raw answer. It is closed if the job succeeded.
function Samples({ job, code, errors, example, columns }: { job: Job; code: string; errors?: RowError[]; example: string; columns: number }) {
  if (!errors) return null
  const samples = errors.slice(0, samplesOfCode)
  return (
    <tr>
      <td colSpan={columns}>
        <details open={job.status !== 'succeeded'}>
          <summary className="small">{plural(samples.length, 'sample')}</summary>
          <ul className="samples" aria-label={`Samples of ${code}`}>
            {samples.map((e) => <Sample key={e.row} job={job} error={e} example={example} />)}
          </ul>
        </details>
      </td>
    </tr>
  )
}

function Sample({ job, error: e, example }: { job: Job; error: RowError; example: string }) {
  const { data: row } = useGet<Row>(`/v1/jobs/${job.job_id}/rows/${e.row}`, { fresh: Infinity })
  return (
    <li>
      <Link href={`/jobs/${job.job_id}/rows?row=${e.row}&open=${e.row}`}>Row {number(e.row)}</Link>
      <span dir="auto"><Long text={row ? text(row.input) : '…'} /></span>
      {e.raw_output && <span dir="auto"><Long text={`Raw answer: ${e.raw_output}`} /></span>}
      {e.message !== example && <span>{sentence(e.message)}</span>}
    </li>
  )
}
