import { diff, lines } from '../lib/diff'
import { plural } from '../lib/format'

const signs = { ' ': 'same', '-': 'removed', '+': 'added' }

const context = 3 // lines before and after a change

// Diff shows the lines that differ between two texts, with the lines around them.
export function Diff({ from, to }: { from: string; to: string }) {
  const pieces = diff(lines(from), lines(to))
  if (!pieces) return <p className="small">The texts are too long to compare.</p>
  const isNear = (i: number) => pieces.slice(Math.max(0, i - context), i + context + 1).some((l) => l.sign !== ' ')
  return (
    <div className="diff" role="region" aria-label="Difference" tabIndex={0}>
      {pieces.map((l, i) => {
        if (isNear(i))
          return (
            <div key={i} data-sign={signs[l.sign]}>
              <span aria-label={l.sign === ' ' ? undefined : signs[l.sign]} role={l.sign === ' ' ? undefined : 'img'}>{l.sign}</span> {l.text}
            </div>
          )
        if (i > 0 && !isNear(i - 1)) return null
        const next = pieces.findIndex((_, j) => j > i && isNear(j))
        return <div key={i} className="small">… {plural((next < 0 ? pieces.length : next) - i, 'equal line')}</div>
      })}
    </div>
  )
}
