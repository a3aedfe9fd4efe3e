import { useEffect, useId, useRef, type ReactNode } from 'react'
import { Button, type ButtonProps } from '@mantine/core'
import { useMediaQuery } from '@mantine/hooks'
import { Link } from 'wouter'

export function Page({ title, actions, children, lead }: { title: string; actions?: ReactNode; lead?: ReactNode; children: ReactNode }) {
  useEffect(() => {
    document.title = `${title} · Rowmill`
  }, [title])
  return (
    <>
      <header className="title head">
        <h1>{title}</h1>
        {actions && <div className="actions">{actions}</div>}
      </header>
      {lead && <p className="lead">{lead}</p>}
      <div className="stack">{children}</div>
    </>
  )
}

export function Card({ title, actions, children }: { title?: string; actions?: ReactNode; children: ReactNode }) {
  const id = useId()
  return (
    <section className="card" aria-labelledby={title ? id : undefined}>
      {title && (
        <header className="title">
          <h2 id={id}>{title}</h2>
          {actions && <div className="actions">{actions}</div>}
        </header>
      )}
      {children}
    </section>
  )
}

// useShown returns the ref of an element that the page scrolls to when id changes. In a column beside the form
// it scrolls no further than it must.
export function useShown(id: string | undefined) {
  const element = useRef<HTMLDivElement>(null)
  const before = useRef(id)
  useEffect(() => {
    if (id && id !== before.current) element.current?.scrollIntoView({ block: matchMedia('(min-width: 75em)').matches ? 'nearest' : 'start' })
    before.current = id
  }, [id])
  return element
}

export const LinkButton = ({ href, children, ...rest }: ButtonProps & { href: string; children: ReactNode }) => (
  <Button component={Link} href={href} {...rest}>
    {children}
  </Button>
)

// Facts shows facts side by side; long facts get the whole width.
export function Facts({ facts }: { facts: [string, ReactNode, 'long'?][] }) {
  return (
    <dl className="facts">
      {facts.map(([name, value, length]) => (
        <div key={name} className={length}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  )
}

// Table scrolls sideways on narrow screens, also by keyboard. With less, its cells wrap on a
// phone, and the columns with these heads are hidden there; "" names heads that are no texts. foot holds the row of totals.
export function Table({ label, heads, less, foot, children }: { label: string; heads: ReactNode[]; less?: string[]; foot?: ReactNode; children: ReactNode }) {
  const hidden = heads.flatMap((h, i) => (less?.includes(typeof h === 'string' ? h : '') ? [i + 1] : []))
  return (
    <div className="scroll" role="region" aria-label={label} tabIndex={0}>
      <table data-less={less && hidden.join(' ')}>
        <thead>
          <tr>
            {heads.map((h, i) => (
              <th key={i} scope="col">
                {h}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
        {foot && <tfoot>{foot}</tfoot>}
      </table>
    </div>
  )
}

export function More({ of, count, button = 'Show more' }: {
  of: { hasNextPage: boolean; isFetchingNextPage: boolean; fetchNextPage: () => unknown }
  count: string
  button?: string
}) {
  return (
    <div className="more">
      <span role="status">{count}</span>
      {of.hasNextPage && (
        <Button variant="default" size="xs" loading={of.isFetchingNextPage} onClick={() => of.fetchNextPage()}>
          {button}
        </Button>
      )}
    </div>
  )
}

// Folded has its children behind a title on a phone.
export function Folded({ title, children }: { title: string; children: ReactNode }) {
  const phone = useMediaQuery('(max-width: 36em)')
  if (!phone) return children
  return (
    <details>
      <summary>{title}</summary>
      <div className="stack tight">{children}</div>
    </details>
  )
}

// Long folds text that would make a table row tall.
export function Long({ text, summary }: { text: string; summary?: string }) {
  if (text.length <= 80) return <>{text}</>
  return (
    <details className={summary ? undefined : 'line'}>
      <summary>{summary ?? text}</summary>
      {summary && text}
    </details>
  )
}
