import { useState } from 'react'
import { Button, TextInput } from '@mantine/core'
import { send } from '../api/client'
import { useAct, useCan, useGet } from '../api/hooks'
import type { Quota, Quotas } from '../api/types'
import { number } from '../lib/format'
import { Budget } from '../parts/budget'
import { Load } from '../parts/load'
import { Card, Page, Table } from '../parts/page'

export default function QuotasPage() {
  const can = useCan()
  return (
    <Page title="Quotas" lead="A budget for all jobs of the account in a calendar month, and limits for each single job.">
      {can.administer ? <Administered /> : <Read />}
    </Page>
  )
}

const bound = (n: number) => (n === 0 ? 'unlimited' : number(n))

const priorities = ['prototyping: a person waits for the answers', 'production: many rows']

function InForce({ quotas }: { quotas: Quota[] }) {
  return (
    <Card title="Limits of a job">
      <p className="small">A job above a limit fails. The limits count for each job alone, so other jobs do not use them up.</p>
      <Table label="Quotas in force" heads={['Priority', 'Rows', 'Input tokens']} less={[]}>
        {quotas.map((q) => (
          <tr key={q.priority}>
            <td>{q.priority}{priorities[q.priority] && <span className="small">, {priorities[q.priority]}</span>}</td>
            <td className="number">{bound(q.row_quota)}</td>
            <td className="number">{bound(q.token_quota)}</td>
          </tr>
        ))}
      </Table>
    </Card>
  )
}

function Read() {
  const quotas = useGet<{ quotas: Quota[] }>('/v1/get-quotas')
  return (
    <>
      <Card title="Cost"><Budget /></Card>
      <Load query={quotas}>{(q) => <InForce quotas={q.quotas} />}</Load>
    </>
  )
}

function Administered() {
  const quotas = useGet<Quotas>('/v1/quotas')
  return (
    <Load query={quotas}>
      {(q) => (
        <div className="stack">
          <Card title="Budget"><Budget limit={q.cost_quota_usd} /></Card>
          <InForce quotas={q.quotas} />
          <Own key={JSON.stringify(q.own)} own={q.own} inForce={q.quotas} />
        </div>
      )}
    </Load>
  )
}

const own = (q: Quotas['own'], priority: number): Partial<Quota> => q.quotas.find((o) => o.priority === priority) ?? {}
const shown = (n: number | null | undefined) => (n == null ? '' : String(n))
const parsed = (s: string) => (s.trim() === '' ? undefined : Number(s))

function Own({ own: o, inForce }: { own: Quotas['own']; inForce: Quota[] }) {
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
  const field = (name: keyof typeof form, label: string, without?: number) => (
    <TextInput
      label={label}
      type="number"
      min={name === 'cost' ? 0 : 1}
      step={name === 'cost' ? 'any' : 1}
      placeholder={without ? String(without) : 'unlimited'}
      value={form[name]}
      onChange={(e) => setForm({ ...form, [name]: e.currentTarget.value })}
    />
  )
  const now = (priority: number) => inForce.find((q) => q.priority === priority)
  return (
    <Card title="Change the limits of this account">
      <p className="small">An empty field uses the limit of the service; an empty budget is unlimited.</p>
      <form
        className="stack"
        onSubmit={(e) => {
          e.preventDefault()
          save.mutate()
        }}
      >
        <div className="fields">
          {[0, 1].map((p) => [
            <div key={`rows${p}`}>{field(`rows${p}` as 'rows0' | 'rows1', `Maximum rows of a job, priority ${p}`, now(p)?.row_quota)}</div>,
            <div key={`tokens${p}`}>{field(`tokens${p}` as 'tokens0' | 'tokens1', `Maximum input tokens, priority ${p}`, now(p)?.token_quota)}</div>,
          ])}
          {field('cost', 'Cost a month, USD')}
        </div>
        <div className="actions"><Button type="submit" loading={save.isPending}>Set the quotas</Button></div>
      </form>
    </Card>
  )
}
