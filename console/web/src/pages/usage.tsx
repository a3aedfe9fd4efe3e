import { lazy, Suspense, useMemo } from 'react'
import { Button, TextInput } from '@mantine/core'
import { useSearchParams } from 'wouter'
import { query } from '../api/client'
import { useGet } from '../api/hooks'
import type { Usage } from '../api/types'
import { csv, save } from '../lib/csv'
import { compact, number, usd } from '../lib/format'
import { Empty, Load } from '../parts/load'
import { Card, Facts, LinkButton, Page, Table } from '../parts/page'

const Chart = lazy(() => import('../parts/chart').then((m) => ({ default: m.Chart })))

export default function UsagePage() {
  const [search, setSearch] = useSearchParams()
  const from = search.get('from') ?? ''
  const to = search.get('to') ?? ''
  const usage = useGet<Usage>(`/v1/usage${query({ from, to })}`)
  const set = (name: string, value: string) =>
    setSearch((s) => {
      if (value) s.set(name, value)
      else s.delete(name)
      return s
    }, { replace: true })
  return (
    <Page
      title="Usage"
      lead="By UTC day and model, of completed rows."
      actions={
        <Button variant="default" disabled={!usage.data?.usage.length} onClick={() => usage.data && save(`usage-${usage.data.from}-${usage.data.to}.csv`, table(usage.data))}>
          Export as CSV
        </Button>
      }
    >
      <div className="fields">
        <TextInput type="date" label="From" value={from || (usage.data?.from ?? '')} onChange={(e) => set('from', e.currentTarget.value)} />
        <TextInput type="date" label="To" value={to || (usage.data?.to ?? '')} onChange={(e) => set('to', e.currentTarget.value)} />
      </div>
      <Load query={usage}>{(u) => (u.usage.length === 0 ? <Empty next={<LinkButton href="/jobs" variant="default">See jobs</LinkButton>}>Nothing was used in these days.</Empty> : <Report usage={u} />)}</Load>
    </Page>
  )
}

const columns = ['day', 'model', 'rows', 'failed_rows', 'input_tokens', 'output_tokens', 'cost_usd'] as const

const table = (u: Usage) => csv([[...columns], ...u.usage.map((l) => columns.map((c) => l[c]))])

function Report({ usage: { usage, total, from, to } }: { usage: Usage }) {
  const { times, lines } = useMemo(() => {
    const first = Date.parse(from)
    const days = Array.from({ length: (Date.parse(to) - first) / 86_400_000 + 1 }, (_, i) => first + i * 86_400_000)
    const rows = new Map<number, number>()
    for (const l of usage) rows.set(Date.parse(l.day), (rows.get(Date.parse(l.day)) ?? 0) + l.input_tokens + l.output_tokens)
    return { times: days.map((d) => d / 1000), lines: [{ name: 'tokens a day', values: days.map((d) => rows.get(d) ?? 0), color: '--busy', bars: true }] }
  }, [usage, from, to])
  return (
    <div className="stack">
      <Card>
        <Facts
          facts={[
            ['Rows', number(total.rows)],
            ['Failed rows', number(total.failed_rows)],
            ['Tokens in', compact(total.input_tokens)],
            ['Tokens out', compact(total.output_tokens)],
            ['Cost', usd(total.cost_usd)],
          ]}
        />
        <Suspense fallback={<div className="chart" />}>
          <Chart label={`Tokens a day from ${from} to ${to}`} times={times} lines={lines} />
        </Suspense>
      </Card>
      <Table label="Usage" heads={['Day', 'Model', 'Rows', 'Failed', 'Tokens in', 'Tokens out', 'Cost']}>
        {usage.map((l) => (
          <tr key={l.day + l.model}>
            <td>{l.day}</td>
            <td>{l.model}</td>
            <td className="number">{number(l.rows)}</td>
            <td className="number">{number(l.failed_rows)}</td>
            <td className="number">{number(l.input_tokens)}</td>
            <td className="number">{number(l.output_tokens)}</td>
            <td className="number">{usd(l.cost_usd)}</td>
          </tr>
        ))}
      </Table>
    </div>
  )
}
