import { useState } from 'react'
import { Button, Radio } from '@mantine/core'
import { send } from '../api/client'
import { useAct, useCan, useGet } from '../api/hooks'
import type { RetentionEffect, RetentionPreview, Settings } from '../api/types'
import { bytes, number, plural, time } from '../lib/format'
import { Ago } from '../parts/ago'
import { Confirm } from '../parts/confirm'
import { Load } from '../parts/load'
import { Card, Page } from '../parts/page'

const presets = [
  { value: '1', label: '1 day', means: 'For sensitive data: fetch results on the day the job ends.' },
  { value: '7', label: '7 days', means: 'One week to fetch results and retry failed rows.' },
  { value: '30', label: '30 days', means: 'One month. Uploaded files are kept as long.' },
  { value: '90', label: '90 days', means: 'The default.' },
  { value: 'ever', label: 'Forever', means: 'Nothing is deleted automatically. Storage grows with every job.' },
]

// isShorter reports whether a retention keeps data for a shorter time than the current one.
const isShorter = (chosen: string, current: string) => chosen !== 'ever' && (current === 'ever' || Number(chosen) < Number(current))

const valueOf = (days: Settings['retention_days']) => (days == null ? 'ever' : String(days))

export default function SettingsPage() {
  const settings = useGet<Settings>('/v1/settings')
  return (
    <Page title="Retention" lead="The service deletes the results and the failed rows of a job this long after its end. The record of the job and the usage stay.">
      <Load query={settings}>{(s) => <Retention key={s.retention_days} days={s.retention_days} />}</Load>
    </Page>
  )
}

function Retention({ days }: { days: Settings['retention_days'] }) {
  const can = useCan()
  return (
    <Card>
      <p className="small">Inputs are deleted after a week at most (<code>jobs.input_retention</code> of the configuration).</p>
      {can.administer ? <Choice days={days} /> : <InForce days={days} />}
    </Card>
  )
}

function InForce({ days }: { days: Settings['retention_days'] }) {
  const current = presets.find((p) => p.value === valueOf(days))
  return (
    <>
      <p>The service keeps the data {days == null ? <strong>forever</strong> : <>for <strong>{current?.label ?? `${days} days`}</strong></>}. An administrator of the account can change this.</p>
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
        {isShorter(chosen, current) ? (
          <Confirm button="Save" variant="filled" title="Shorten the retention" disabled={!preview.data} act={() => save.mutate()} busy={save.isPending}>
            <div className="stack tight">
              {preview.data && <Effect preview={preview.data} chosen={chosen} current={current} />}
              <p>The service cannot restore deleted data.</p>
            </div>
          </Confirm>
        ) : (
          <Button type="submit" disabled={chosen === current} loading={save.isPending}>Save</Button>
        )}
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
          <Effect preview={p} chosen={chosen} current={current} />
          {!p.looked_at_all && <p>The page has read only the {number(p.looked_at)} jobs that ended first.</p>}
        </div>
      )}
    </Load>
  )
}

const jobs = (e: RetentionEffect) => `${e.at_least ? 'at least ' : ''}${number(e.jobs)} ${e.jobs === 1 ? 'job' : 'jobs'}`

const removes = (e?: RetentionEffect) => (e && e.retention_days != null && e.jobs > 0 ? `Deletes the data of ${jobs(e)} now.` : '')

// Effect says what a retention deletes: now, and of all jobs that have ended if it is shorter than the current one.
function Effect({ preview: p, chosen, current }: { preview: RetentionPreview; chosen: string; current: string }) {
  const e = p.presets.find((e) => valueOf(e.retention_days) === chosen)
  if (!e) return null
  const inForce = chosen === current
  const next = e.next_at && !isShorter(chosen, current) && <> Next deletion: {time(e.next_at)}.</>
  const all = isShorter(chosen, current) && p.looked_at > 0 && (
    <>
      {' '}Within {plural(Number(chosen), 'day')}, the service would delete the data of all{' '}
      <strong>{p.looked_at_all ? '' : 'more than '}{plural(p.looked_at, 'job')}</strong> that {p.looked_at === 1 ? 'has' : 'have'} ended.
    </>
  )
  if (e.retention_days == null) return <p>Nothing {inForce ? 'is' : 'would be'} deleted.</p>
  if (e.jobs === 0) return <p>Nothing {inForce ? 'is' : 'would be'} deleted now{e.at_least && ', among the jobs that the page has read'}.{all}{next}</p>
  return (
    <p>
      The data of <strong>{jobs(e)}</strong> {inForce ? 'is' : 'would be'} deleted within minutes, with {bytes(e.result_bytes)} of results. The oldest job
      ended <Ago t={e.oldest_ended_at} />.{all}{next}
    </p>
  )
}
