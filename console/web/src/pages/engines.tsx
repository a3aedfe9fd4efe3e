import { useGet } from '../api/hooks'
import type { Engine, NodeGPUs } from '../api/types'
import { bytes, none, number, rate, time } from '../lib/format'
import { useEvery } from '../live'
import { Ago } from '../parts/ago'
import { Status } from '../parts/job'
import { Empty, Load } from '../parts/load'
import { Card, Long, Page, Table } from '../parts/page'

export default function Engines() {
  const engines = useGet<{ engines: Engine[]; missing_nodes: string[] }>('/v1/engines', { every: useEvery(3_000) })
  return (
    <Page title="Engines" lead="Inference servers and GPUs of all nodes.">
      <Load query={engines}>
        {({ engines, missing_nodes }) =>
          engines.length === 0 && missing_nodes.length === 0 ? (
            <Empty next={<code>rowmill serve --engine http://127.0.0.1:8000</code>}>No node has an inference server.</Empty>
          ) : (
            <>
            <Missing nodes={missing_nodes} />
            <Table label="Engines" heads={['Engine', 'Node', 'Kind', 'State', 'Since', 'Models', 'In flight', 'Rate', 'Last error or wait']}>
              {engines.map((e) => (
                <tr key={e.node + e.name}>
                  <td>
                    {e.name}
                    {e.simulated && <span className="tag">simulated</span>}
                    {e.url && <span className="id">{e.url}</span>}
                  </td>
                  <td>{e.node}</td>
                  <td>{e.kind ?? none}</td>
                  <td><Status is={e.state === 'down' ? 'failed' : e.last_error ? 'starting' : 'succeeded'}>{e.state === 'up' && e.last_error ? 'up, rows wait' : e.state}</Status></td>
                  <td className="number" title={time(e.since)}><Ago t={e.since} /></td>
                  <td className="wide"><Long text={e.models.map((m) => m.id).join(', ')} summary={`${e.models.length} models`} /></td>
                  <td className="number">{number(e.in_flight)} of {number(e.window)}</td>
                  <td className="number">{rate(e.rows_per_second, 'rows/s')}</td>
                  <td className="wide"><Long text={e.last_error ?? none} /></td>
                </tr>
              ))}
            </Table>
            </>
          )
        }
      </Load>
      <GPUs />
    </Page>
  )
}

function Missing({ nodes }: { nodes: string[] }) {
  if (nodes.length === 0) return null
  return <p className="warning">No answer from {nodes.join(', ')}. The table shows older data of these nodes.</p>
}

function GPUs() {
  const gpus = useGet<{ nodes: NodeGPUs[] }>('/v1/gpus', { every: useEvery(5_000) })
  return (
    <Card title="GPUs">
      <Load query={gpus}>
        {({ nodes }) => (
          <>
            {nodes.map((n) => n.problem && <p key={n.node} className="warning">{n.node}: {n.problem}</p>)}
            {nodes.every((n) => n.gpus.length === 0) ? (
              <Empty>No GPUs found: nvidia-smi shows none on {number(nodes.length)} nodes.</Empty>
            ) : (
              <Table label="GPUs" heads={['Node', 'GPU', 'Name', 'Busy', 'Memory', 'Power', 'Temperature']}>
                {nodes.flatMap((n) => n.gpus.map((g) => (
                  <tr key={g.uuid}>
                    <td>{n.node}</td>
                    <td className="number">{g.index}</td>
                    <td>
                      {g.name}
                      <span className="id">{g.uuid}</span>
                    </td>
                    <td className="number">{g.utilization == null ? none : `${Math.floor(100 * g.utilization)} %`}</td>
                    <td className="number">{bytes(g.memory_used_bytes)} of {bytes(g.memory_total_bytes)}</td>
                    <td className="number">{g.power_watts == null ? none : `${Math.round(g.power_watts)} W`}</td>
                    <td className="number">{g.temperature_celsius == null ? none : `${Math.round(g.temperature_celsius)} °C`}</td>
                  </tr>
                )))}
              </Table>
            )}
          </>
        )}
      </Load>
    </Card>
  )
}
