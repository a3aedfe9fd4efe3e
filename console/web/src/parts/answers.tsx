import { Link } from 'wouter'
import type { PreviewRow } from '../api/types'
import { parseObject, splitAnswer } from '../lib/answer'
import { number, text } from '../lib/format'
import { Cut } from './cut'
import { Status } from './job'
import { Table } from './page'
import { cell, shownProperties } from './rowlist'

const shown = 2_000 // characters of a text

const answerOf = (r?: PreviewRow) => splitAnswer(text(r?.output)).answer

type AnswersProps = { label: string; job: string; rows: PreviewRow[]; brief?: boolean; earlier?: { name: string; rows: PreviewRow[] } }

// Answers shows rows of a job with their answers. If all answers are JSON objects, their properties are
// columns. Long texts are cut; without brief, a click shows all. earlier has rows of another job: their
// answers to equal inputs are shown, too: other values of properties are struck through.
export function Answers({ label, job, rows, brief, earlier }: AnswersProps) {
  const cut = (t: string) => (brief ? <span className="clamp">{t.slice(0, shown)}</span> : <Cut text={t} lines={4} perLine={30} />)
  const values = rows.filter((r) => r.status === 'done').map((r) => parseObject(answerOf(r)))
  const properties = brief || !values.every((v) => v) ? [] : [...new Set(values.flatMap((v) => Object.keys(v!)))].slice(0, shownProperties)
  const before = new Map(earlier?.rows.map((r) => [text(r.input), answerOf(r)]))
  const isBeside = properties.length === 0 && rows.some((r) => before.has(text(r.input)))
  const heads = properties.length > 0 ? properties : isBeside ? ['Answer', `Answer of ${earlier!.name}`] : ['Answer']
  return (
    <Table label={label} heads={['Row', 'Input', ...heads]} less={brief ? [] : ['Row']}>
      {rows.map((r) => {
        const [value, old] = [parseObject(answerOf(r)), before.get(text(r.input))]
        const oldValue = old === undefined ? undefined : parseObject(old)
        return (
          <tr key={r.row} data-row={r.row}>
            <td className="number">{number(r.row)}</td>
            <td className="wide" dir="auto">{cut(text(r.input))}</td>
            {properties.length > 0 && value ? (
              properties.map((p) => (
                <td key={p} className="wide value-of" data-name={p} dir="auto">
                  {oldValue && cell(oldValue[p]) !== cell(value[p]) ? <span className="output"><del>{cell(oldValue[p])}</del> <ins>{cut(cell(value[p]))}</ins></span> : cut(cell(value[p]))}
                </td>
              ))
            ) : (
              <td className="wide" data-name={heads.length > 1 ? 'Answer' : undefined} colSpan={Math.max(1, properties.length)} dir="auto">
                {r.status === 'pending' ? '…' : r.code ? <><Status is="failed">{r.code}</Status> <Link href={`/jobs/${job}/rows?row=${r.row}&open=${r.row}`} aria-label={`Why row ${r.row} failed`}>why</Link></> : cut(answerOf(r))}
              </td>
            )}
            {isBeside && <td className="wide" data-name={heads[1]} dir="auto">{old !== undefined && cut(old)}</td>}
          </tr>
        )
      })}
    </Table>
  )
}
