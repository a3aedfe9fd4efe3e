import { NativeSelect } from '@mantine/core'
import { Link, useSearchParams } from 'wouter'
import { query } from '../api/client'
import { useGet } from '../api/hooks'
import type { Actor, Answered } from '../api/types'
import { ago, duration, none, number } from '../lib/format'
import { useEvery } from '../live'
import { Ago } from '../parts/ago'
import { Status } from '../parts/job'
import { Empty, Load } from '../parts/load'
import { Long, Page, Table } from '../parts/page'

export default function Actors() {
  const [search, setSearch] = useSearchParams()
  const kind = search.get('kind') ?? ''
  const age = search.get('min_age') ?? ''
  const actors = useGet<{ actors: Actor[]; nodes: Answered[] }>(`/v1/actors${query({ kind, min_age: age })}`, { every: useEvery(3_000) })
  const set = (name: string, value: string) =>
    setSearch((s) => {
      if (value) s.set(name, value)
      else s.delete(name)
      return s
    }, { replace: true })
  return (
    <Page title="Actors" lead="Internal tasks, longest-running first.">
      <div className="fields">
        <NativeSelect label="Kind" value={kind} onChange={(e) => set('kind', e.currentTarget.value)} data={[{ value: '', label: 'all' }, 'node', 'engine', 'job', 'results', 'worker']} />
        <NativeSelect label="Busy longer than" value={age} onChange={(e) => set('min_age', e.currentTarget.value)} data={[{ value: '', label: 'any time' }, { value: '1', label: 'a second' }, { value: '10', label: '10 seconds' }, { value: '60', label: 'a minute' }]} />
      </div>
      <Load query={actors}>
        {({ actors, nodes }) => (
          <>
            {nodes.filter((n) => n.error || n.left_out > 0).map((n) => (
              <p key={n.id} className="warning" role="note">
                {n.name}: {n.error ?? `${number(n.left_out)} more actors are not listed`}
              </p>
            ))}
            {actors.length === 0 ? (
              <Empty>No actor matches.</Empty>
            ) : (
              <Table label="Actors" heads={['Actor', 'Node', 'Job', 'State', 'Since', 'Messages', 'Waits for', 'Last error or wait']}>
                {actors.map((a) => (
                  <tr key={a.node_id + a.id}>
                    <td>{a.kind}{a.engine && ` ${a.engine}`}<span className="id">{a.id.slice(0, 60)}</span></td>
                    <td>{a.node}</td>
                    <td>{a.job_id ? <Link href={`/jobs/${a.job_id}`}>{a.job_id.slice(0, 12)}…</Link> : none}</td>
                    <td><Status is={a.state === 'running' ? 'running' : 'failed'}>{a.state}</Status></td>
                    <td className="number"><Ago t={a.since} /></td>
                    <td className="number">{number(a.mailbox_depth)}{a.oldest_message_seconds >= 1 && `, ${duration(a.oldest_message_seconds)}`}</td>
                    <td>{a.task ? `${a.task}, ${duration(a.task_seconds)}` : none}</td>
                    <td className="wide"><Long text={a.last_error ? `${a.last_error.message} (${ago(a.last_error.at)})` : none} /></td>
                  </tr>
                ))}
              </Table>
            )}
            <p className="small">{number(actors.length)} actors of {number(nodes.length)} {nodes.length === 1 ? 'node' : 'nodes'}.</p>
          </>
        )}
      </Load>
    </Page>
  )
}
