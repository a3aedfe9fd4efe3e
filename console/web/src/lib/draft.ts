import { useEffect, useState } from 'react'

const prefix = 'draft:'

// useDraft is useState with a copy in the session storage of this tab. The value survives
// leaving the page, a reload, and the end of the session. A value that is too large for the
// storage has no copy.
export function useDraft<T>(name: string, initial: T, fresh = false) {
  const key = prefix + name
  const [value, set] = useState<T>(() => {
    const kept = fresh ? null : sessionStorage.getItem(key)
    return kept ? { ...initial, ...JSON.parse(kept) } : initial
  })
  useEffect(() => {
    try {
      sessionStorage.setItem(key, JSON.stringify(value))
    } catch {
      sessionStorage.removeItem(key)
    }
  }, [key, value])
  return [value, set] as const
}

// dropDrafts removes the drafts whose names begin with start. A page that is left keeps its
// value, but writes no new copy.
export function dropDrafts(start = '') {
  for (const key of Object.keys(sessionStorage)) if (key.startsWith(prefix + start)) sessionStorage.removeItem(key)
}
