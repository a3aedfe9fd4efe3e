import { Button, Checkbox, NativeSelect, Textarea, TextInput } from '@mantine/core'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useLocation, useParams } from 'wouter'
import { send } from '../api/client'
import { refresh, useGet } from '../api/hooks'
import type { Fn, Model } from '../api/types'
import { dropDrafts, useDraft } from '../lib/draft'
import { written, type Definition } from '../lib/fn'
import { Diff } from '../parts/diff'
import { Load, Problem } from '../parts/load'
import { Card, Page } from '../parts/page'
import { RunOne } from '../parts/runone'

type Form = {
  name: string
  description: string
  model: string
  prompt: string
  optional: string[]
  system_prompt: string
  json_schema: string
  sampling_params: string
  draft: boolean
}

export default function Publish() {
  const { name } = useParams<{ name?: string }>()
  const revisions = useGet<{ revisions: Fn[] }>(`/v1/functions/${name}/revisions`, { enabled: !!name })
  if (!name) return <Editor key="new" />
  return <Load query={revisions} title={`Edit ${name}`}>{({ revisions }) => <Editor key={name} of={revisions.find((r) => r.published_at) ?? revisions[0]} />}</Load>
}

const pretty = (v: unknown) => (v ? JSON.stringify(v, null, 2) : '')

// unnamed is the name of a draft without a name.
const unnamed = 'unnamed'

// parsed returns the value of a JSON field; null if it is empty.
function parsed(label: string, json: string): unknown {
  try {
    return json.trim() ? JSON.parse(json) : null
  } catch (e) {
    throw new Error(`${label}: this is no JSON. ${(e as Error).message}`)
  }
}

// fields returns the names between double braces, in the order of their first use.
const fields = (prompt: string) => [...new Set(Array.from(prompt.matchAll(/\{\{\s*([^{}\n]+?)\s*\}\}/g), (m) => m[1]!))]

function Editor({ of }: { of?: Fn }) {
  const initial: Form = {
    name: of?.name ?? '',
    description: of?.description ?? '',
    model: of?.model ?? '',
    prompt: of?.prompt ?? '',
    optional: of?.inputs.filter((i) => !i.required).map((i) => i.name) ?? [],
    system_prompt: of?.system_prompt ?? '',
    json_schema: pretty(of?.json_schema),
    sampling_params: pretty(of?.sampling_params),
    draft: false,
  }
  const draft = `function:${of?.name ?? ''}:`
  const [form, setForm] = useDraft(`${draft}${of?.revision ?? ''}`, initial)
  const set = (change: Partial<Form>) => setForm((f) => ({ ...f, ...change }))
  const models = useGet<{ data: Model[] }>('/v1/models', { fresh: 60_000 })
  const inputs = fields(form.prompt).map((name) => ({
    name,
    required: !form.optional.includes(name),
    description: of?.inputs.find((i) => i.name === name)?.description ?? '',
  }))
  const definition = (name: string) => ({
    name,
    description: form.description,
    model: form.model || (models.data?.data[0]?.id ?? ''),
    prompt: form.prompt,
    inputs,
    system_prompt: form.system_prompt || null,
    json_schema: parsed('JSON Schema of the answers', form.json_schema),
    sampling_params: parsed('Sampling parameters', form.sampling_params),
  })
  const tried = form.name.trim() || unnamed
  const client = useQueryClient()
  const [, go] = useLocation()
  const publish = useMutation({
    mutationFn: async () => send<Fn>('POST', '/v1/functions', { ...definition(form.name), publish: !form.draft }),
    onSuccess: (f) => {
      dropDrafts(draft)
      void refresh(client, '/v1/functions')
      go(`/functions/${f.name}`)
    },
  })
  return (
    <Page title={of ? `New revision of ${of.name}` : 'New Function'} lead="Use {{field}} for inputs. Published revisions never change.">
      <form
        id="definition"
        className="stack"
        onSubmit={(e) => {
          e.preventDefault()
          publish.mutate()
        }}
      >
        <Card>
          <div className="fields">
            <TextInput label="Name" required withAsterisk={false} disabled={!!of} maxLength={64} value={form.name} onChange={(e) => set({ name: e.currentTarget.value })} />
            <NativeSelect label="Model" value={form.model} onChange={(e) => set({ model: e.currentTarget.value })} data={[...new Set([...(form.model ? [form.model] : []), ...(models.data?.data.map((m) => m.id) ?? [])])]} />
          </div>
          <TextInput label="Description" value={form.description} onChange={(e) => set({ description: e.currentTarget.value })} />
          <Textarea label="Prompt" required withAsterisk={false} autosize minRows={4} maxRows={24} value={form.prompt} onChange={(e) => set({ prompt: e.currentTarget.value })} />
          {fields(form.prompt).length > 0 && (
            <Checkbox.Group label="Optional fields" value={form.optional} onChange={(optional) => set({ optional })}>
              <div className="actions">{fields(form.prompt).map((f) => <Checkbox key={f} value={f} label={f} />)}</div>
            </Checkbox.Group>
          )}
          <Textarea label="System prompt" autosize minRows={2} maxRows={12} value={form.system_prompt} onChange={(e) => set({ system_prompt: e.currentTarget.value })} />
          <Textarea label="JSON Schema of the answers" classNames={{ input: 'mono' }} autosize minRows={2} maxRows={20} value={form.json_schema} onChange={(e) => set({ json_schema: e.currentTarget.value })} />
          <Textarea label="Sampling parameters, as JSON" classNames={{ input: 'mono' }} autosize minRows={1} maxRows={12} value={form.sampling_params} onChange={(e) => set({ sampling_params: e.currentTarget.value })} />
        </Card>
        {of && <Changes of={of} to={() => definition(form.name)} discard={() => setForm(initial)} />}
      </form>
      <RunOne title="Try it with one input" name={tried} fields={inputs} more={() => ({ definition: definition(tried) })}>
        Runs this draft once, as a job of one row, without saving it.
      </RunOne>
      <Card>
        <Checkbox label="Save as a draft only" checked={form.draft} onChange={(e) => set({ draft: e.currentTarget.checked })} />
        {publish.error && <Problem error={publish.error} />}
        <div className="actions">
          <Button type="submit" form="definition" loading={publish.isPending}>
            {form.draft ? 'Save the draft' : 'Publish'}
          </Button>
        </div>
      </Card>
    </Page>
  )
}

// Changes shows how a draft differs from the revision that it starts from.
function Changes({ of, to, discard }: { of: Fn; to: () => Definition; discard: () => void }) {
  let change: string | Error
  try {
    change = written(to())
  } catch (e) {
    change = e as Error
  }
  const before = written(of)
  return (
    <Card
      title={`Changes to revision ${of.revision}${of.published_at ? ', which is published' : ''}`}
      actions={change !== before && <Button size="xs" variant="default" onClick={discard}>Discard the changes</Button>}
    >
      {change instanceof Error ? <p className="small">{change.message}</p> : change === before ? <p className="small">No changes yet.</p> : <Diff from={before} to={change} />}
    </Card>
  )
}
