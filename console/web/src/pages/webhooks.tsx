import { useState } from 'react'
import { Button, Checkbox, Modal, TextInput } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { Link } from 'wouter'
import { send } from '../api/client'
import { useAct, useGet } from '../api/hooks'
import type { Webhook } from '../api/types'
import { none, time } from '../lib/format'
import { useEvery } from '../live'
import { Ago } from '../parts/ago'
import { Empty, Load } from '../parts/load'
import { Page, Table } from '../parts/page'
import { Secret } from '../parts/secret'
import { failedShare, problem, WebhookState, webhookName } from '../parts/webhook'

const events = ['job.succeeded', 'job.failed', 'job.cancelled', 'batch.completed', 'batch.failed', 'batch.expired', 'batch.cancelled']

export default function Webhooks() {
  const webhooks = useGet<{ webhooks: Webhook[] }>('/v1/webhooks', { every: useEvery(10_000) })
  const [secret, setSecret] = useState<string>()
  return (
    <Page title="Webhooks" lead="The service sends a signed request to your server when a job ends (Standard Webhooks)." actions={<Create made={setSecret} />}>
      <Load query={webhooks}>
        {({ webhooks }) =>
          webhooks.length === 0 ? (
            <Empty next={<Create made={setSecret} />}>No webhooks yet. With a webhook, your server need not ask whether a job has ended.</Empty>
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

function Create({ made }: { made: (secret: string) => void }) {
  const [open, { open: ask, close }] = useDisclosure()
  const [url, setURL] = useState('')
  const [description, setDescription] = useState('')
  const [wanted, setWanted] = useState<string[]>([])
  const create = useAct(() => send<Webhook>('POST', '/v1/webhooks', { url, description, events: wanted }), { paths: ['/v1/webhooks'] })
  return (
    <>
      <Button onClick={ask}>Add a webhook</Button>
      <Modal opened={open} onClose={close} title="Add a webhook">
        <form
          className="stack"
          onSubmit={(e) => {
            e.preventDefault()
            create.mutate(undefined, {
              onSuccess: (w) => {
                close()
                if (w.secret) made(w.secret)
              },
            })
          }}
        >
          <TextInput label="Address" type="url" required withAsterisk={false} data-autofocus placeholder="https://…" value={url} onChange={(e) => setURL(e.currentTarget.value)} />
          <TextInput label="Description" maxLength={256} value={description} onChange={(e) => setDescription(e.currentTarget.value)} />
          <Checkbox.Group label="Events" description="If you choose none, the service sends all of them." value={wanted} onChange={setWanted}>
            <div className="stack tight">{events.map((e) => <Checkbox key={e} value={e} label={e} />)}</div>
          </Checkbox.Group>
          <Button type="submit" loading={create.isPending}>Add it</Button>
        </form>
      </Modal>
    </>
  )
}
