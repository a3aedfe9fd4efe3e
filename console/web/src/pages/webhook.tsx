import { useState } from 'react'
import { Button } from '@mantine/core'
import { useMediaQuery } from '@mantine/hooks'
import { useQueryClient } from '@tanstack/react-query'
import { Link, useLocation, useParams } from 'wouter'
import { send } from '../api/client'
import { useAct, useGet, usePages } from '../api/hooks'
import type { Delivery, DeliveryAttempt, Webhook } from '../api/types'
import { duration, none, number, time, until } from '../lib/format'
import { useEvery } from '../live'
import { Ago } from '../parts/ago'
import { Confirm } from '../parts/confirm'
import { Code } from '../parts/copy'
import { Status } from '../parts/job'
import { nameOf, useJobs } from '../parts/jobnames'
import { Empty, Load } from '../parts/load'
import { Card, Facts, Long, More, Page, Table } from '../parts/page'
import { Secret } from '../parts/secret'
import { outcome, WebhookState, webhookName } from '../parts/webhook'
import { WebhookForm } from '../parts/webhookform'

type Tried = { event: string; delivered: boolean; attempt: DeliveryAttempt }

export default function WebhookPage() {
  const { id } = useParams<{ id: string }>()
  const webhook = useGet<Webhook>(`/v1/webhooks/${id}`, { every: useEvery(5_000) })
  return <Load query={webhook} title="Webhook">{(w) => <Detail webhook={w} />}</Load>
}

function Detail({ webhook: w }: { webhook: Webhook }) {
  const path = `/v1/webhooks/${w.id}`
  const [, go] = useLocation()
  const [secret, setSecret] = useState<string>()
  const tried = useAct(() => send<Tried>('POST', `${path}/test`), {
    done: (r) => `${r.event}: ${r.delivered ? 'accepted, ' : r.attempt.status ? 'rejected, ' : ''}${outcome(r.attempt)}`,
    refused: (r) => !r.delivered,
    paths: [path],
  })
  const turn = useAct(() => send('PATCH', path, { disabled: !w.disabled }), { paths: ['/v1/webhooks'] })
  const rotate = useAct(() => send<Webhook>('POST', `${path}/rotate`), { paths: [path] })
  const remove = useAct(() => send('DELETE', path), { done: () => 'The webhook is deleted.' })
  const client = useQueryClient()
  const left = () => {
    client.removeQueries({ queryKey: ['/v1/webhooks'], exact: true }) // so that the list is read again without the deleted webhook
    go('/webhooks')
  }
  return (
    <Page
      title={`Webhook: ${webhookName(w)}`}
      actions={
        <>
          <Button loading={tried.isPending} onClick={() => tried.mutate()}>Send a test</Button>
          <WebhookForm webhook={w} />
          <Button variant="default" loading={turn.isPending} onClick={() => turn.mutate()}>{w.disabled ? 'Enable' : 'Disable'}</Button>
          <Confirm button="Rotate secret" title="Rotate the secret" act={() => rotate.mutate(undefined, { onSuccess: (r) => setSecret(r.secret) })}>
            The old secret stays valid for 24 hours.
          </Confirm>
          <Confirm button="Delete" title="Delete the webhook" act={() => remove.mutate(undefined, { onSuccess: left })}>
            The service deletes the events that still wait, and never sends them.
          </Confirm>
        </>
      }
    >
      {w.recent_deliveries?.last_failure && <LastFailure webhook={w} attempt={w.recent_deliveries.last_failure} />}
      <Card>
        <Facts
          facts={[
            ['Address', w.url],
            ['State', <WebhookState key="s" webhook={w} />],
            ['Events', w.events.join(', ') || 'every end of a job or a batch'],
            ['Secret', `${w.secret_prefix}…`],
            ['Created', time(w.created_at)],
          ]}
        />
      </Card>
      <Deliveries path={path} />
      {secret && <Secret what="secret" secret={secret} close={() => setSecret(undefined)} />}
    </Page>
  )
}

function LastFailure({ webhook: w, attempt: a }: { webhook: Webhook; attempt: DeliveryAttempt }) {
  return (
    <div className={w.recent_deliveries?.failing ? 'problem' : 'warning'} role="note">
      <p>
        <strong>{w.recent_deliveries!.attempted === 1 ? 'The last delivery failed.' : `${number(w.recent_deliveries!.failed)} of the last ${number(w.recent_deliveries!.attempted)} deliveries failed.`}</strong> The last failed attempt: {outcome(a)}, <Ago t={a.at} />.
      </p>
      {a.error && a.status && <p>{a.error}</p>}
      {a.answer && (a.answer.length <= 80 ? <p>Answer: <code>{a.answer}</code></p> : <Code label="Answer" text={a.answer} />)}
    </div>
  )
}

const looks = { pending: 'starting', delivered: 'succeeded', failed: 'failed' }

// stateOf returns the state of a delivery to show. A pending delivery with an attempt waits for the next one.
const stateOf = (d: Delivery) => (d.state === 'pending' && d.attempts.length > 0 ? 'retrying' : d.state)

const fewDeliveries = 10 // how many a phone shows at first

function Deliveries({ path }: { path: string }) {
  const pages = usePages<{ deliveries: Delivery[]; next_cursor: string | null }>(`${path}/deliveries?limit=50`, (p) => p.next_cursor, 'cursor', useEvery(5_000))
  const deliveries = pages.data?.pages.flatMap((p) => p.deliveries) ?? []
  const phone = useMediaQuery('(max-width: 36em)')
  const [all, showAll] = useState(false)
  const shown = phone && !all ? deliveries.slice(0, fewDeliveries) : deliveries
  const jobs = useJobs()
  const pending = deliveries.filter((d) => d.state === 'pending').map((d) => d.id)
  const redeliver = useAct((ids: string[]) => Promise.all(ids.map((id) => send('POST', `${path}/deliveries/${id}/redeliver`))), {
    done: (sent) => `The service sends ${sent.length === 1 ? 'the event' : `${number(sent.length)} events`} now.`,
    paths: [path],
  })
  return (
    <Card
      title="Deliveries"
      actions={pending.length > 1 && <Button size="xs" variant="default" loading={redeliver.isPending} onClick={() => redeliver.mutate(pending)}>Send all {number(pending.length)} now</Button>}
    >
      <Load query={pages}>
        {() =>
          deliveries.length === 0 ? (
            <Empty>The service has sent no event yet. Send a test to check the address.</Empty>
          ) : (
            <>
              <Table label="Deliveries" heads={['Job', 'State', 'Attempts', 'Last answer', 'Happened', 'Next attempt', 'Actions']} less={['Attempts', 'Last answer', 'Happened', 'Next attempt']}>
                {shown.map((d) => {
                  const last = d.attempts.at(-1)
                  const next = d.next_attempt_at && `in ${duration(Math.max(0, (Date.parse(d.next_attempt_at) - Date.now()) / 1000))}`
                  return (
                    <tr key={d.id}>
                      <td>
                        {d.job_id && <Link href={`/jobs/${d.job_id}`}>{nameOf(jobs, d.job_id)}</Link>}
                        <span className={d.job_id ? 'reason' : undefined}>{d.event}</span>
                      </td>
                      <td>
                        <Status is={looks[d.state]}>{stateOf(d)}</Status>
                        {last && <span className="reason narrow-only">{outcome(last)}</span>}
                        {last && next && <span className="reason narrow-only"><span className="unbroken">again {until(d.next_attempt_at)}</span></span>}
                      </td>
                      <td className="number">{number(d.attempts.length)}</td>
                      <td className="wide">{last ? <>{outcome(last)} <Long text={last.answer} /></> : none}</td>
                      <td className="number"><Ago t={d.created_at} /></td>
                      <td className="number">{next ?? none}</td>
                      <td className="acts">
                        <button type="button" className="link" onClick={() => redeliver.mutate([d.id])} aria-label={`Send ${d.state === 'pending' ? 'now' : 'again'}: ${d.event} of ${d.job_id ?? 'the test'}`}>
                          {d.state === 'pending' ? 'Send now' : 'Send again'}
                        </button>
                      </td>
                    </tr>
                  )
                })}
              </Table>
              <More
                of={shown.length < deliveries.length ? { hasNextPage: true, isFetchingNextPage: false, fetchNextPage: () => showAll(true) } : pages}
                count={`${number(shown.length)} of ${pages.hasNextPage ? 'more' : number(deliveries.length)} shown`}
              />
            </>
          )
        }
      </Load>
    </Card>
  )
}
