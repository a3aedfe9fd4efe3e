import { Button } from '@mantine/core'
import { send } from '../api/client'
import { useAct, useGet } from '../api/hooks'
import type { Diagnosis, Node } from '../api/types'
import { number, time } from '../lib/format'
import { useEvery } from '../live'
import { Ago } from '../parts/ago'
import { Confirm } from '../parts/confirm'
import { Status } from '../parts/job'
import { Load, Problem, Waiting } from '../parts/load'
import { Card, Long, Page, Table } from '../parts/page'

export default function Nodes() {
  const nodes = useGet<{ nodes: Node[] }>('/v1/nodes', { every: useEvery(5_000) })
  const drain = useAct((id: string) => send<{ message: string }>('POST', `/v1/nodes/${id}/drain`), { done: (r) => r.message, paths: ['/v1/nodes'] })
  return (
    <Page title="Nodes">
      <Load query={nodes}>
        {({ nodes }) => (
          <Table label="Nodes" heads={['Node', 'State', 'Role', 'Models', 'Jobs', 'In flight', 'Since', 'Actions']}>
            {nodes.map((n) => (
              <tr key={n.id}>
                <td>
                  {n.name}
                  {n.self && <span className="tag">this node</span>}
                  <span className="id">{n.id}</span>
                  <span className="id">{n.version}</span>
                </td>
                <td><Status is={n.state === 'running' ? 'succeeded' : 'starting'}>{n.state}</Status></td>
                <td>{n.role}</td>
                <td className="wide"><Long text={n.models.join(', ')} summary={`${n.models.length} models`} /></td>
                <td className="number">{number(n.jobs)}</td>
                <td className="number">{number(n.in_flight)} of {number(n.window)}</td>
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
        )}
      </Load>
      <Diagnose />
    </Page>
  )
}

const levels = { ok: 'succeeded', warn: 'starting', fail: 'failed' }

function Diagnose() {
  const diagnosis = useGet<{ nodes: Diagnosis[] }>('/v1/diagnosis', { enabled: false })
  return (
    <Card title="Diagnosis" actions={<Button variant="default" size="xs" loading={diagnosis.isFetching} onClick={() => void diagnosis.refetch()}>Run it</Button>}>
      {diagnosis.error && <Problem error={diagnosis.error} />}
      {!diagnosis.data && (diagnosis.isFetching ? <Waiting /> : <p className="small">Each node tests its database, its object storage and the other nodes. This may take ten seconds.</p>)}
      {diagnosis.data?.nodes.map((n) => (
        <div key={n.id}>
          <h3>{n.name}</h3>
          {n.error && <p>{n.error}</p>}
          {n.facts && (
            <Table label={`Findings of ${n.name}`} heads={['Level', 'Check', 'Finding', 'What to do']}>
              {n.facts.findings.map((f) => (
                <tr key={f.check + f.text}>
                  <td><Status is={levels[f.level]}>{f.level}</Status></td>
                  <td>{f.check}</td>
                  <td className="wide">{f.text}</td>
                  <td className="wide">{f.remedy}</td>
                </tr>
              ))}
            </Table>
          )}
        </div>
      ))}
    </Card>
  )
}
