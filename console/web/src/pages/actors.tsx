import { NativeSelect } from '@mantine/core'
import { Link, useSearchParams } from 'wouter'
import { query } from '../api/client'
import { useGet } from '../api/hooks'
import type { Actor, Answered } from '../api/types'
import { plain } from '../lib/fault'
import { ago, plural, duration, none, number, time } from '../lib/format'
import { useEvery } from '../live'
import { allAccounts, jobHref } from '../parts/account'
import { Ago } from '../parts/ago'
import { Fault } from '../parts/fault'
import { Status } from '../parts/job'
import { nameOf, useJobs } from '../parts/jobnames'
import { Empty, Load } from '../parts/load'
import { Card, Long, Page, Table } from '../parts/page'

// kinds says what the actors of each kind do.
const kinds: Record<Actor['kind'], string> = {
  node: 'manages its node',
  engine: 'sends rows to an engine',
  job: 'owns a job and hands out its rows',
  worker: 'runs rows of a job',
  results: 'stores the results of a job',
}

// Times from which an actor needs attention, in seconds.
const longMessage = 10
const longTask = 60
const recentError = 600

// troubles returns why an operator should look at an actor.
function troubles(a: Actor): string[] {
  const error = a.last_error && Date.now() - Date.parse(a.last_error.at) < recentError * 1000 ? `${a.last_error.message} (${ago(a.last_error.at)})` : ''
  return [
    a.state === 'panicked' ? 'Rowmill stopped it after a panic, which is a bug in Rowmill.' : '',
    a.oldest_message_seconds >= longMessage ? `A message has waited for ${duration(a.oldest_message_seconds)}.` : '',
    a.task && a.task_seconds >= longTask ? `Waiting for ${duration(a.task_seconds)} on: ${a.task}.` : '',
    error,
  ].filter((t) => t !== '')
}

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
    <Page title="Actors" lead="Actors are the tasks inside a node: one for the node, each engine and each job. Look here if a job or a node seems stuck.">
      <div className="fields narrow">
        <NativeSelect
          label="Kind"
          value={kind}
          onChange={(e) => set('kind', e.currentTarget.value)}
          data={[{ value: '', label: 'all' }, ...Object.entries(kinds).map(([value, does]) => ({ value, label: `${value}: ${does}` }))]}
        />
        <NativeSelect label="Busy longer than" value={age} onChange={(e) => set('min_age', e.currentTarget.value)} data={[{ value: '', label: 'any time' }, { value: '1', label: 'a second' }, { value: '10', label: '10 seconds' }, { value: '60', label: 'a minute' }]} />
      </div>
      <Load query={actors}>
        {({ actors, nodes }) => {
          const all = nodes.map((node) => ({ node, actors: actors.filter((a) => a.node_id === node.id) }))
          const needs = ({ node, actors }: (typeof all)[0]) => node.error !== null || actors.some((a) => troubles(a).length > 0)
          return nodes.length === 0 ? (
            <Empty>No node has reported its actors.</Empty>
          ) : (
            <div className="stack">{all.toSorted((a, b) => Number(needs(b)) - Number(needs(a))).map((n) => <OfNode key={n.node.id} {...n} open={!!kind || !!age || nodes.length === 1} filtered={!!kind || !!age} />)}</div>
          )
        }}
      </Load>
    </Page>
  )
}

function OfNode({ node, actors, open, filtered }: { node: Answered; actors: Actor[]; open: boolean; filtered: boolean }) {
  const bad = actors.filter((a) => troubles(a).length > 0)
  const has = filtered ? `${plural(actors.length, 'actor')} ${actors.length === 1 ? 'matches' : 'match'}` : plural(actors.length, 'actor')
  return (
    <Card
      title={node.name}
      actions={node.error === null && <Status is={bad.length ? 'failed' : 'succeeded'}>{bad.length ? `${number(bad.length)} ${bad.length === 1 ? 'needs' : 'need'} attention` : 'no problem'}</Status>}
    >
      {node.error && <div className="warning" role="note">No answer. <Fault text={node.error} /></div>}
      {node.left_out > 0 && <p className="warning" role="note">{plural(node.left_out, 'more actor')} of this node {node.left_out === 1 ? 'is' : 'are'} not listed. Use the filters.</p>}
      {node.error === null && <p className="small">{has}{actors.length > 0 && `: ${byKind(actors)}`}.</p>}
      {bad.length > 0 && (
        <Table label={`Actors of ${node.name} that need attention`} heads={['Actor', 'Trouble']} less={[]}>
          {bad.map((a) => (
            <tr key={a.id}>
              <Name actor={a} />
              <td className="wide">{troubles(a).map((t) => <div key={t}><Message text={t} /></div>)}</td>
            </tr>
          ))}
        </Table>
      )}
      {actors.length > 0 && (
        <details open={open || undefined}>
          <summary>{filtered ? 'Actors that match' : 'All actors'}</summary>
          <Table label={`Actors of ${node.name}`} heads={['Actor', 'Waiting messages', 'Waits for', 'Last error', 'Started', 'Restarts']} less={['Last error', 'Started', 'Restarts', 'Waiting messages']}>
            {actors.map((a) => (
              <tr key={a.id}>
                <Name actor={a} />
                  <td className="number">{number(a.mailbox_depth)}{a.oldest_message_seconds >= 1 && `, ${duration(a.oldest_message_seconds)}`}</td>
                <td className="wide">{a.task ? `${a.task}, ${duration(a.task_seconds)}` : none}</td>
                <td className="wide">{a.last_error ? <Message text={`${a.last_error.message} (${ago(a.last_error.at)})`} /> : none}</td>
                <td className="number" title={time(a.since)}><Ago t={a.since} /></td>
                <td className="number">{number(a.restarts)}</td>
              </tr>
            ))}
          </Table>
        </details>
      )}
    </Card>
  )
}

// Message shows an error in plain words, or folds it.
const Message = ({ text }: { text: string }) => (plain(text) === text ? <Long text={text} /> : <Fault text={text} />)

// byKind says how many actors of each kind there are.
const byKind = (actors: Actor[]) =>
  Object.keys(kinds).map((kind) => [actors.filter((a) => a.kind === kind).length, kind] as const).filter(([n]) => n > 0).map(([n, kind]) => plural(n, kind, kind === 'results' ? kind : undefined)).join(', ')

function Name({ actor: a }: { actor: Actor }) {
  const jobs = useJobs(allAccounts)
  return (
    <td title={a.id}>
      {a.kind}{a.engine && ` ${a.engine}`}
      {a.state === 'panicked' && <span className="tag">panicked</span>}
      <span className="reason">{kinds[a.kind]}</span>
      {a.job_id && <Link href={jobHref(a.job_id, allAccounts)}>{nameOf(jobs, a.job_id)}</Link>}
    </td>
  )
}
