import { useState } from 'react'
import { Button, Modal } from '@mantine/core'
import { send } from '../api/client'
import { useAct } from '../api/hooks'
import type { Cancelled } from '../api/types'
import { number, plural } from '../lib/format'

type Filter = Record<string, string>
type Target = { job_ids: string[] } | { filter: Record<string, string | boolean> }

const cancel = (target: Target, dry_run: boolean) => send<Cancelled>('POST', '/v1/jobs/cancel', { ...target, dry_run })

// BulkCancel has buttons that ask the node which jobs it would cancel, and then cancel them.
export function BulkCancel({ marked, filter, filtered, done }: { marked: string[]; filter: Filter; filtered: boolean; done: () => void }) {
  const [target, setTarget] = useState<Target>()
  const preview = useAct((t: Target) => cancel(t, true))
  const run = useAct((t: Target) => cancel(t, false), {
    done: (r) => `The service has cancelled ${number(r.cancelled)} of ${plural(r.matched, 'job')}.`,
    paths: ['/v1/list-jobs', '/v1/jobs'],
  })
  const ask = (t: Target) => preview.mutate(t, { onSuccess: () => setTarget(t) })
  const plan = preview.data
  if (!marked.length && !filtered && !target) return null
  return (
    <>
      {marked.length > 0 && (
        <Button size="xs" variant="default" loading={preview.isPending} onClick={() => ask({ job_ids: marked })}>
          Cancel {plural(marked.length, 'job')}
        </Button>
      )}
      {filtered && (
        <Button size="xs" variant="default" loading={preview.isPending} onClick={() => ask({ filter: dropEmpty(filter) })}>
          Cancel all that match
        </Button>
      )}
      <Modal opened={!!target} onClose={() => setTarget(undefined)} title="Cancel jobs">
        {plan && (
          <div className="stack">
            <p>
              {number(plan.matched)} {plan.matched === 1 ? 'job matches' : 'jobs match'}: <strong>{number(plan.cancelled)}</strong> would be
              cancelled, {number(plan.already_over)} {plan.already_over === 1 ? 'is' : 'are'} over already. Their answers stay.
            </p>
            {plan.job_ids.length > 0 && (
              <pre className="ids" tabIndex={0} role="region" aria-label="Jobs">
                {plan.job_ids.join('\n')}
                {plan.matched > plan.job_ids.length && `\nand ${number(plan.matched - plan.job_ids.length)} more`}
              </pre>
            )}
            <div className="actions end">
              <Button variant="default" onClick={() => setTarget(undefined)}>
                Keep them running
              </Button>
              <Button
                color="red.9"
                disabled={plan.cancelled === 0}
                loading={run.isPending}
                onClick={() =>
                  run.mutate(target!, {
                    onSuccess: () => {
                      setTarget(undefined)
                      done()
                    },
                  })
                }
              >
                Cancel {plural(plan.cancelled, 'job')}
              </Button>
            </div>
          </div>
        )}
      </Modal>
    </>
  )
}

const dropEmpty = (f: Filter) => Object.fromEntries(Object.entries(f).filter(([, v]) => v).map(([k, v]) => [k, k === 'failed_rows' ? true : v]))
