import { useEffect, useState, type ReactNode } from 'react'
import { Button, NumberInput, TextInput } from '@mantine/core'
import { Link, useSearchParams } from 'wouter'
import { query, send } from '../api/client'
import { useAct, useCan, useGet, useMe, usePages } from '../api/hooks'
import type { Key, Quota, Quotas, Usage } from '../api/types'
import { none, number, percent, usd, usdLike } from '../lib/format'
import { AccountSelect, allAccounts } from '../parts/account'
import { Budget } from '../parts/budget'
import { priorityName } from '../parts/job'
import { Load } from '../parts/load'
import { nearLimit } from '../parts/meter'
import { Card, Page, Table } from '../parts/page'

export default function QuotasPage() {
  const can = useCan()
  return (
    <Page title="Quotas" lead="A monthly budget for all jobs of the account, and quotas for each job.">
      {can.administer ? <Administered /> : <Read />}
    </Page>
  )
}

type Bound = 'row_quota' | 'token_quota'

const bound = (n: number) => (n === 0 ? 'unlimited' : number(n))

const uses = ['a few rows, soon', 'many rows']

// OfJob shows the quotas of a job by priority. cell shows a quota, or a field that changes it.
function OfJob({ quotas, cell }: { quotas: Quota[]; cell: (q: Quota, of: Bound) => ReactNode }) {
  return (
    <>
      <p className="small">A job above a quota fails. Each job has these quotas for itself: other jobs do not use them up.</p>
      <Table label="Quotas of a job" heads={['Priority', 'Rows', 'Input tokens']} less={[]}>
        {quotas.map((q) => (
          <tr key={q.priority}>
            <td>{priorityName(q.priority)}{uses[q.priority] && <span className="reason">{uses[q.priority]}</span>}</td>
            <td className="number wide">{cell(q, 'row_quota')}</td>
            <td className="number wide">{cell(q, 'token_quota')}</td>
          </tr>
        ))}
      </Table>
    </>
  )
}

function Read() {
  const quotas = useGet<{ quotas: Quota[] }>('/v1/get-quotas')
  return (
    <>
      <Card title="Budget"><Budget /></Card>
      <Card title="Quotas of a job">
        <Load query={quotas}>{(q) => <OfJob quotas={q.quotas} cell={(q, of) => bound(q[of])} />}</Load>
      </Card>
    </>
  )
}

function Administered() {
  const [search, setSearch] = useSearchParams()
  const account = search.get('account') ?? ''
  return (
    <>
      <div className="fields">
        <AccountSelect value={account} choose={(a) => setSearch(a ? { account: a } : {}, { replace: true })} />
      </div>
      {account === allAccounts ? <All /> : <One account={account} />}
    </>
  )
}

function One({ account }: { account: string }) {
  const path = `/v1/quotas${query({ account })}`
  const quotas = useGet<Quotas>(path)
  return <Load query={quotas}>{(q) => <Change key={path + JSON.stringify(q.own)} path={path} account={account} quotas={q} />}</Load>
}

// All lists the accounts for an operator, with the cost of this month.
function All() {
  const accounts = useGet<{ accounts: string[] }>('/v1/accounts', { fresh: 60_000 })
  const usage = useGet<Usage>(`/v1/usage${query({ account: allAccounts, group_by: 'model' })}`, { fresh: 60_000 })
  const keys = usePages<{ keys: Key[]; next_cursor: string | null }>('/v1/keys?limit=100', (p) => p.next_cursor)
  useEffect(() => {
    if (keys.hasNextPage && !keys.isFetching) void keys.fetchNextPage()
  }, [keys])
  const used = new Map<string, number>()
  for (const l of usage.data?.usage ?? []) if (l.account) used.set(l.account, (used.get(l.account) ?? 0) + l.cost_usd)
  const write = usdLike(Math.max(1e-6, Math.min(...[...used.values()].filter((u) => u > 0))))
  return (
    <Load query={accounts}>
      {({ accounts }) => (
        <Table label="Accounts" heads={['Account', 'Budget', 'Used this month', 'Keys']} less={[]}>
          {accounts.map((a) => (
            <Account
              key={a}
              name={a}
              used={usage.data && (used.get(a) ?? 0)}
              write={write}
              keys={keys.hasNextPage ? undefined : keys.data?.pages.flatMap((p) => p.keys).filter((k) => k.account === a).length}
            />
          ))}
        </Table>
      )}
    </Load>
  )
}

function Account({ name, used, write, keys }: { name: string; used?: number; write: (cost: number) => string; keys?: number }) {
  const { data: me } = useMe()
  const limit = useGet<Quotas>(`/v1/quotas${query({ account: name === me?.account ? undefined : name })}`).data?.cost_quota_usd
  return (
    <tr>
      <td><Link href={`/quotas${query({ account: name === me?.account ? undefined : name })}`}>{name}</Link></td>
      <td className="number">{limit === undefined ? none : limit === null ? 'unlimited' : usd(limit)}</td>
      <td className="number">
        {used != null && limit ? <meter value={used / limit} low={nearLimit} high={0.9999} optimum={0} aria-hidden /> : null}
        {used == null ? none : <Link href={`/usage${query({ account: name === me?.account ? undefined : name })}`}>{write(used)}{limit ? ` (${percent(used, limit)})` : ''}</Link>}
      </td>
      <td className="number"><Link href="/keys">{number(keys)}</Link></td>
    </tr>
  )
}

const shown = (n: number | null | undefined) => (n == null ? '' : String(n))
const parsed = (s: string | undefined) => (s?.trim() ? Number(s) : undefined)

// Change has a field for each quota. A field is empty if the account has no quota of its own.
function Change({ path, account, quotas: { own, quotas: inForce, cost_quota_usd } }: { path: string; account: string; quotas: Quotas }) {
  const [limits, setLimits] = useState<Record<string, string>>(Object.fromEntries(own.quotas.flatMap((q) => [[`${q.priority} row_quota`, shown(q.row_quota)], [`${q.priority} token_quota`, shown(q.token_quota)]])))
  const [cost, setCost] = useState(shown(own.cost_quota_usd))
  const save = useAct(
    () =>
      send('PUT', path, {
        quotas: inForce
          .map(({ priority: p }) => ({ priority: p, row_quota: parsed(limits[`${p} row_quota`]), token_quota: parsed(limits[`${p} token_quota`]) }))
          .filter((q) => q.row_quota !== undefined || q.token_quota !== undefined),
        cost_quota_usd: parsed(cost) ?? null,
      }),
    { done: () => 'The quotas apply to new jobs.', paths: ['/v1/quotas'] },
  )
  const field = (q: Quota, of: Bound) => (
    <NumberInput
      aria-label={`${of === 'row_quota' ? 'Rows' : 'Input tokens'} of a job, priority ${q.priority}`}
      min={1}
      allowDecimal={false}
      thousandSeparator
      hideControls
      placeholder={own.quotas.find((o) => o.priority === q.priority)?.[of] == null ? bound(q[of]) : 'quota of the service'}
      value={limits[`${q.priority} ${of}`] ?? ''}
      onChange={(n) => setLimits({ ...limits, [`${q.priority} ${of}`]: String(n) })}
    />
  )
  return (
    <form
      className="stack"
      onSubmit={(e) => {
        e.preventDefault()
        save.mutate()
      }}
    >
      <Card title="Budget">
        <Budget limit={cost_quota_usd} account={account} />
        <div className="fields">
          <TextInput label="Monthly budget (USD)" type="number" min={0} step="any" placeholder="unlimited" value={cost} onChange={(e) => setCost(e.currentTarget.value)} />
        </div>
      </Card>
      <Card title="Quotas of a job">
        <OfJob quotas={inForce} cell={field} />
        <p className="small">An empty field uses the quota of the service.</p>
      </Card>
      <div className="actions"><Button type="submit" loading={save.isPending}>Set the budget and the quotas</Button></div>
    </form>
  )
}
