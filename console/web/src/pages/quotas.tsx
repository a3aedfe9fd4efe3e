import { useState, type ReactNode } from 'react'
import { Button, NumberInput, TextInput } from '@mantine/core'
import { send } from '../api/client'
import { useAct, useCan, useGet } from '../api/hooks'
import type { Quota, Quotas } from '../api/types'
import { number } from '../lib/format'
import { Budget } from '../parts/budget'
import { priorityName } from '../parts/job'
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

type Limit = 'row_quota' | 'token_quota'

const bound = (n: number) => (n === 0 ? 'unlimited' : number(n))

const uses = ['a few rows, soon', 'many rows']

// Limits shows the limits of a job by priority. cell shows a limit, or a field that changes it.
function Limits({ quotas, cell }: { quotas: Quota[]; cell: (q: Quota, of: Limit) => ReactNode }) {
  return (
    <>
      <p className="small">A job above a limit fails. The limits count for each job alone, so other jobs do not use them up.</p>
      <Table label="Limits of a job" heads={['Priority', 'Rows', 'Input tokens']} less={[]}>
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
      <Card title="Cost"><Budget /></Card>
      <Card title="Limits of a job">
        <Load query={quotas}>{(q) => <Limits quotas={q.quotas} cell={(q, of) => bound(q[of])} />}</Load>
      </Card>
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
          <Change key={JSON.stringify(q.own)} own={q.own} inForce={q.quotas} />
        </div>
      )}
    </Load>
  )
}

const shown = (n: number | null | undefined) => (n == null ? '' : String(n))
const parsed = (s: string | undefined) => (s?.trim() ? Number(s) : undefined)

// Change has a field for each limit. A field is empty if the account has no limit of its own.
function Change({ own, inForce }: { own: Quotas['own']; inForce: Quota[] }) {
  const [limits, setLimits] = useState<Record<string, string>>(Object.fromEntries(own.quotas.flatMap((q) => [[`${q.priority} row_quota`, shown(q.row_quota)], [`${q.priority} token_quota`, shown(q.token_quota)]])))
  const [cost, setCost] = useState(shown(own.cost_quota_usd))
  const save = useAct(
    () =>
      send('PUT', '/v1/quotas', {
        quotas: inForce
          .map(({ priority: p }) => ({ priority: p, row_quota: parsed(limits[`${p} row_quota`]), token_quota: parsed(limits[`${p} token_quota`]) }))
          .filter((q) => q.row_quota !== undefined || q.token_quota !== undefined),
        cost_quota_usd: parsed(cost) ?? null,
      }),
    { done: () => 'The quotas apply to new jobs.', paths: ['/v1/quotas'] },
  )
  const field = (q: Quota, of: Limit) => (
    <NumberInput
      aria-label={`${of === 'row_quota' ? 'Rows' : 'Input tokens'} of a job, priority ${q.priority}`}
      min={1}
      allowDecimal={false}
      thousandSeparator
      hideControls
      placeholder={own.quotas.find((o) => o.priority === q.priority)?.[of] == null ? bound(q[of]) : 'limit of the service'}
      value={limits[`${q.priority} ${of}`] ?? ''}
      onChange={(n) => setLimits({ ...limits, [`${q.priority} ${of}`]: String(n) })}
    />
  )
  return (
    <Card title="Limits of this account">
      <form
        className="stack"
        onSubmit={(e) => {
          e.preventDefault()
          save.mutate()
        }}
      >
        <Limits quotas={inForce} cell={field} />
        <p className="small">An empty field uses the limit of the service.</p>
        <div className="fields">
          <TextInput label="Cost a month, USD" type="number" min={0} step="any" placeholder="unlimited" value={cost} onChange={(e) => setCost(e.currentTarget.value)} />
        </div>
        <div className="actions"><Button type="submit" loading={save.isPending}>Set the quotas</Button></div>
      </form>
    </Card>
  )
}
