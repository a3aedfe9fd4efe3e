import { useState } from 'react'
import { Button, Radio } from '@mantine/core'
import { send } from '../api/client'
import { useAct, useGet } from '../api/hooks'
import type { Settings } from '../api/types'
import { Load } from '../parts/load'
import { Card, Page } from '../parts/page'

const presets = [
  { value: '1', label: '1 day', means: 'Fetch results on the day the job ends. The least that is kept of sensitive data.' },
  { value: '7', label: '7 days', means: 'A week to fetch results and to run failed rows again.' },
  { value: '30', label: '30 days', means: 'A month, as for files that were uploaded.' },
  { value: '90', label: '90 days', means: 'What holds for an account that has chosen nothing.' },
  { value: 'ever', label: 'For ever', means: 'Nothing is deleted by itself. Storage grows with every job.' },
]

export default function SettingsPage() {
  const settings = useGet<Settings>('/v1/settings')
  return (
    <Page title="Settings">
      <Load query={settings}>{(s) => <Retention key={s.retention_days} days={s.retention_days} />}</Load>
    </Page>
  )
}

function Retention({ days }: { days: Settings['retention_days'] }) {
  const current = days == null ? 'ever' : String(days)
  const [chosen, choose] = useState(current)
  const save = useAct(() => send('PATCH', '/v1/settings', { retention_days: chosen === 'ever' ? null : Number(chosen) }), {
    done: () => 'The retention is set.',
    paths: ['/v1/settings'],
  })
  return (
    <Card title="How long data of jobs are kept">
      <p className="small">
        It counts from the end of a job. Then its input, results and failures are deleted; the record, with its figures, and the usage stay. A
        shorter time counts for jobs that are over, too.
      </p>
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
              <Radio key={p.value} value={p.value} label={p.label} description={p.means} />
            ))}
          </div>
        </Radio.Group>
        <div className="actions">
          <Button type="submit" disabled={chosen === current} loading={save.isPending}>Keep them so long</Button>
        </div>
      </form>
    </Card>
  )
}
