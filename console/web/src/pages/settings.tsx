import { useState } from 'react'
import { Button, Radio } from '@mantine/core'
import { send } from '../api/client'
import { useAct, useCan, useGet } from '../api/hooks'
import type { RetentionEffect, RetentionPreview, Settings } from '../api/types'
import { bytes, number, time } from '../lib/format'
import { Ago } from '../parts/ago'
import { Load } from '../parts/load'
import { Card, Page } from '../parts/page'

const presets = [
  { value: '1', label: '1 day', means: 'For sensitive data: fetch results on the day the job ends.' },
  { value: '7', label: '7 days', means: 'One week to fetch results and retry failed rows.' },
  { value: '30', label: '30 days', means: 'One month, as for uploaded files.' },
  { value: '90', label: '90 days', means: 'Used by accounts without a choice.' },
  { value: 'ever', label: 'For ever', means: 'Nothing is deleted automatically. Storage grows with every job.' },
]

const valueOf = (days: Settings['retention_days']) => (days == null ? 'ever' : String(days))

export default function SettingsPage() {
  const settings = useGet<Settings>('/v1/settings')
  return (
    <Page title="Settings" lead="The time for which the service keeps the data of the account’s jobs.">
      <Load query={settings}>{(s) => <Retention key={s.retention_days} days={s.retention_days} />}</Load>
    </Page>
  )
}

function Retention({ days }: { days: Settings['retention_days'] }) {
  const can = useCan()
  return (
    <Card title="Retention of job data">
      <p className="small">
        Counted from the end of a job. Then its input, results and failures are deleted; its record and the usage stay. A shorter time also
        applies to finished jobs.
      </p>
      {can.administer ? <Choice days={days} /> : <InForce days={days} />}
    </Card>
  )
}

function InForce({ days }: { days: Settings['retention_days'] }) {
  const current = presets.find((p) => p.value === valueOf(days))
  return (
    <>
      <p>Data is kept <strong>{days == null ? 'for ever' : current?.label ?? `${days} days`}</strong>, until an administrator of the account chooses otherwise.</p>
      <Preview chosen={valueOf(days)} current={valueOf(days)} />
    </>
  )
}

function Choice({ days }: { days: Settings['retention_days'] }) {
  const current = valueOf(days)
  const preview = useGet<RetentionPreview>('/v1/settings/preview')
  const [chosen, choose] = useState(current)
  const save = useAct(() => send('PATCH', '/v1/settings', { retention_days: chosen === 'ever' ? null : Number(chosen) }), {
    done: () => 'The retention is set.',
    paths: ['/v1/settings'],
  })
  return (
    <form
      className="stack"
      onSubmit={(e) => {
        e.preventDefault()
        save.mutate()
      }}
    >
      <Radio.Group aria-label="Retention" value={chosen} onChange={choose}>
        <div className="stack tight">
          {presets.map((p) => (
            <Radio
              key={p.value}
              value={p.value}
              label={p.value === current ? `${p.label} (current)` : p.label}
              description={[p.means, removes(preview.data?.presets.find((e) => valueOf(e.retention_days) === p.value))].filter(Boolean).join(' ')}
            />
          ))}
        </div>
      </Radio.Group>
      <Preview chosen={chosen} current={current} />
      <div className="actions">
        <Button type="submit" disabled={chosen === current} loading={save.isPending}>Save</Button>
      </div>
    </form>
  )
}

// Preview shows what the chosen retention would remove, or what the current one
// removes.
function Preview({ chosen, current }: { chosen: string; current: string }) {
  const preview = useGet<RetentionPreview>('/v1/settings/preview')
  const effect = preview.data?.presets.find((p) => valueOf(p.retention_days) === chosen)
  return (
    <Load query={preview}>
      {(p) => (
        <div role="status" aria-label="Effect now" className={chosen !== current && effect?.jobs ? 'warning' : 'small'}>
          {effect && <Effect of={effect} inForce={chosen === current} />}
          {!p.looked_at_all && <p>Only the {number(p.looked_at)} jobs that ended first were read.</p>}
        </div>
      )}
    </Load>
  )
}

const jobs = (e: RetentionEffect) => `${e.at_least ? 'at least ' : ''}${number(e.jobs)} ${e.jobs === 1 ? 'job' : 'jobs'}`

const removes = (e?: RetentionEffect) => (e && e.retention_days != null && e.jobs > 0 ? `Deletes the data of ${jobs(e)} now.` : '')

function Effect({ of: e, inForce }: { of: RetentionEffect; inForce: boolean }) {
  const next = e.next_at && <> Next deletion: {time(e.next_at)}.</>
  if (e.retention_days == null) return <p>Nothing {inForce ? 'is' : 'would be'} deleted.</p>
  if (e.jobs === 0) return <p>Nothing {inForce ? 'is' : 'would be'} deleted now{e.at_least && ', among the jobs that were read'}.{next}</p>
  return (
    <p>
      The data of <strong>{jobs(e)}</strong> {inForce ? 'is' : 'would be'} deleted within minutes, with {bytes(e.result_bytes)} of results; the oldest job
      ended <Ago t={e.oldest_ended_at} />.{next}
    </p>
  )
}
