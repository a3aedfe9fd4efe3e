import { useState } from 'react'
import { Link } from 'wouter'
import { useGet } from '../api/hooks'
import type { Delivery, Webhook } from '../api/types'
import { none, plural, time } from '../lib/format'
import { useEvery } from '../live'
import { Ago } from '../parts/ago'
import { Empty, Load } from '../parts/load'
import { Page, Table } from '../parts/page'
import { Secret } from '../parts/secret'
import { failedShare, problem, WebhookState, webhookName } from '../parts/webhook'
import { WebhookForm } from '../parts/webhookform'

export default function Webhooks() {
  const webhooks = useGet<{ webhooks: Webhook[] }>('/v1/webhooks', { every: useEvery(10_000) })
  const [secret, setSecret] = useState<string>()
  const create = <WebhookForm saved={(w) => setSecret(w.secret)} />
  return (
    <Page title="Webhooks" lead="The service sends a signed request to your server when a job ends (Standard Webhooks)." actions={create}>
      <Load query={webhooks}>
        {({ webhooks }) =>
          webhooks.length === 0 ? (
            <Empty next={create}>No webhooks yet. With a webhook, your server need not ask whether a job has ended.</Empty>
          ) : (
            <Table label="Webhooks" heads={['Webhook', 'State', 'Failed deliveries', 'Events', 'Created']} less={['Failed deliveries', 'Events', 'Created']}>
              {webhooks.map((w) => (
                <tr key={w.id}>
                  <td className="wide">
                    <Link href={`/webhooks/${w.id}`}>{webhookName(w)}</Link>
                    <span className="id">{w.url}</span>
                  </td>
                  <td>
                    <WebhookState webhook={w} />
                    {!w.disabled && w.recent_deliveries?.failing && w.recent_deliveries.last_failure && <span className="reason">{problem(w.recent_deliveries.last_failure)}</span>}
                    {!!w.recent_deliveries?.failed && <Waiting webhook={w} />}
                  </td>
                  <td className="number">{failedShare(w) ?? none}</td>
                  <td className="wide">{w.events.join(', ') || 'every end of a job or a batch'}</td>
                  <td className="number" title={time(w.created_at)}><Ago t={w.created_at} /></td>
                </tr>
              ))}
            </Table>
          )
        }
      </Load>
      {secret && <Secret what="secret" secret={secret} close={() => setSecret(undefined)} />}
    </Page>
  )
}

// Waiting says how many of the newest deliveries of a webhook wait for an attempt, and how old the oldest is.
function Waiting({ webhook: w }: { webhook: Webhook }) {
  const { data } = useGet<{ deliveries: Delivery[]; next_cursor: string | null }>(`/v1/webhooks/${w.id}/deliveries?limit=100`, { every: useEvery(10_000) })
  const waiting = data?.deliveries.filter((d) => d.state === 'pending') ?? []
  if (waiting.length === 0) return null
  const count = plural(waiting.length, 'delivery waits', 'deliveries wait')
  return (
    <span className="reason">
      {data!.next_cursor ? `At least ${count}.` : <>{count}. The oldest event happened <Ago t={waiting.at(-1)!.created_at} />.</>}
    </span>
  )
}
