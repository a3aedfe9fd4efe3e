import { useState, type ReactNode } from 'react'

const lines = 3
const short = 40 * lines // characters that fit in the lines of a narrow column

// Cut shows the first lines of a text, and all of it on a click. children shows the text in another way.
export function Cut({ text, children }: { text: string; children?: (open: boolean) => ReactNode }) {
  const [open, setOpen] = useState(false)
  const long = text.length > short || text.split('\n').length > lines
  return (
    <>
      <span className={long && !open ? 'output clamp' : 'output'}>{children?.(open) ?? (open ? text : text.slice(0, 1_000))}</span>
      {long && <button type="button" className="link small" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? 'less' : 'more'}</button>}
    </>
  )
}
