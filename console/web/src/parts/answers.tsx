import { Link } from 'wouter'
import type { PreviewRow } from '../api/types'
import { splitAnswer } from '../lib/answer'
import { number, text } from '../lib/format'
import { Status } from './job'
import { Table } from './page'

const shown = 2_000 // characters of a text

// Answers shows rows of a job with their answers. With brief, long texts are cut, else only on a phone.
export function Answers({ label, job, rows, brief }: { label: string; job: string; rows: PreviewRow[]; brief?: boolean }) {
  const look = brief ? 'clamp' : 'clamp long'
  return (
    <Table label={label} heads={['Row', 'Input', 'Answer']} less={brief ? [] : ['Row']}>
      {rows.map((r) => (
        <tr key={r.row}>
          <td className="number">{number(r.row)}</td>
          <td className="wide" dir="auto"><span className={look}>{text(r.input).slice(0, shown)}</span></td>
          <td className="wide" dir="auto">
            {r.status === 'pending' ? '…' : r.code ? <><Status is="failed">{r.code}</Status> <Link href={`/jobs/${job}/rows?row=${r.row}&open=${r.row}`} aria-label={`Why row ${r.row} failed`}>why</Link></> : (
              <span className={look}>
                {splitAnswer(text(r.output)).answer.slice(0, shown)}
              </span>
            )}
          </td>
        </tr>
      ))}
    </Table>
  )
}
