import { useEffect, type ReactNode } from 'react'
import { NativeSelect } from '@mantine/core'
import { Link, useSearchParams } from 'wouter'
import { query } from '../api/client'
import { useMe, usePages } from '../api/hooks'
import type { AuditEntry } from '../api/types'
import { none, plural, number, text, time } from '../lib/format'
import { AccountSelect, allAccounts } from '../parts/account'
import { Ago } from '../parts/ago'
import { Status } from '../parts/job'
import { Empty, Load } from '../parts/load'
import { Facts, More, Page, Table } from '../parts/page'

type Entries = { entries: AuditEntry[]; next_cursor: string | null }

// An Action says what an action did to an object, and leads to the object.
type Action = { did: string; what: string; to?: (target: string) => string }

const actions: Record<string, Action> = {
  'key.create': { did: 'created', what: 'the API key', to: () => '/keys' },
  'key.rotate': { did: 'gave a new secret to', what: 'the API key', to: () => '/keys' },
  'key.revoke': { did: 'revoked', what: 'the API key' },
  'settings.set': { did: 'changed', what: 'the settings', to: () => '/settings' },
  'quotas.set': { did: 'changed', what: 'the quotas', to: () => '/quotas' },
  'node.drain': { did: 'drained', what: 'the node', to: () => '/nodes' },
  'server.set': { did: 'changed the mode of', what: 'the server', to: () => '/engines' },
  'jobs.cancel': { did: 'cancelled', what: 'many jobs', to: () => '/jobs?status=cancelled' },
  'backup.make': { did: 'made', what: 'a backup' },
  'webhook.create': { did: 'added', what: 'the webhook', to: (id) => `/webhooks/${id}` },
  'webhook.change': { did: 'changed', what: 'the webhook', to: (id) => `/webhooks/${id}` },
  'webhook.rotate': { did: 'gave a new secret to', what: 'the webhook', to: (id) => `/webhooks/${id}` },
  'webhook.delete': { did: 'deleted', what: 'the webhook' },
  'function.publish': { did: 'published', what: 'the Function', to: (name) => `/functions/${name}` },
  'function.rollback': { did: 'published an earlier revision of', what: 'the Function', to: (name) => `/functions/${name}` },
  'function.unpublish': { did: 'withdrew', what: 'the Function', to: (name) => `/functions/${name}` },
}

const times = [
  { value: '', label: 'any time' },
  { value: '1', label: 'the last 24 hours' },
  { value: '7', label: 'the last 7 days' },
  { value: '30', label: 'the last 30 days' },
]

// The service filters only by account. For the other filters the page reads entries until it
// has enough matches, at most maxPages pages by itself.
const enough = 20
const maxPages = 10

export default function Audit() {
  const [search, setSearch] = useSearchParams()
  const { data: me } = useMe()
  const [account, action, days] = [search.get('account') ?? '', search.get('action') ?? '', search.get('days') ?? '']
  const set = (name: string, value: string) =>
    setSearch((s) => {
      if (value) s.set(name, value)
      else s.delete(name)
      return s
    }, { replace: true })
  const pages = usePages<Entries>(`/v1/audit${query({ limit: 100, account })}`, (p) => p.next_cursor)
  const read = pages.data?.pages.flatMap((p) => p.entries) ?? []
  const after = days ? Date.now() - Number(days) * 86_400_000 : 0
  const isOld = read.some((e) => Date.parse(e.at) < after)
  const entries = outcomes(read).filter((e) => (!action || e.action === action) && Date.parse(e.at) >= after)
  const searched = `newest ${plural(read.length, 'entry', 'entries')}`
  const { hasNextPage, isFetching, fetchNextPage } = pages
  const goesOn = !!action && entries.length < enough && hasNextPage && !isOld && pages.data!.pages.length < maxPages
  useEffect(() => {
    if (goesOn && !isFetching) void fetchNextPage()
  }, [goesOn, isFetching, fetchNextPage])
  return (
    <Page title="Audit" lead="Actions of administrators, newest first. Nobody can change or delete an entry.">
      <div className="fields narrow">
        <AccountSelect value={account && account === me?.account ? '' : account || allAccounts} choose={(a) => set('account', a === allAccounts ? '' : a || me!.account)} />
        <NativeSelect
          label="Action"
          value={action}
          onChange={(e) => set('action', e.currentTarget.value)}
          data={[{ value: '', label: 'all actions' }, ...Object.entries(actions).map(([value, a]) => ({ value, label: `${a.did} ${a.what}` }))]}
        />
        <NativeSelect label="Time" value={days} onChange={(e) => set('days', e.currentTarget.value)} data={times} />
      </div>
      <Load query={pages}>
        {() =>
          entries.length === 0 ? (
            <Empty>{action || days ? `None of the ${searched} matches.` : 'No entries yet. The page lists, for example, who created an API key or changed a quota.'}</Empty>
          ) : (
            <Table label="Audit record" heads={['Time', 'Action', 'Account']} less={['Account']}>
              {entries.map((e) => (
                <tr key={e.id}>
                  <td><Ago t={e.at} /><span className="reason">{time(e.at)}</span></td>
                  <td className="wide">
                    <Sentence entry={e} />
                    {e.failed && <> <Status is="failed">{`failed: ${e.failed}`}</Status></>}
                    <Details entry={e} />
                  </td>
                  <td>{e.account}</td>
                </tr>
              ))}
            </Table>
          )
        }
      </Load>
      {pages.data && <More of={{ ...pages, hasNextPage: hasNextPage && !isOld }} count={action || days ? `${plural(entries.length, 'match', 'matches')} in the ${searched}` : plural(entries.length, 'entry', 'entries')} button={action || days ? 'Search older entries' : 'Show older entries'} />}
    </Page>
  )
}

// outcomes drops the entry that was written before a failed action: a second entry of the same
// request says that the action failed.
function outcomes(entries: AuditEntry[]) {
  const id = (e: AuditEntry) => [e.request_id, e.action, e.target].join()
  const failed = new Set(entries.filter((e) => e.failed).map(id))
  return entries.filter((e) => e.failed || !failed.has(id(e)))
}

function Sentence({ entry: e }: { entry: AuditEntry }) {
  const act = actions[e.action]
  const who =
    e.by.account == null ? 'The service' : e.by.key_id == null && e.by.key_name === 'configuration' ? 'The key of the configuration' : e.by.key_name || e.by.key_id || `A key of ${e.by.account}`
  const name = text(e.details?.name ?? e.details?.url ?? e.details?.host) || e.target
  const link = (shown: string): ReactNode =>
    act?.to && !e.failed ? <Link href={act.to(encodeURIComponent(e.target ?? ''))}>{shown}</Link> : <strong>{shown}</strong>
  return (
    <>
      <strong>{who}</strong> {act ? <>{act.did} {name ? act.what : link(act.what)}</> : <code>{e.action}</code>} {name && link(name)}
    </>
  )
}

function Details({ entry: e }: { entry: AuditEntry }) {
  const facts = (all: [string, unknown][]) => all.filter(([, v]) => v != null && v !== '').map(([k, v]): [string, string] => [words(k), readable(v)])
  const change = facts(Object.entries(e.details ?? {}).filter(([k]) => k !== 'id'))
  return (
    <details className="small">
      <summary>Details</summary>
      {change.length > 0 && <Facts facts={change} />}
      <Facts facts={facts([['action', e.action], ['object', e.target], ['API key', e.by.key_id ?? e.by.key_name], ['request', e.request_id]])} />
    </details>
  )
}

// words turns the name of a field into a label: row_quota into Row quota.
const words = (field: string) => field.charAt(0).toUpperCase() + field.slice(1).replace(/_usd$/, ', USD').replaceAll('_', ' ')

// readable formats a value of an entry for people.
function readable(value: unknown): string {
  if (value == null || value === '') return none
  if (typeof value === 'number') return number(value)
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  if (typeof value === 'string') return /^\d{4}-\d\d-\d\dT/.test(value) ? time(value) : value
  if (Array.isArray(value)) return value.map(readable).join('; ') || none
  return Object.entries(value).map(([k, v]) => `${words(k).toLowerCase()} ${readable(v)}`).join(', ') || none
}
