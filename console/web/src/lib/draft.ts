import { useEffect, useState } from 'react'

const prefix = 'draft:'

// useDraft is useState with a copy in the session storage of this tab. The value survives
// leaving the page, a reload, and the end of the session. A value that is too large for the
// storage, or that is still the first value, has no copy. The last result reports whether the
// value comes from a copy.
export function useDraft<T>(name: string, initial: T) {
  const key = prefix + name
  const [first] = useState(initial)
  const [kept] = useState(() => sessionStorage.getItem(key))
  const [value, set] = useState<T>(kept ? { ...first, ...JSON.parse(kept) } : first)
  useEffect(() => {
    try {
      if (value === first) sessionStorage.removeItem(key)
      else sessionStorage.setItem(key, JSON.stringify(value))
    } catch {
      sessionStorage.removeItem(key)
    }
  }, [key, value])
  return [value, set, !!kept] as const
}

// dropDrafts removes the drafts whose names begin with start. A page that is left keeps its
// value, but writes no new copy.
export function dropDrafts(start = '') {
  for (const key of Object.keys(sessionStorage)) if (key.startsWith(prefix + start)) sessionStorage.removeItem(key)
}
