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
    throw new Error(`${label}: this text is not JSON. ${(e as Error).message}`)
  }
}

// fields returns the names between double braces: first the names in before, in their order there,
// then new names in the order of their first use.
function fields(prompt: string, before: string[]) {
  const used = new Set(Array.from(prompt.matchAll(/\{\{\s*([^{}\n]+?)\s*\}\}/g), (m) => m[1]!))
  return [...new Set([...before.filter((name) => used.has(name)), ...used])]
}

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
  }
  const draft = `function:${of?.name ?? ''}:`
  const [form, setForm] = useDraft(`${draft}${of?.revision ?? ''}`, initial)
  const set = (change: Partial<Form>) => setForm((f) => ({ ...f, ...change }))
  const models = useGet<{ data: Model[] }>('/v1/models', { fresh: 60_000 })
  const inputs = fields(form.prompt, of?.inputs.map((i) => i.name) ?? []).map((name) => ({
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
  const change = textOf(() => definition(form.name))
  const tried = form.name.trim() || unnamed
  const client = useQueryClient()
  const [, go] = useLocation()
  const publish = useMutation({
    mutationFn: async (publish: boolean) => send<Fn>('POST', '/v1/functions', { ...definition(form.name), publish }),
    onSuccess: (f) => {
      dropDrafts(draft)
      void refresh(client, '/v1/functions')
      go(`/functions/${f.name}`)
    },
  })
  return (
    <Page title={of ? `New revision of ${of.name}` : 'New Function'} lead="Write {{field}} in the prompt for each input. Nobody can change a revision after it is published.">
      <form
        id="definition"
        className="stack"
        onSubmit={(e) => {
          e.preventDefault()
          publish.mutate((e.nativeEvent as SubmitEvent).submitter?.getAttribute('value') !== 'draft')
        }}
      >
        <Card>
          <div className="fields">
            {!of && <TextInput label="Name" required withAsterisk={false} maxLength={64} value={form.name} onChange={(e) => set({ name: e.currentTarget.value })} />}
            <NativeSelect label="Model" value={form.model} onChange={(e) => set({ model: e.currentTarget.value })} data={[...new Set([...(form.model ? [form.model] : []), ...(models.data?.data.map((m) => m.id) ?? [])])]} />
          </div>
          <TextInput label="Description" value={form.description} onChange={(e) => set({ description: e.currentTarget.value })} />
          <Textarea label="Prompt" required withAsterisk={false} autosize minRows={4} maxRows={24} value={form.prompt} onChange={(e) => set({ prompt: e.currentTarget.value })} />
          {inputs.length > 0 && (
            <Checkbox.Group label="Optional fields" value={form.optional} onChange={(optional) => set({ optional })}>
              <div className="actions">{inputs.map((i) => <Checkbox key={i.name} value={i.name} label={i.name} />)}</div>
            </Checkbox.Group>
          )}
          <Textarea label="System prompt" autosize minRows={2} maxRows={12} value={form.system_prompt} onChange={(e) => set({ system_prompt: e.currentTarget.value })} />
          <Textarea label="JSON Schema of the answers" classNames={{ input: 'mono' }} autosize minRows={2} maxRows={20} value={form.json_schema} onChange={(e) => set({ json_schema: e.currentTarget.value })} />
          <Textarea label="Sampling parameters, as JSON" classNames={{ input: 'mono' }} autosize minRows={1} maxRows={12} value={form.sampling_params} onChange={(e) => set({ sampling_params: e.currentTarget.value })} />
        </Card>
        {of && <Changes of={of} change={change} discard={() => setForm(initial)} />}
      </form>
      <RunOne title="Try it with one input" name={tried} fields={inputs} more={() => ({ definition: definition(tried) })}>
        Runs this draft once, as a job of one row. The draft is not saved.
      </RunOne>
      <div className="foot">
        {publish.error && <Problem error={publish.error} />}
        <div className="actions">
          <Button type="submit" form="definition" loading={publish.isPending} disabled={!!of?.published_at && change === written(of)}>Publish</Button>
          <Button type="submit" form="definition" value="draft" variant="default" loading={publish.isPending} disabled={!!of && change === written(of)}>Save as a draft</Button>
        </div>
      </div>
    </Page>
  )
}

// textOf returns a definition as text, or the reason why it is not valid.
function textOf(definition: () => Definition): string | Error {
  try {
    return written(definition())
  } catch (e) {
    return e as Error
  }
}

// Changes shows how a draft differs from the revision that it starts from.
function Changes({ of, change, discard }: { of: Fn; change: string | Error; discard: () => void }) {
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
