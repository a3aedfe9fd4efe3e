import type { ReactNode } from 'react'
import { Button } from '@mantine/core'
import { useClickOutside, useDisclosure } from '@mantine/hooks'

// MoreActions is a button that shows more buttons. They stay in the page when the list closes, because
// their dialogs then open.
export function MoreActions({ children }: { children: ReactNode }) {
  const [open, { toggle, close }] = useDisclosure()
  const area = useClickOutside<HTMLSpanElement>(close)
  return (
    <span className="more-actions" ref={area} onKeyDown={(e) => e.key === 'Escape' && close()}>
      <Button variant="default" size="sm" onClick={toggle} aria-label="More actions" aria-expanded={open}>…</Button>
      <div className="menu" hidden={!open} onClick={close}>{children}</div>
    </span>
  )
}
