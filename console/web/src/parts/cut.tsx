import { useState, type ReactNode } from 'react'

// Cut shows the first lines of a text from a start on, and all of it on a click. children shows the text from
// a position on in another way.
// perLine is how many characters fit in a line of a narrow column.
export function Cut({ text, start = 0, lines = 3, perLine = 40, children }: { text: string; start?: number; lines?: number; perLine?: number; children?: (open: boolean, from: number) => ReactNode }) {
  const [open, setOpen] = useState(false)
  const long = text.length > lines * perLine || text.split('\n').length > lines
  const from = long && !open ? start : 0
  return (
    <>
      <span className={long && !open ? 'output clamp' : 'output'} style={{ WebkitLineClamp: lines }}>{from > 0 && '…'}{children?.(open, from) ?? (open ? text : text.slice(from, from + 1_000))}</span>
      {long && <button type="button" className="link small" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? 'less' : 'more'}</button>}
    </>
  )
}
