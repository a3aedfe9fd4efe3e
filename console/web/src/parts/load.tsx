import type { ReactNode } from 'react'
import { Button, Skeleton } from '@mantine/core'
import type { UseQueryResult } from '@tanstack/react-query'
import { ApiError } from '../api/client'
import { Page } from './page'

// Load shows the state of a query: a skeleton, the data, or the last data, dimmed, with
// the error above. title is the page title until the data is loaded.
export function Load<T>({ query, title, children }: { query: UseQueryResult<T, ApiError>; title?: string; children: (data: T) => ReactNode }) {
  const again = () => void query.refetch()
  if (query.data === undefined) {
    const instead = query.error ? <Problem error={query.error} again={again} /> : <Waiting />
    return title ? <Page title={title}>{instead}</Page> : instead
  }
  return (
    <>
      {query.error && <Problem error={query.error} again={again} />}
      <div className={query.error ? 'stale' : undefined}>{children(query.data)}</div>
    </>
  )
}

export function Waiting() {
  return (
    <div className="stack" role="status" aria-label="Loading">
      <Skeleton height={28} width="40%" />
      <Skeleton height={90} />
      <Skeleton height={90} />
    </div>
  )
}

export function Problem({ error, again }: { error: Error; again?: () => void }) {
  const e = error instanceof ApiError ? error : null
  return (
    <div className="problem" role="alert">
      <p>
        <strong>{error.message}</strong>
      </p>
      {e && (e.fields.length > 1 || e.fields.some((f) => !error.message.includes(f.message))) && (
        <ul>
          {e.fields.map((f) => (
            <li key={f.field + f.message}>
              <code>{f.field}</code>: {f.message}
            </li>
          ))}
        </ul>
      )}
      {e && (e.code || e.requestID) && (
        <p className="small">
          {e.code && <>Code <code>{e.code}</code>. </>}
          {e.requestID && <>Request <code>{e.requestID}</code>.</>}
        </p>
      )}
      {again && (
        <Button size="xs" variant="default" onClick={again}>
          Try again
        </Button>
      )}
    </div>
  )
}

export function Empty({ children, next }: { children: ReactNode; next?: ReactNode }) {
  return (
    <div className="empty">
      <p>{children}</p>
      {next}
    </div>
  )
}
