import { lazy, Suspense, useMemo, useState, type ReactNode } from 'react'
import { Button, NativeSelect, TextInput } from '@mantine/core'
import { Link, useSearch, useSearchParams } from 'wouter'
import { query } from '../api/client'
import { useGet } from '../api/hooks'
import type { Usage, UsageLine } from '../api/types'
import { csv, save } from '../lib/csv'
import { compact, number, usdLike, utcDay } from '../lib/format'
import { AccountSelect, allAccounts } from '../parts/account'
import { Empty, Load } from '../parts/load'
import { Card, Facts, LinkButton, Page, Table } from '../parts/page'

const Chart = lazy(() => import('../parts/chart').then((m) => ({ default: m.Chart })))

// The groupings of lines, with their names in the address and the API.
const groupings: Record<string, string> = {
  'day,model': 'day and model',
  day: 'day',
  model: 'model',
  key: 'API key',
  'day,key': 'day and API key',
  'model,key': 'model and API key',
}

// presets returns the ranges of days that are often needed, by UTC. The page shows the range without from
// if the address names no day.
function presets() {
  const now = new Date()
  const [year, month] = [now.getUTCFullYear(), now.getUTCMonth()]
  const text = (t: number) => new Date(t).toISOString().slice(0, 10)
  const today = text(now.getTime())
  const yesterday = text(now.getTime() - 86_400_000)
  return [
    { name: 'Today', from: today, to: today },
    { name: 'Yesterday', from: yesterday, to: yesterday },
    { name: '7 days', from: text(now.getTime() - 6 * 86_400_000), to: today },
    { name: 'This month', from: '', to: '' },
    { name: 'Last month', from: text(Date.UTC(year, month - 1)), to: text(Date.UTC(year, month, 0)) },
  ]
}

export default function UsagePage() {
  const [search, setSearch] = useSearchParams()
  const from = search.get('from') ?? ''
  const to = search.get('to') ?? ''
  const asked = search.get('by') ?? ''
  const by = asked in groupings ? asked : 'day,model'
  const key = search.get('key') ?? ''
  const account = search.get('account') ?? ''
  const [others, choose] = useState(false) // From and To are shown
  const preset = others ? undefined : presets().find((p) => p.from === from && p.to === to)?.name
  const set = (change: Record<string, string>) =>
    setSearch((s) => {
      for (const [name, value] of Object.entries(change)) {
        if (value) s.set(name, value)
        else s.delete(name)
      }
      return s
    }, { replace: true })
  const usage = useGet<Usage>(`/v1/usage${query({ from, to, group_by: by, key_id: key, account })}`)
  const groups = account === allAccounts ? `account,${by}` : by
  return (
    <Page
      title="Usage"
      lead="The page counts completed rows by UTC day. A row counts for the API key that submitted its job."
      actions={
        <Button variant="default" disabled={!usage.data?.usage.length} onClick={() => usage.data && save(`usage-${usage.data.from}-${usage.data.to}.csv`, table(usage.data, groups))}>
          Export as CSV
        </Button>
      }
    >
      <div className="filters">
        <div className="chips" role="group" aria-label="Days">
          {presets().map((p) => (
            <button
              key={p.name}
              type="button"
              aria-pressed={preset === p.name}
              onClick={() => {
                choose(false)
                set({ from: p.from, to: p.to })
              }}
            >
              {p.name}
            </button>
          ))}
          <button type="button" aria-pressed={!preset} onClick={() => choose(true)}>Other days</button>
        </div>
        <div className="fields">
          {!preset && (
            <>
              <TextInput type="date" label="From" value={from || (usage.data?.from ?? '')} onChange={(e) => set({ from: e.currentTarget.value })} />
              <TextInput type="date" label="To" value={to || (usage.data?.to ?? '')} onChange={(e) => set({ to: e.currentTarget.value })} />
            </>
          )}
          <AccountSelect value={account} choose={(account) => set({ account })} />
          <NativeSelect label="By" value={by} onChange={(e) => set({ by: e.currentTarget.value })} data={Object.entries(groupings).map(([value, label]) => ({ value, label }))} />
        </div>
      </div>
      {key && (
        <div className="actions">
          <span>Only the key <code>{key}</code></span>
          <Button size="xs" variant="default" onClick={() => set({ key: '' })}>Show all keys</Button>
        </div>
      )}
      <Load query={usage}>{(u) => (u.usage.length === 0 ? <Empty next={<LinkButton href="/jobs" variant="default">See jobs</LinkButton>}>No rows ran in these days. Usage counts rows when they are done.</Empty> : <Report usage={u} by={groups} />)}</Load>
    </Page>
  )
}

const figures = ['rows', 'failed_rows', 'deduplicated_rows', 'input_tokens', 'output_tokens', 'cost_usd'] as const

// columns are the columns of a grouping: head, cell, and the names and values in a CSV
// file.
const columns: Record<string, { head: string; cell: (l: UsageLine) => ReactNode; names: (keyof UsageLine)[] }> = {
  account: { head: 'Account', cell: (l) => l.account, names: ['account'] },
  day: { head: 'Day', cell: (l) => l.day && <span className="unbroken">{utcDay(l.day).replace(` ${new Date().getUTCFullYear()}`, '')}</span>, names: ['day'] },
  model: { head: 'Model', cell: (l) => l.model, names: ['model'] },
  key: { head: 'API key', cell: (l) => <OfKey line={l} />, names: ['key_id', 'key_name'] },
}

const columnsOf = (by: string) => by.split(',').map((name) => columns[name]!)

function table(u: Usage, by: string) {
  const names = [...columnsOf(by).flatMap((c) => c.names), ...figures]
  return csv([names, ...u.usage.map((l) => names.map((name) => l[name] ?? ''))])
}

// OfKey links to the daily usage of a line's key.
function OfKey({ line: { key_id, key_name } }: { line: UsageLine }) {
  const search = new URLSearchParams(useSearch())
  if (!key_id) return <span className="small">not recorded: the job used the key of the configuration, or is old</span>
  search.set('key', key_id)
  search.delete('by')
  return (
    <>
      <Link href={`/usage?${search}`}>{key_name ?? key_id}</Link>
      {key_name && <span className="id">{key_id}</span>}
    </>
  )
}

function Report({ usage: { usage, total, from, to }, by }: { usage: Usage; by: string }) {
  const { times, tokens, costs } = useMemo(() => {
    const first = Date.parse(from)
    const days = Array.from({ length: (Date.parse(to) - first) / 86_400_000 + 1 }, (_, i) => first + i * 86_400_000)
    const sums = (f: (l: UsageLine) => number) => {
      const sum = new Map<number, number>()
      for (const l of usage) if (l.day) sum.set(Date.parse(l.day), (sum.get(Date.parse(l.day)) ?? 0) + f(l))
      return days.map((d) => sum.get(d) || null) // a bar of 0 would be a dash below the axis
    }
    return {
      times: days.map((d) => d / 1000),
      tokens: [{ name: 'tokens a day', values: sums((l) => l.input_tokens + l.output_tokens), color: '--busy', bars: true }],
      costs: [{ name: 'cost per day, USD', values: sums((l) => l.cost_usd), color: '--good', bars: true }],
    }
  }, [usage, from, to])
  const apart = columnsOf(by)
  const lines = usage.some((l) => l.day) ? usage : usage.toSorted((a, b) => b.cost_usd - a.cost_usd)
  const all = usage.map((l) => l.cost_usd).filter((c) => c > 0)
  const most = Math.max(...all)
  const write = usdLike(Math.max(1e-6, Math.min(...all)))
  return (
    <div className="stack">
      <Card>
        <Facts
          facts={[
            ['Days', from === to ? utcDay(from) : `${utcDay(from)} to ${utcDay(to)}`],
            ['Rows', number(total.rows)],
            ['Failed rows', number(total.failed_rows)],
            ...(total.deduplicated_rows ? ([['Duplicate rows, not run', number(total.deduplicated_rows)]] as [string, string][]) : []),
            ['Tokens in', compact(total.input_tokens)],
            ['Tokens out', compact(total.output_tokens)],
            ['Cost', write(total.cost_usd)],
          ]}
        />
        {apart.includes(columns.day!) && times.length > 1 && (
          <Suspense fallback={<div className="chart" />}>
            <div className="two">
              <Chart label={`Tokens a day from ${from} to ${to}`} times={times} lines={tokens} />
              <Chart label={`Cost a day from ${from} to ${to}`} times={times} lines={costs} />
            </div>
          </Suspense>
        )}
      </Card>
      <Table
        label="Usage"
        heads={[...apart.map((c) => c.head), 'Rows', 'Failed', 'Tokens in', 'Tokens out', 'Cost']}
        less={['Failed', 'Tokens in', 'Tokens out']}
        foot={
          <tr>
            {apart.map((c, i) => <td key={c.head}>{i === 0 && 'Total'}</td>)}
            <Figures of={total} write={write} />
          </tr>
        }
      >
        {lines.map((l) => (
          <tr key={[l.account, l.day, l.model, l.key_id].join()}>
            {apart.map((c) => <td key={c.head}>{c.cell(l)}</td>)}
            <Figures of={l} write={write} most={most} />
          </tr>
        ))}
      </Table>
    </div>
  )
}

// Figures has a bar of the cost, beside the largest cost of a line, if most is set.
function Figures({ of: l, write, most }: { of: Usage['total']; write: (cost: number) => string; most?: number }) {
  return (
    <>
      <td className="number">
        {number(l.rows)}
        {l.failed_rows > 0 && <span className="reason narrow-only">{number(l.failed_rows)} failed</span>}
      </td>
      <td className="number">{number(l.failed_rows)}</td>
      <td className="number">{number(l.input_tokens)}</td>
      <td className="number">{number(l.output_tokens)}</td>
      <td className="number">{!!most && <meter value={l.cost_usd / most} aria-hidden />}{write(l.cost_usd)}</td>
    </>
  )
}
