import { useGet } from '../api/hooks'
import type { Engine, NodeGPUs } from '../api/types'
import { bytes, plural, none, number, rate, time } from '../lib/format'
import { useEvery } from '../live'
import { Ago } from '../parts/ago'
import { Code } from '../parts/copy'
import { Status } from '../parts/job'
import { Empty, Load } from '../parts/load'
import { InFlight, Meter } from '../parts/meter'
import { Card, Long, Page, Table } from '../parts/page'

// rank puts engines that need attention first.
const rank = (e: Engine) => (e.state === 'down' ? 0 : e.last_error ? 1 : 2)

export default function Engines() {
  const engines = useGet<{ engines: Engine[]; missing_nodes: string[] }>('/v1/engines', { every: useEvery(3_000) })
  return (
    <Page title="Engines" lead="Inference servers and GPUs of all nodes. Rows in flight are rows that a server runs now; Rowmill adapts their limit to the server.">
      <Load query={engines}>
        {({ engines, missing_nodes }) =>
          engines.length === 0 && missing_nodes.length === 0 ? (
            <Empty next={<Code label="Command" text="rowmill serve --engine http://127.0.0.1:8000" />}>
              No engines yet. An engine is an inference server, such as vLLM, that runs the rows of jobs. Start a node with the address of one.
            </Empty>
          ) : (
            <div className="stack">
              <Missing nodes={missing_nodes} />
              <p role="status">{summary(engines)}</p>
              <Table label="Engines" heads={['Engine', 'State', 'In flight', 'Rate', 'Models', 'Since']} less={['Rate', 'Models', 'Since']}>
                {engines.toSorted((a, b) => rank(a) - rank(b)).map((e) => (
                  <tr key={e.node + e.name}>
                    <td>
                      {e.name}
                      {e.simulated && <span className="tag">simulated</span>}
                      <span className="id">{[`on ${e.node}`, e.kind].filter(Boolean).join(', ')}</span>
                      {e.url && <span className="id">{e.url}</span>}
                    </td>
                    <td>
                      <Status is={(['failed', 'starting', 'succeeded'] as const)[rank(e)]!}>{e.state === 'up' && e.last_error ? 'up, rows wait' : e.state}</Status>
                      {e.last_error && <span className="reason">{e.last_error}</span>}
                    </td>
                    <td className="number"><InFlight name={`${e.name} on ${e.node}`} rows={e.in_flight} limit={e.window} /></td>
                    <td className="number">{e.state === 'up' ? rate(e.rows_per_second, 'rows/s') : none}</td>
                    <td className="wide"><Long text={e.models.map((m) => m.id).join(', ') || none} summary={plural(e.models.length, 'model')} /></td>
                    <td className="number" title={time(e.since)}><Ago t={e.since} /></td>
                  </tr>
                ))}
              </Table>
            </div>
          )
        }
      </Load>
      <GPUs engines={engines.data?.engines ?? []} />
    </Page>
  )
}

// summary says in a sentence how the engines are.
function summary(engines: Engine[]) {
  const up = engines.filter((e) => e.state === 'up')
  const sum = (f: (e: Engine) => number | null) => engines.reduce((n, e) => n + (f(e) ?? 0), 0)
  const all = engines.length === 1 ? `The engine is ${up.length ? 'up' : 'down'}` : up.length === engines.length ? `All ${number(up.length)} engines are up` : `${number(up.length)} of ${number(engines.length)} engines are up`
  return `${all}: ${plural(sum((e) => e.in_flight), 'row')} in flight, ${rate(sum((e) => e.rows_per_second), 'rows/s')} in the last minute.`
}

function Missing({ nodes }: { nodes: string[] }) {
  if (nodes.length === 0) return null
  return <p className="warning">No answer from {nodes.join(', ')}. The table shows older data of these nodes.</p>
}

function GPUs({ engines }: { engines: Engine[] }) {
  const gpus = useGet<{ nodes: NodeGPUs[] }>('/v1/gpus', { every: useEvery(5_000) })
  return (
    <Card title="GPUs">
      <Load query={gpus}>
        {({ nodes }) => (
          <>
            {nodes.map((n) => n.problem && <p key={n.node} className="warning">{n.node}: {n.problem}</p>)}
            {nodes.every((n) => n.gpus.length === 0) ? (
              <Empty>No GPUs found: nvidia-smi shows none on {plural(nodes.length, 'node')}.</Empty>
            ) : (
              <ul className="tiles" aria-label="GPUs">
                {nodes.flatMap((n) => n.gpus.map((g) => <Tile key={g.uuid} node={n.node} gpu={g} engines={engines.filter((e) => e.node === n.node)} />))}
              </ul>
            )}
          </>
        )}
      </Load>
    </Card>
  )
}

// idleBelow is the use of a GPU below which its tile gives the reason.
const idleBelow = 0.05

function Tile({ node, gpu, engines }: { node: string; gpu: NodeGPUs['gpus'][number]; engines: Engine[] }) {
  const busy = gpu.utilization
  const idle = busy != null && busy < idleBelow
  return (
    <li className="card" data-idle={idle}>
      <p>
        <strong>{node} · GPU {gpu.index}</strong>
        <span className="id" title={gpu.uuid}>{gpu.name}</span>
      </p>
      <Meter name="Busy" value={busy} text={busy == null ? none : `${Math.floor(100 * busy)} %`} />
      <Meter
        name="Memory"
        value={gpu.memory_used_bytes != null && gpu.memory_total_bytes ? gpu.memory_used_bytes / gpu.memory_total_bytes : null}
        text={`${bytes(gpu.memory_used_bytes)} of ${bytes(gpu.memory_total_bytes)}`}
      />
      <p className="small">
        {gpu.power_watts != null && `${Math.round(gpu.power_watts)} W`}
        {gpu.temperature_celsius != null && `, ${Math.round(gpu.temperature_celsius)} °C`}
      </p>
      {engines.map((e) => (
        <p key={e.name} className="small">
          {e.name}: {e.models.map((m) => m.id).slice(0, 2).join(', ') || 'no models'}{e.models.length > 2 && ` and ${e.models.length - 2} more`}, {number(e.in_flight)} in flight, {rate(e.rows_per_second, 'rows/s')}
        </p>
      ))}
      {idle && <p className="small"><strong>Idle:</strong> {whyIdle(engines)}</p>}
    </li>
  )
}

// whyIdle returns why the engines of a node give its GPUs no work.
function whyIdle(engines: Engine[]) {
  const down = engines.find((e) => e.state === 'down')
  if (engines.length === 0) return 'this node has no engine.'
  if (engines.every((e) => e.state === 'down')) return `${down!.name} is down. ${down!.last_error ?? ''}`
  const waiting = engines.find((e) => e.last_error)
  if (waiting) return `${waiting.name} takes no rows now. ${waiting.last_error}`
  return engines.some((e) => e.in_flight > 0) ? 'its engine has just received rows, or does not use this GPU.' : 'no rows wait for its engine.'
}
