import { Fragment } from 'react'
import { useGet } from '../api/hooks'
import type { Job, Preview, Row } from '../api/types'
import { indent, splitAnswer } from '../lib/answer'
import { clock, day, none, number, sentence, text, tokens, took } from '../lib/format'
import { Code } from './copy'
import { Status } from './job'
import { Load } from './load'
import { Facts, Table } from './page'
import { SimulatedAnswer } from './simulated'

export function WholeRow({ job, row }: { job: Job; row: number }) {
  const whole = useGet<Row>(`/v1/jobs/${job.job_id}/rows/${row}`)
  const id = useGet<Preview>(`/v1/jobs/${job.job_id}/preview?offset=${row}&limit=1`, { fresh: 60_000 }).data?.rows[0]?.id
  return (
    <Load query={whole}>
      {(r) => (
        <div className="stack">
          {id && <p>ID <strong dir="auto">{id}</strong></p>}
          {r.error && <Failure error={r.error} />}
          <SimulatedAnswer output={r.output} />
          <h3>Input</h3>
          <Code label="Input" text={text(r.input)} />
          {!r.error && <Answer output={r.output} />}
          {r.error?.raw_output && (
            <>
              <h3>Raw answer of the server</h3>
              <Code label="Raw answer" text={indent(r.error.raw_output)} />
            </>
          )}
          {(job.prompt || job.system_prompt) && (
            <details>
              <summary>Prompt of the job</summary>
              <div className="stack tight">
                {job.system_prompt && <Code label="System prompt" text={job.system_prompt} />}
                {job.prompt && <Code label="Prompt" text={job.prompt} />}
              </div>
            </details>
          )}
          <Facts
            facts={([
              ['Finish reason', r.finish_reason ?? none],
              ['Tokens in', tokens(r.input_tokens, !!r.error)],
              ['Tokens out', tokens(r.output_tokens, !!r.error)],
              ['Time', took(r.duration_seconds)],
              ['Attempts', number(r.attempts)],
              ['Engine', r.engine || none],
            ] as [string, string][]).filter(([, value]) => value !== none)}
          />
          <Attempts row={r} />
        </div>
      )}
    </Load>
  )
}

// firstAttempts is the number of kept attempts before the omitted attempts.
const firstAttempts = 3

function Attempts({ row }: { row: Row }) {
  const { attempt_log: kept, attempts_omitted: omitted } = row
  if (kept.length === 0) return row.attempts > 1 ? <p className="small">The service has no record of the attempts.</p> : null
  const all = kept.length + omitted
  return (
    <>
      <h3>Attempts</h3>
      <Table label="Attempts" heads={['When', 'Took', 'Server', 'How it ended']} less={['Took', 'Server']}>
        {kept.map((a, i) => (
          <Fragment key={i}>
            {omitted > 0 && i === firstAttempts && (
              <tr>
                <td colSpan={4}>{number(omitted)} more, which the service did not keep</td>
              </tr>
            )}
            <tr>
              <td className="number">
                {clock(a.at)} {(i === 0 || day(a.at) !== day(kept[i - 1]!.at)) && <span className="id">{day(a.at)}</span>}
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

const Failure = ({ error }: { error: NonNullable<Row['error']> }) => (
  <div className="problem" role="note">
    <p>
      <strong>{sentence(error.message)}</strong>
    </p>
    <p className="small">
      Code <code>{error.code}</code>. The row has no answer.
    </p>
  </div>
)

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
      <h3>Answer</h3>
      <Code label="Answer" text={indent(answer)} />
    </>
  )
}
