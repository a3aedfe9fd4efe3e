import { useEffect, useState, type ReactNode } from 'react'
import { Button, NumberInput, TextInput } from '@mantine/core'
import { Link, useSearchParams } from 'wouter'
import { query, send } from '../api/client'
import { useAct, useCan, useGet, useMe, usePages } from '../api/hooks'
import type { Key, Quota, Quotas } from '../api/types'
import { none, number, usdExact, usdLike } from '../lib/format'
import { AccountSelect, allAccounts } from '../parts/account'
import { Budget, usedShare, useSpending } from '../parts/budget'
import { priorityName } from '../parts/job'
import { Load } from '../parts/load'
import { nearLimit } from '../parts/meter'
import { Card, Page, Table } from '../parts/page'

export default function QuotasPage() {
  const can = useCan()
  const [search] = useSearchParams()
  const ofAll = search.get('account') === allAccounts
  return (
    <Page title="Quotas" lead={ofAll ? 'The monthly budget of each account, and its cost this month.' : 'A monthly budget for all jobs of the account, and quotas for each job.'}>
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

// All lists the accounts for an operator. The account that has used the largest share of its budget this
// month is first. Accounts without a budget are last, sorted by cost.
function All() {
  const { accounts, usage, used } = useSpending()
  const keys = usePages<{ keys: Key[]; next_cursor: string | null }>('/v1/keys?limit=100', (p) => p.next_cursor)
  const { data: me } = useMe()
  useEffect(() => {
    if (keys.hasNextPage && !keys.isFetching) void keys.fetchNextPage()
  }, [keys])
  const budgets = Object.values(accounts.data?.cost_quotas_usd ?? {})
  const write = usdLike(Math.max(1e-6, Math.min(...[...used.values(), ...budgets.map((b) => b / 10)].filter((u) => u > 0))))
  const numKeys = new Map<string, number>()
  for (const k of keys.data?.pages.flatMap((p) => p.keys) ?? []) numKeys.set(k.account, (numKeys.get(k.account) ?? 0) + 1)
  const account = (name: string, limit?: number) => {
    const cost = used.get(name) ?? 0
    return { name, limit, cost, share: limit === undefined ? -1 : limit ? cost / limit : 1 }
  }
  return (
    <Load query={accounts}>
      {({ accounts, cost_quotas_usd: limits }) => (
        <Load query={usage}>
          {() => (
            <Table label="Accounts" heads={['Account', 'Budget', 'Used this month', 'Share', 'Keys']} less={['Budget', 'Keys']}>
              {accounts.map((a) => account(a, limits[a])).sort((a, b) => b.share - a.share || b.cost - a.cost).map(({ name, limit, cost, share }) => {
                const of = query({ account: name === me?.account ? undefined : name })
                return (
                  <tr key={name}>
                    <td><Link href={`/quotas${of}`}>{name}</Link>{limit !== undefined && <span className="reason narrow-only">budget {usdExact(limit)}</span>}</td>
                    <td className="number">{limit === undefined ? 'unlimited' : usdExact(limit)}</td>
                    <td className="number"><Link href={`/usage${of}`}>{write(cost)}</Link></td>
                    <td className="number">
                      {limit === undefined ? none : <><meter value={share} low={nearLimit} high={0.9999} optimum={0} aria-hidden />{limit > 0 && <span className="share">{usedShare(cost, limit)}</span>}</>}
                      {limit === 0 ? <span className="reason">only jobs without cost can run</span> : share >= 1 && <span className="reason">used up: new jobs fail</span>}
                    </td>
                    <td className="number"><Link href={`/keys${query({ account: name })}`}>{number(keys.data && !keys.hasNextPage ? (numKeys.get(name) ?? 0) : undefined)}</Link></td>
                  </tr>
                )
              })}
            </Table>
          )}
        </Load>
      )}
    </Load>
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
    { done: () => 'The quotas apply to new jobs.', paths: ['/v1/quotas', '/v1/accounts'] },
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
