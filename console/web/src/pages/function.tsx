import { useState } from 'react'
import { NativeSelect } from '@mantine/core'
import { useParams } from 'wouter'
import { send } from '../api/client'
import { useAct, useCan, useGet } from '../api/hooks'
import type { Fn } from '../api/types'
import { written } from '../lib/fn'
import { time } from '../lib/format'
import { curl } from '../lib/snippets'
import { Ago } from '../parts/ago'
import { Confirm } from '../parts/confirm'
import { Code } from '../parts/copy'
import { Diff } from '../parts/diff'
import { Status } from '../parts/job'
import { Load } from '../parts/load'
import { Card, Facts, LinkButton, Page, Table } from '../parts/page'
import { RunOne } from '../parts/runone'

export default function FunctionPage() {
  const { name } = useParams<{ name: string }>()
  const revisions = useGet<{ revisions: Fn[] }>(`/v1/functions/${name}/revisions`)
  return <Load query={revisions} title={name!}>{({ revisions }) => <Detail name={name!} revisions={revisions} />}</Load>
}

function Detail({ name, revisions }: { name: string; revisions: Fn[] }) {
  const can = useCan()
  const published = revisions.find((r) => r.published_at)
  const shown = published ?? revisions[0]
  const unpublish = useAct(() => send('DELETE', `/v1/functions/${name}`), { done: () => 'The Function is unpublished.', paths: ['/v1/functions'] })
  if (!shown) return null
  return (
    <Page
      title={name}
      lead={shown.description}
      actions={
        <>
          {can.act && published && <LinkButton href={`/jobs/new?model=${encodeURIComponent(name)}`}>New job</LinkButton>}
          {can.administer && <LinkButton href={`/functions/${name}/edit`} variant="default">New revision</LinkButton>}
          {can.administer && published && (
            <Confirm button="Unpublish" title="Unpublish the Function" act={() => unpublish.mutate()} busy={unpublish.isPending}>
              New jobs cannot use the Function. Its revisions stay, and you can publish one again.
            </Confirm>
          )}
        </>
      }
    >
      {!published && <p className="warning" role="note">This Function has no published revision, so new jobs cannot use it.</p>}
      <div className="two">
        <Definition fn={shown} />
        {can.act && published && (
          <div className="stack">
            <RunOne title="Run one input" name={name} fields={published.inputs} />
            <Card title="Call it from a program">
              <p className="small">The request waits for the answer. For many rows, submit a job with <code>{name}</code> as its model.</p>
              <Code label="Code" wrap={false} text={curl(`/v1/functions/${name}/run`, { input: Object.fromEntries(published.inputs.map((i) => [i.name, '…'])) })} />
            </Card>
          </div>
        )}
      </div>
      <Revisions name={name} revisions={revisions} />
      {revisions.length > 1 && <Difference revisions={revisions} />}
    </Page>
  )
}

function Definition({ fn }: { fn: Fn }) {
  return (
    <Card title={`Revision ${fn.revision}`}>
      <Facts
        facts={[
          ['Model', fn.model],
          ['Fields', fn.inputs.map((i) => i.name + (i.required ? '' : ' (optional)')).join(', ') || 'none'],
          fn.published_at ? ['Published', <Ago key="p" t={fn.published_at} />] : ['Created', <Ago key="c" t={fn.created_at} />],
        ]}
      />
      <h3>Prompt</h3>
      <Code label="Prompt" text={fn.prompt} />
      {fn.system_prompt && <><h3>System prompt</h3><Code label="System prompt" text={fn.system_prompt} /></>}
      {fn.json_schema && <><h3>Schema</h3><Code label="Schema" text={JSON.stringify(fn.json_schema, null, 2)} /></>}
      {Object.keys(fn.sampling_params ?? {}).length > 0 && <><h3>Parameters</h3><Code label="Parameters" text={JSON.stringify(fn.sampling_params, null, 2)} /></>}
    </Card>
  )
}

function Revisions({ name, revisions }: { name: string; revisions: Fn[] }) {
  const can = useCan()
  const publish = useAct((revision: number) => send<Fn>('POST', `/v1/functions/${name}/rollback`, { revision }), {
    done: (f) => `Revision ${f.revision} is published.`,
    paths: ['/v1/functions'],
  })
  const published = revisions.find((r) => r.published_at)
  return (
    <Card title="Revisions">
      <Table label="Revisions" heads={['Revision', 'Created', 'Model', 'State', ...(can.administer ? ['Actions'] : [])]} less={['Created', 'Model']}>
        {revisions.map((r) => (
          <tr key={r.revision}>
            <td>{r.revision}</td>
            <td>{time(r.created_at)}</td>
            <td>{r.model}</td>
            <td>{r.published_at ? <Status is="succeeded">published</Status> : <Status is="pending">not published</Status>}</td>
            {can.administer && (
              <td>
                {!r.published_at && (
                  <Confirm quiet size="compact-sm" button="Publish" color="cyan.9" of={`revision ${r.revision}`} title={`Publish revision ${r.revision}`} act={() => publish.mutate(r.revision)}>
                    {published ? (
                      <div className="stack">
                        <p>New jobs use this revision instead of revision {published.revision}. It has these changes:</p>
                        <Diff from={written(published)} to={written(r)} />
                      </div>
                    ) : 'New jobs can then use the Function.'}
                  </Confirm>
                )}
              </td>
            )}
          </tr>
        ))}
      </Table>
    </Card>
  )
}

function Difference({ revisions }: { revisions: Fn[] }) {
  const published = revisions.find((r) => r.published_at)
  const newest = revisions[0]!
  const [from, setFrom] = useState((published && published !== newest ? published : revisions[1]!).revision)
  const [to, setTo] = useState(newest.revision)
  const find = (n: number) => revisions.find((r) => r.revision === n)!
  const data = revisions.map((r) => ({ value: String(r.revision), label: `Revision ${r.revision}` }))
  return (
    <Card title="Compare two revisions">
      <div className="fields">
        <NativeSelect label="From" value={from} onChange={(e) => setFrom(Number(e.currentTarget.value))} data={data} />
        <NativeSelect label="To" value={to} onChange={(e) => setTo(Number(e.currentTarget.value))} data={data} />
      </div>
      <Diff from={written(find(from))} to={written(find(to))} />
    </Card>
  )
}
