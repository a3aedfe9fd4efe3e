import { diff, lines } from '../lib/diff'

const signs = { ' ': 'same', '-': 'removed', '+': 'added' }

// Diff shows the lines that differ between two texts.
export function Diff({ from, to }: { from: string; to: string }) {
  const pieces = diff(lines(from), lines(to))
  if (!pieces) return <p className="small">The texts are too long to compare.</p>
  return (
    <div className="diff" role="region" aria-label="Difference" tabIndex={0}>
      {pieces.map((l, i) => (
        <div key={i} data-sign={signs[l.sign]}>
          <span aria-label={l.sign === ' ' ? undefined : signs[l.sign]} role={l.sign === ' ' ? undefined : 'img'}>{l.sign}</span> {l.text}
        </div>
      ))}
    </div>
  )
}
