import { Link } from 'wouter'
import type { PreviewRow } from '../api/types'
import { splitAnswer } from '../lib/answer'
import { number, text } from '../lib/format'
import { Cut } from './cut'
import { Status } from './job'
import { Table } from './page'

const shown = 2_000 // characters of a text

// Answers shows rows of a job with their answers. Long texts are cut; without brief, a click shows all.
export function Answers({ label, job, rows, brief }: { label: string; job: string; rows: PreviewRow[]; brief?: boolean }) {
  const cut = (t: string) => (brief ? <span className="clamp">{t.slice(0, shown)}</span> : <Cut text={t} lines={4} perLine={60} />)
  return (
    <Table label={label} heads={['Row', 'Input', 'Answer']} less={brief ? [] : ['Row']}>
      {rows.map((r) => (
        <tr key={r.row}>
          <td className="number">{number(r.row)}</td>
          <td className="wide" dir="auto">{cut(text(r.input))}</td>
          <td className="wide" dir="auto">
            {r.status === 'pending' ? '…' : r.code ? <><Status is="failed">{r.code}</Status> <Link href={`/jobs/${job}/rows?row=${r.row}&open=${r.row}`} aria-label={`Why row ${r.row} failed`}>why</Link></> : cut(splitAnswer(text(r.output)).answer)}
          </td>
        </tr>
      ))}
    </Table>
  )
}
