import { useEffect, useRef } from 'react'
import { Button, Modal, SegmentedControl } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { useSearchParams } from 'wouter'
import { send } from '../api/client'
import { useAct, useCan, useGet } from '../api/hooks'
import type { Server, ServerLog } from '../api/types'
import { duration, none, sentence, time } from '../lib/format'
import { useEvery } from '../live'
import { Ago } from './ago'
import { Code } from './copy'
import { Ask } from './confirm'
import { Fault } from './fault'
import { Status } from './job'
import { Empty, Load } from './load'
import { Card, Table } from './page'

// useServers returns the servers that nodes start and stop; none before the first answer.
export function useServers(every: number | false) {
  const can = useCan()
  return useGet<{ servers: Server[] }>('/v1/servers', { enabled: can.operate, every: (data) => !!data && every }).data?.servers ?? []
}

const path = (s: Server) => `/v1/servers/${encodeURIComponent(s.node_id)}/${encodeURIComponent(s.name)}`

// outputHref is the address of the page with the output of a server.
export const outputHref = (s: Server) => `/engines?output=${encodeURIComponent(`${s.node_id}/${s.name}`)}`

const modes: Record<Server['mode'], string> = { auto: 'automatic', on: 'kept running', off: 'kept stopped' }
const choices = [{ value: 'auto', label: 'Automatic' }, { value: 'on', label: 'Keep running' }, { value: 'off', label: 'Keep stopped' }]

// statuses are the colours of the phases.
const statuses = { stopped: 'pending', sleeping: 'pending', loading: 'starting', stopping: 'starting', running: 'succeeded' } as const

// sinceOf returns when a server entered its phase, or when a server that fails began to fail.
export const sinceOf = (s: Server) => (s.error && s.failing_since) || s.since

// Servers shows the servers that nodes start and stop. It shows nothing if there are none.
export function Servers() {
  const servers = useServers(useEvery(3_000))
  const set = useAct(({ server, mode }: { server: Server; mode: Server['mode'] }) => send<Server>('PATCH', path(server), { mode }), {
    done: (s) => `${s.name} is ${modes[s.mode]} from now on.`,
    paths: ['/v1/servers', '/v1/engines'],
  })
  if (servers.length === 0) return null
  return (
    <Card title="Servers">
      <p className="small">Nodes start and stop these servers. Automatic servers run when rows need them.</p>
      <Table label="Servers" heads={['Server', 'Phase', 'GPUs', 'Mode', 'Actions']} less={['GPUs']}>
        {servers.map((s) => (
          <tr key={s.node_id + s.name}>
            <td className="wide">
              <span className="name">{s.name}</span>
              <span className="reason">{[`on ${s.node}`, ...s.models].join(', ')}</span>
              {s.error && <div className="fault small"><Fault text={sentence(s.error.replace(/^the server /, ''))} /></div>}
            </td>
            <td title={time(sinceOf(s))}>
              <Status is={s.error ? 'failed' : statuses[s.phase]}>{s.error && s.phase === 'stopped' ? (s.retry_at ? 'failed, tries again' : 'failed') : s.phase}</Status>
              <span className="reason"><Ago t={sinceOf(s)} /></span>
              {s.error && s.retry_at && Date.parse(s.retry_at) > Date.now() && <span className="reason">next try in {duration((Date.parse(s.retry_at) - Date.now()) / 1000)}</span>}
            </td>
            <td>
              {s.on.join(', ') || none}
              {s.gpus > 0 && s.on.length === 0 && <span className="reason">needs {s.gpus}</span>}
            </td>
            <td><Mode server={s} choose={(mode) => set.mutate({ server: s, mode })} /></td>
            <td><Output server={s} /></td>
          </tr>
        ))}
      </Table>
    </Card>
  )
}

// Mode shows and changes the mode of a server. It asks before it stops a server that is not stopped.
function Mode({ server: s, choose }: { server: Server; choose: (mode: Server['mode']) => void }) {
  const [asks, { open: ask, close }] = useDisclosure()
  return (
    <>
      <SegmentedControl
        aria-label={`Mode of ${s.name}`}
        size="xs"
        value={s.mode}
        data={choices}
        onChange={(mode) => (mode === 'off' && s.phase !== 'stopped' ? ask() : choose(mode as Server['mode']))}
      />
      <Ask opened={asks} close={close} title="Stop the server" act={() => choose('off')}>
        {s.name} finishes its rows or hands them back, and ends. It does not start again for rows.
      </Ask>
    </>
  )
}

// Output is open at first if the address asks for it: ?output=NODE_ID/NAME.
function Output({ server: s }: { server: Server }) {
  const [search] = useSearchParams()
  const [open, { open: show, close }] = useDisclosure(search.get('output') === `${s.node_id}/${s.name}`)
  return (
    <>
      <Button size="compact-sm" variant="subtle" onClick={show} aria-label={`Output ${s.name}`}>Output</Button>
      <Modal opened={open} onClose={close} title={`Output of ${s.name} on ${s.node}`} size="xl">
        <Log server={s} />
      </Modal>
    </>
  )
}

// Log shows the end of the output, and follows it.
function Log({ server: s }: { server: Server }) {
  const log = useGet<ServerLog>(`${path(s)}/log`, { every: useEvery(2_000) })
  const text = log.data?.text
  const box = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const pre = box.current?.querySelector('pre')
    if (pre) pre.scrollTop = pre.scrollHeight
  }, [text])
  return (
    <Load query={log}>
      {({ text }) => (text ? <div ref={box}><Code label={`Output of ${s.name}`} text={text} /></div> : <Empty>No output yet.</Empty>)}
    </Load>
  )
}
