import { useState, type ReactNode } from 'react'

// Cut shows the first lines of a text, and all of it on a click. children shows the text in another way.
// perLine is how many characters fit in a line of a narrow column.
export function Cut({ text, lines = 3, perLine = 40, children }: { text: string; lines?: number; perLine?: number; children?: (open: boolean) => ReactNode }) {
  const [open, setOpen] = useState(false)
  const long = text.length > lines * perLine || text.split('\n').length > lines
  return (
    <>
      <span className={long && !open ? 'output clamp' : 'output'} style={{ WebkitLineClamp: lines }}>{children?.(open) ?? (open ? text : text.slice(0, 1_000))}</span>
      {long && <button type="button" className="link small" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? 'less' : 'more'}</button>}
    </>
  )
}
