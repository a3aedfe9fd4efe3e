import { useState } from 'react'
import { Button, TextInput } from '@mantine/core'
import { send } from '../api/client'
import { useAct, useCan, useGet } from '../api/hooks'
import type { Quota, Quotas } from '../api/types'
import { number, usd } from '../lib/format'
import { Load } from '../parts/load'
import { Card, Page, Table } from '../parts/page'

export default function QuotasPage() {
  const can = useCan()
  return (
    <Page title="Quotas" lead="Limits of single jobs, and a budget of the account for a calendar month (UTC).">
      {can.administer ? <Administered /> : <Read />}
    </Page>
  )
}

const bound = (n: number) => (n === 0 ? 'unlimited' : number(n))

function InForce({ quotas }: { quotas: Quota[] }) {
  return (
    <Table label="Quotas in force" heads={['Priority', 'Rows of a job', 'Tokens in of a job']}>
      {quotas.map((q) => (
        <tr key={q.priority}>
          <td>{q.priority}</td>
          <td className="number">{bound(q.row_quota)}</td>
          <td className="number">{bound(q.token_quota)}</td>
        </tr>
      ))}
    </Table>
  )
}

function Read() {
  const quotas = useGet<{ quotas: Quota[] }>('/v1/get-quotas')
  return <Load query={quotas}>{(q) => <InForce quotas={q.quotas} />}</Load>
}

function Administered() {
  const quotas = useGet<Quotas>('/v1/quotas')
  return (
    <Load query={quotas}>
      {(q) => (
        <div className="stack">
          <InForce quotas={q.quotas} />
          <p>Monthly budget: <strong>{q.cost_quota_usd == null ? 'unlimited' : usd(q.cost_quota_usd)}</strong></p>
          <Own key={JSON.stringify(q.own)} own={q.own} />
        </div>
      )}
    </Load>
  )
}

const own = (q: Quotas['own'], priority: number): Partial<Quota> => q.quotas.find((o) => o.priority === priority) ?? {}
const shown = (n: number | null | undefined) => (n == null ? '' : String(n))
const parsed = (s: string) => (s.trim() === '' ? undefined : Number(s))

function Own({ own: o }: { own: Quotas['own'] }) {
  const [form, setForm] = useState({
    rows0: shown(own(o, 0).row_quota),
    tokens0: shown(own(o, 0).token_quota),
    rows1: shown(own(o, 1).row_quota),
    tokens1: shown(own(o, 1).token_quota),
    cost: shown(o.cost_quota_usd),
  })
  const save = useAct(
    () =>
      send('PUT', '/v1/quotas', {
        quotas: [
          { priority: 0, row_quota: parsed(form.rows0), token_quota: parsed(form.tokens0) },
          { priority: 1, row_quota: parsed(form.rows1), token_quota: parsed(form.tokens1) },
        ].filter((q) => q.row_quota !== undefined || q.token_quota !== undefined),
        cost_quota_usd: parsed(form.cost) ?? null,
      }),
    { done: () => 'The quotas apply to new jobs.', paths: ['/v1/quotas'] },
  )
  const field = (name: keyof typeof form, label: string) => (
    <TextInput label={label} type="number" min={name === 'cost' ? 0 : 1} step={name === 'cost' ? 'any' : 1} value={form[name]} onChange={(e) => setForm({ ...form, [name]: e.currentTarget.value })} />
  )
  return (
    <Card title="Limits of this account">
      <p className="small">Empty fields use the limits of the service; the budget is then unlimited.</p>
      <form
        className="stack"
        onSubmit={(e) => {
          e.preventDefault()
          save.mutate()
        }}
      >
        <div className="fields">
          {field('rows0', 'Maximum rows of a job, priority 0')}
          {field('tokens0', 'Tokens, priority 0')}
          {field('rows1', 'Maximum rows of a job, priority 1')}
          {field('tokens1', 'Tokens, priority 1')}
          {field('cost', 'Cost a month, USD')}
        </div>
        <div className="actions"><Button type="submit" loading={save.isPending}>Set the quotas</Button></div>
      </form>
    </Card>
  )
}
