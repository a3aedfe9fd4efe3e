import { useSyncExternalStore } from 'react'
import { ago, duration } from '../lib/format'

const watchers = new Set<() => void>()
let clock: ReturnType<typeof setInterval> | undefined

// A page has one clock, and none if it shows no time.
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

/** Ago shows how long ago t was, and updates it while it is shown, also if the data of the page does not change. */
export function Ago({ t }: { t: Parameters<typeof ago>[0] }) {
  return useSyncExternalStore(watch, () => ago(t))
}

/** useElapsed returns how long ago t was, such as "12 s", and updates it while it is shown. */
export const useElapsed = (t: number) => useSyncExternalStore(watch, () => duration(Math.floor((Date.now() - t) / 1000)))
