import { useSyncExternalStore } from 'react'
import { ago } from '../lib/format'

const watchers = new Set<() => void>()
let clock: ReturnType<typeof setInterval> | undefined

// One clock a page, and none where no time is shown.
function watch(changed: () => void) {
  watchers.add(changed)
  clock ??= setInterval(() => watchers.forEach((w) => w()), 1000)
  return () => {
    watchers.delete(changed)
    if (watchers.size) return
    clearInterval(clock)
    clock = undefined
  }
}

/** How long ago t was, for as long as it is shown: a page whose data no longer changes grows older too. */
export function Ago({ t }: { t: Parameters<typeof ago>[0] }) {
  return useSyncExternalStore(watch, () => ago(t))
}
