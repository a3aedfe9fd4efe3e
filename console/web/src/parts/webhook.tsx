import type { DeliveryAttempt, Webhook } from '../api/types'
import { number } from '../lib/format'
import { Status } from './job'

const answer = (a: DeliveryAttempt) => (a.status ? `HTTP ${a.status}` : (a.error ?? 'unknown reason'))

// outcome says how an attempt ended, and after which time if it is not very short.
export const outcome = (a: DeliveryAttempt) => `${a.status ? '' : 'no answer: '}${answer(a)}${a.duration_seconds < 0.01 ? '' : ` after ${a.duration_seconds.toFixed(2)} s`}`

// problem says why an attempt failed.
export const problem = (a: DeliveryAttempt) => (a.status ? `The receiver answered ${answer(a)}.` : `The receiver gave no answer: ${answer(a)}.`)

// isBroken reports whether a webhook needs a person: it is disabled, or its newest deliveries all failed.
export const isBroken = (w: Webhook) => w.disabled || !!w.recent_deliveries?.failing

// webhookName returns the description of a webhook, or the host of its address.
export const webhookName = (w: Webhook) => w.description || new URL(w.url).host

// failedShare says how many of a webhook's newest deliveries failed, or nothing without deliveries.
export const failedShare = (w: Webhook) =>
  w.recent_deliveries?.attempted ? `${number(w.recent_deliveries.failed)} of ${number(w.recent_deliveries.attempted)}` : undefined

export function WebhookState({ webhook: w }: { webhook: Webhook }) {
  if (w.disabled) return <Status is="failed">{w.disabled_reason ?? 'disabled'}</Status>
  if (isBroken(w)) return <Status is="failed">failing</Status>
  return w.recent_deliveries?.failed ? <Status is="starting">some failed</Status> : <Status is="succeeded">enabled</Status>
}
