import { useEffect, useState } from 'react'
import { Button } from '@mantine/core'
import { send } from '../api/client'
import { useAct, useGet } from '../api/hooks'
import type { Diagnosis, Engines, Node } from '../api/types'
import { plural, none, number, time } from '../lib/format'
import { useEvery } from '../live'
import { Ago, useElapsed } from '../parts/ago'
import { Confirm } from '../parts/confirm'
import { Fault } from '../parts/fault'
import { Status } from '../parts/job'
import { Empty, Load, Problem, Waiting } from '../parts/load'
import { InFlight } from '../parts/meter'
import { Card, Long, Page, Table } from '../parts/page'

const roles: Record<Node['role'], string> = { both: 'accepts jobs and runs rows', api: 'accepts jobs, runs no rows', engines: 'runs rows, accepts no jobs' }

export default function Nodes() {
  const nodes = useGet<{ nodes: Node[] }>('/v1/nodes', { every: useEvery(5_000) })
  const drain = useAct((id: string) => send<{ message: string }>('POST', `/v1/nodes/${id}/drain`), { done: (r) => r.message, paths: ['/v1/nodes'] })
  const silent = useSilentNodes(nodes.data?.nodes)
  return (
    <Page title="Nodes" lead="Each node is a process of this service. It owns jobs and runs rows on its engines. If a node fails, other nodes continue its jobs.">
      <Load query={nodes}>
        {({ nodes }) => {
          const gone = [...silent.values()].filter((s) => !nodes.some((n) => n.id === s.node.id))
          return nodes.length + gone.length === 0 ? (
            <Empty>No nodes. Each process of <code>rowmill serve</code> is a node.</Empty>
          ) : (
            <div className="stack">
              <Versions nodes={nodes} />
              <Table label="Nodes" heads={['Node', 'State', 'In flight', 'Jobs', 'Models', 'Started', 'Actions']} less={['In flight', 'Jobs', 'Models', 'Started']}>
                {gone.map(({ node: n, since }) => (
                  <tr key={n.id}>
                    <NodeName node={n} />
                    <td><Silent since={since} /></td>
                    <td>{none}</td><td>{none}</td><td>{none}</td><td>{none}</td><td />
                  </tr>
                ))}
                {nodes.map((n) => (
                  <tr key={n.id}>
                    <NodeName node={n} />
                    <td>
                      {silent.has(n.id) ? <Silent since={silent.get(n.id)!.since} /> : <Status is={n.state === 'running' ? 'succeeded' : 'starting'}>{n.state}</Status>}
                    </td>
                    <td className="number"><InFlight name={n.name} rows={n.in_flight} limit={n.window} /></td>
                    <td className="number">{number(n.jobs)}</td>
                    <td className="wide"><Long text={n.models.join(', ') || none} summary={plural(n.models.length, 'model')} /></td>
                    <td className="number" title={time(n.since)}><Ago t={n.since} /></td>
                    <td>
                      {n.state === 'running' && (
                        <Confirm quiet size="compact-sm" button="Drain" title="Drain the node" act={() => drain.mutate(n.id)}>
                          {n.name} takes no more rows, hands its jobs to other nodes and ends.
                          {nodes.length === 1 && ' It is the only node: the service stops with it.'}
                        </Confirm>
                      )}
                    </td>
                  </tr>
                ))}
              </Table>
            </div>
          )
        }}
      </Load>
      <Diagnose />
    </Page>
  )
}

function NodeName({ node: n }: { node: Node }) {
  return (
    <td>
      <span className="name">{n.name}</span>
      {n.self && <span className="tag">this node</span>}
      <span className="reason">{roles[n.role]}</span>
      <span className="reason narrow-only">{number(n.in_flight)} of {number(n.window)} rows in flight, {plural(n.jobs, 'job')}</span>
      <span className="id">{n.id === n.name ? n.version : `${n.id}, ${n.version}`}</span>
    </td>
  )
}

function Silent({ since }: { since: number }) {
  return (
    <>
      <Status is="failed">{`no answer for ${useElapsed(since)}`}</Status>
      <span className="reason">It has crashed, hangs, or the network is down.</span>
    </>
  )
}

function Versions({ nodes }: { nodes: Node[] }) {
  const versions = [...new Set(nodes.map((n) => n.version))]
  if (versions.length < 2) return null
  return <p className="warning" role="note">The nodes run {plural(versions.length, 'version')}: {versions.join(', ')}. Finish the upgrade soon.</p>
}

type Seen = { node: Node; answered: number; silent: boolean }

// forgetAfter is how long the page shows a node that has vanished, in ms.
const forgetAfter = 3_600_000

// useSilentNodes returns the nodes that do not answer, by id, with the time of the last answer.
// Gossip notices a hanging node only after seconds and then drops it from the list. So the page
// asks all nodes for their engines, and remembers the nodes that have vanished without draining.
function useSilentNodes(nodes?: Node[]) {
  const { data, dataUpdatedAt } = useGet<Engines>('/v1/engines', { every: useEvery(3_000) })
  const [seen, setSeen] = useState<Map<string, Seen>>(new Map())
  useEffect(() => {
    if (!nodes || !data) return
    setSeen((before) => {
      const now = new Map<string, Seen>()
      for (const n of nodes) {
        const silent = data.missing_nodes.includes(n.name)
        now.set(n.id, { node: n, answered: silent ? (before.get(n.id)?.answered ?? dataUpdatedAt) : dataUpdatedAt, silent })
      }
      for (const [id, s] of before) {
        const replaced = nodes.some((n) => n.name === s.node.name)
        if (!now.has(id) && !replaced && s.node.state === 'running' && dataUpdatedAt - s.answered < forgetAfter) now.set(id, { ...s, silent: true })
      }
      return now
    })
  }, [nodes, data, dataUpdatedAt])
  return new Map([...seen].filter(([, s]) => s.silent).map(([id, s]) => [id, { node: s.node, since: s.answered }]))
}

const levels = { ok: 'succeeded', warn: 'starting', fail: 'failed' }

function Diagnose() {
  const diagnosis = useGet<{ nodes: Diagnosis[] }>('/v1/diagnosis', { enabled: false })
  return (
    <Card title="Diagnosis" actions={<Button variant="default" size="xs" loading={diagnosis.isFetching} onClick={() => void diagnosis.refetch()}>Run the diagnosis</Button>}>
      {diagnosis.error && <Problem error={diagnosis.error} />}
      {!diagnosis.data && (diagnosis.isFetching ? <Waiting /> : <p className="small">Each node tests its database, its object storage and the other nodes. This may take ten seconds.</p>)}
      {diagnosis.data?.nodes.map((n) => {
        const findings = n.facts?.findings ?? []
        const bad = findings.filter((f) => f.level !== 'ok')
        return (
          <div key={n.id} className="stack tight">
            <h3>{n.name}</h3>
            {n.error && <div><Fault text={n.error} /></div>}
            {n.facts && <p>{bad.length === 0 ? `All ${plural(findings.length, 'check')} passed.` : `${number(bad.length)} of ${plural(findings.length, 'check')} ${bad.length === 1 ? 'needs' : 'need'} attention.`}</p>}
            {bad.length > 0 && <Findings label={`Findings of ${n.name}`} findings={bad} />}
            {findings.length > bad.length && (
              <details>
                <summary>{bad.length ? 'Passed checks' : 'Show the checks'}</summary>
                <Findings label={`Passed checks of ${n.name}`} findings={findings.filter((f) => f.level === 'ok')} />
              </details>
            )}
          </div>
        )
      })}
    </Card>
  )
}

function Findings({ label, findings }: { label: string; findings: NonNullable<Diagnosis['facts']>['findings'] }) {
  return (
    <Table label={label} heads={['Level', 'Finding']} less={[]}>
      {findings.map((f) => (
        <tr key={f.check + f.text}>
          <td><Status is={levels[f.level]}>{f.level}</Status></td>
          <td className="wide">
            <strong>{f.check}:</strong> <Fault text={f.text} />
            {f.remedy && <p><strong>What to do:</strong> <Commands text={f.remedy} /></p>}
          </td>
        </tr>
      ))}
    </Table>
  )
}

// Commands shows a text with `commands` in it.
const Commands = ({ text }: { text: string }) => <>{text.split('`').map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}</>
