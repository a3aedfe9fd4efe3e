import { useState } from 'react'
import { Button, Checkbox, Modal, TextInput } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { send } from '../api/client'
import { useAct } from '../api/hooks'
import type { Webhook } from '../api/types'

const events = ['job.succeeded', 'job.failed', 'job.cancelled', 'batch.completed', 'batch.failed', 'batch.expired', 'batch.cancelled']

type FormProps = { webhook?: Webhook; saved?: (w: Webhook) => void }

// WebhookForm is a button with a form. It changes a webhook, or adds one if there is none.
export function WebhookForm({ webhook: w, saved }: FormProps) {
  const [open, { open: ask, close }] = useDisclosure()
  return (
    <>
      <Button variant={w ? 'default' : 'filled'} onClick={ask}>{w ? 'Edit' : 'Add a webhook'}</Button>
      <Modal opened={open} onClose={close} title={w ? 'Edit the webhook' : 'Add a webhook'}>
        {open && <Fields webhook={w} saved={(made) => { close(); saved?.(made) }} />}
      </Modal>
    </>
  )
}

function Fields({ webhook: w, saved }: FormProps) {
  const [url, setURL] = useState(w?.url ?? '')
  const [description, setDescription] = useState(w?.description ?? '')
  const [wanted, setWanted] = useState<string[]>(w?.events ?? [])
  const save = useAct(() => send<Webhook>(w ? 'PATCH' : 'POST', `/v1/webhooks${w ? `/${w.id}` : ''}`, { url, description, events: wanted }), {
    done: () => (w ? 'The webhook is changed.' : null),
    paths: ['/v1/webhooks'],
  })
  return (
    <form
      className="stack"
      onSubmit={(e) => {
        e.preventDefault()
        save.mutate(undefined, { onSuccess: saved })
      }}
    >
      <TextInput label="Address" type="url" required withAsterisk={false} data-autofocus placeholder="https://…" value={url} onChange={(e) => setURL(e.currentTarget.value)} />
      <TextInput label="Description" maxLength={256} value={description} onChange={(e) => setDescription(e.currentTarget.value)} />
      <Checkbox.Group label="Events" description="If you choose none, the service sends all of them." value={wanted} onChange={setWanted}>
        <div className="stack tight">{events.map((e) => <Checkbox key={e} value={e} label={e} />)}</div>
      </Checkbox.Group>
      <Button type="submit" loading={save.isPending}>{w ? 'Save' : 'Add it'}</Button>
    </form>
  )
}
