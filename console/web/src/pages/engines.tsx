import type { JSX } from 'react'
import { Link } from 'wouter'
import { query } from '../api/client'
import { useGet } from '../api/hooks'
import type { Counts, Engine, Engines, JobPage, NodeGPUs } from '../api/types'
import { bytes, plural, none, number, rate, time } from '../lib/format'
import { plain } from '../lib/fault'
import { useEvery } from '../live'
import { allAccounts } from '../parts/account'
import { useElapsed } from '../parts/ago'
import { Code } from '../parts/copy'
import { Fault } from '../parts/fault'
import { Status, whyStopped } from '../parts/job'
import { Empty, Load } from '../parts/load'
import { Meter } from '../parts/meter'
import { Card, Facts, Page } from '../parts/page'
import { Servers, useServers } from '../parts/servers'

// rank puts engines that need attention first.
const rank = (e: Engine) => (e.state === 'down' ? 0 : e.last_error ? 1 : 2)

const sum = (engines: Engine[], of: (e: Engine) => number | null) => engines.reduce((n, e) => n + (of(e) ?? 0), 0)

export default function EnginesPage() {
  const engines = useGet<Engines>('/v1/engines', { every: useEvery(3_000) })
  const all = engines.data?.engines ?? []
  const servers = useServers(false)
  const failed = servers.filter((s) => s.error).length
  const why = useWhyIdle()
  return (
    <Page title="Engines" lead="An engine is an inference server that runs rows. Rowmill adapts the number of rows that an engine runs at once.">
      <Load query={engines}>
        {({ engines, missing_nodes }) => {
          const parts = [
            engines.length === 0 && missing_nodes.length === 0 ? (
              servers.length > 0 ? <Empty key="engines">No engine runs now. Nodes start servers when rows need them.</Empty> : (
                <Empty key="engines" next={<Code label="Command" text="rowmill serve --engine http://127.0.0.1:8000" />}>
                  No engines yet. Start a node with the address of an inference server, such as vLLM.
                </Empty>
              )
            ) : (
              <section key="engines" className="stack">
                {failed > 0 && <h2>Engines</h2>}
                <ul className="tiles" aria-label="Engines">
                  {engines.toSorted((a, b) => rank(a) - rank(b)).map((e) => (
                    <EngineTile key={e.node + e.name} engine={e} why={why([e])} isServer={servers.some((s) => s.node === e.node && s.name === e.name)} />
                  ))}
                </ul>
              </section>
            ),
            <Servers key="servers" />,
          ]
          return (
            <div className="stack">
              {missing_nodes.length > 0 && <p className="warning">No answer from {missing_nodes.join(', ')}. The page shows older data of these nodes.</p>}
              {(engines.length > 0 || failed > 0) && <Sum engines={engines} failed={failed} />}
              {failed > 0 ? parts.toReversed() : parts}
            </div>
          )
        }}
      </Load>
      <GPUs engines={all} why={why} />
    </Page>
  )
}

function Sum({ engines, failed }: { engines: Engine[]; failed: number }) {
  const up = engines.filter((e) => e.state === 'up').length
  return (
    <div className="card sums">
      <Facts
        facts={[
          ['Engines up', `${number(up)} of ${number(engines.length)}`],
          ...(failed > 0 ? ([['Servers failed', <span key="failed" className="failures">{number(failed)}</span>]] as [string, JSX.Element][]) : []),
          ['Rows in flight', number(sum(engines, (e) => e.in_flight))],
          ['Rate, last minute', rate(sum(engines, (e) => e.rows_per_second), 'rows/s')],
        ]}
      />
    </div>
  )
}

const shownModels = 3

function EngineTile({ engine: e, why, isServer }: { engine: Engine; why: string; isServer: boolean }) {
  const models = e.models.map((m) => m.id)
  const isUp = e.state === 'up'
  return (
    <li className="card" data-idle={isUp && e.in_flight === 0 && !e.last_error}>
      <p className="title">
        <strong className="name">{e.name}</strong>
        <Status is={(['failed', 'starting', 'succeeded'] as const)[rank(e)]!}>{isUp && e.last_error ? 'up, rows wait' : e.state}</Status>
      </p>
      {(isUp || models.length > 0) && (
        <>
          <p className="models">{models.slice(0, shownModels).join(', ') || 'no models'}</p>
          {models.length > shownModels && (
            <details className="small">
              <summary>{plural(models.length - shownModels, 'more model')}</summary>
              {models.slice(shownModels).join(', ')}
            </details>
          )}
        </>
      )}
      {isUp && e.in_flight > 0 && <Meter name="In flight" value={e.window ? e.in_flight / e.window : null} text={`${number(e.in_flight)} (limit ${number(e.window)})`} />}
      {isUp && e.in_flight > 0 && !!e.rows_per_second && <p className="use"><span>Rate</span><strong className="n">{rate(e.rows_per_second, 'rows/s')}</strong></p>}
      {!isUp && <Waiting models={models} />}
      {e.last_error ? <div className="fault"><Fault text={e.last_error} /></div> : isUp && e.in_flight === 0 && <p className="small"><strong>Idle:</strong> {why}</p>}
      <p className="small" title={time(e.since)}>
        {[e.kind, `on ${e.node}`].filter(Boolean).join(' ')}{e.since && <>, {e.state} for <Elapsed t={e.since} /></>}{isServer && ', started by the node'}
      </p>
      {e.url && !e.url.endsWith(`/${e.name}`) && <p className="id">{e.url}</p>}
    </li>
  )
}

// Waiting says how many of the newest jobs wait for an engine with one of these models.
function Waiting({ models }: { models: string[] }) {
  const status = 'starting,submitted,pending,running'
  const jobs = useGet<JobPage>(`/v1/list-jobs${query({ limit: 100, status, account: allAccounts })}`, { every: useEvery(10_000), enabled: models.length > 0 }).data?.jobs ?? []
  const waiting = jobs.filter((j) => models.includes(j.model) && whyStopped(j.message))
  if (waiting.length === 0) return null
  return <p><Link href={`/jobs${query({ status, account: allAccounts, model: waiting[0]!.model })}`}>{plural(waiting.length, 'job')} {waiting.length === 1 ? 'waits' : 'wait'}</Link></p>
}

const Elapsed = ({ t }: { t: string }) => <span className="unbroken">{useElapsed(Date.parse(t))}</span>

// useWhyIdle returns a function that says why engines have no rows in flight.
function useWhyIdle() {
  const counts = useGet<Counts>(`/v1/jobs/counts?account=${allAccounts}`, { every: useEvery(10_000) }).data?.counts
  const open = counts && counts.pending + counts.submitted + counts.starting + counts.running
  return (engines: Engine[]) => {
    if (engines.length === 0) return 'no engine runs on this node.'
    const down = engines.find((e) => e.state === 'down')
    if (down && engines.every((e) => e.state === 'down')) return `${down.name} is down. ${plain(down.last_error ?? '')}`
    const waiting = engines.find((e) => e.last_error)
    if (waiting) return `${waiting.name} takes no rows now. ${plain(waiting.last_error!)}`
    if (engines.some((e) => e.in_flight > 0)) return 'its engine has just received rows, or does not use this GPU.'
    return open === 0 ? 'no job runs or waits.' : 'no rows wait for its models.'
  }
}

function GPUs({ engines, why }: { engines: Engine[]; why: (engines: Engine[]) => string }) {
  const gpus = useGet<{ nodes: NodeGPUs[] }>('/v1/gpus', { every: useEvery(5_000) })
  return (
    <Card title="GPUs">
      <Load query={gpus}>
        {({ nodes }) => (
          <>
            {nodes.map((n) => n.problem && <div key={n.node} className="warning">{n.node}: <Fault text={n.problem} /></div>)}
            {nodes.every((n) => n.gpus.length === 0) ? (
              <Empty>nvidia-smi finds no GPU on {plural(nodes.length, 'node')}.</Empty>
            ) : (
              <ul className="tiles" aria-label="GPUs">
                {nodes.flatMap((n) => n.gpus.map((g) => <Tile key={g.uuid} node={n.node} gpu={g} engines={engines.filter((e) => e.node === n.node)} why={why} />))}
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

function Tile({ node, gpu, engines, why }: { node: string; gpu: NodeGPUs['gpus'][number]; engines: Engine[]; why: (engines: Engine[]) => string }) {
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
      {idle && <p className="small"><strong>Idle:</strong> {why(engines)}</p>}
    </li>
  )
}
