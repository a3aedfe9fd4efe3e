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
  { value: '1', label: '1 day', means: 'Fetch results on the day the job ends. The least that is kept of sensitive data.' },
  { value: '7', label: '7 days', means: 'A week to fetch results and to run failed rows again.' },
  { value: '30', label: '30 days', means: 'A month, as for files that were uploaded.' },
  { value: '90', label: '90 days', means: 'What holds for an account that has chosen nothing.' },
  { value: 'ever', label: 'For ever', means: 'Nothing is deleted by itself. Storage grows with every job.' },
]

const valueOf = (days: Settings['retention_days']) => (days == null ? 'ever' : String(days))

export default function SettingsPage() {
  const settings = useGet<Settings>('/v1/settings')
  return (
    <Page title="Settings">
      <Load query={settings}>{(s) => <Retention key={s.retention_days} days={s.retention_days} />}</Load>
    </Page>
  )
}

function Retention({ days }: { days: Settings['retention_days'] }) {
  const can = useCan()
  return (
    <Card title="How long data of jobs are kept">
      <p className="small">
        It counts from the end of a job. Then its input, results and failures are deleted; the record, with its figures, and the usage stay. A
        shorter time counts for jobs that are over, too.
      </p>
      {can.administer ? <Choice days={days} /> : <InForce days={days} />}
    </Card>
  )
}

function InForce({ days }: { days: Settings['retention_days'] }) {
  const current = presets.find((p) => p.value === valueOf(days))
  return (
    <>
      <p>They are kept <strong>{days == null ? 'for ever' : current?.label ?? `${days} days`}</strong>, until an administrator of the account chooses otherwise.</p>
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
              label={p.value === current ? `${p.label} (in force)` : p.label}
              description={`${p.means} ${removes(preview.data?.presets.find((e) => valueOf(e.retention_days) === p.value))}`}
            />
          ))}
        </div>
      </Radio.Group>
      <Preview chosen={chosen} current={current} />
      <div className="actions">
        <Button type="submit" disabled={chosen === current} loading={save.isPending}>Keep them so long</Button>
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
        <div role="status" aria-label="What it removes" className={chosen !== current && effect?.jobs ? 'warning' : 'small'}>
          {effect && <Effect of={effect} inForce={chosen === current} />}
          {!p.looked_at_all && <p>Only the {number(p.looked_at)} jobs that ended first were looked at.</p>}
        </div>
      )}
    </Load>
  )
}

const jobs = (e: RetentionEffect) => `${e.at_least ? 'at least ' : ''}${number(e.jobs)} ${e.jobs === 1 ? 'job' : 'jobs'}`

const removes = (e?: RetentionEffect) => {
  if (!e || e.retention_days == null) return ''
  return e.jobs || e.at_least ? `Removes the data of ${jobs(e)} now.` : 'Removes nothing now.'
}

function Effect({ of: e, inForce }: { of: RetentionEffect; inForce: boolean }) {
  const next = e.next_at && <> The next {inForce ? 'go' : 'would go'} at {time(e.next_at)}.</>
  if (e.retention_days == null) return <p>Nothing {inForce ? 'goes' : 'would go'}.</p>
  if (e.jobs === 0) return <p>Nothing {inForce ? 'goes' : 'would go'} now{e.at_least && ' of what was looked at'}.{next}</p>
  return (
    <p>
      The data of <strong>{jobs(e)}</strong> {inForce ? 'go' : 'would go'} within minutes, {bytes(e.result_bytes)} of results among them; the oldest
      ended <Ago t={e.oldest_ended_at} />.{next}
    </p>
  )
}
