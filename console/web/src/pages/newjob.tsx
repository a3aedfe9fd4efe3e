import { useEffect, useMemo, useRef, useState, type ReactNode } from 'react'
import { Button, Checkbox, NativeSelect, Tabs, Textarea, TextInput, type TextareaProps } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { Link, useLocation, useSearchParams } from 'wouter'
import { ApiError, get, send } from '../api/client'
import { useGet, useMe } from '../api/hooks'
import type { Fn, Job, Model, Quota, Row, Submitted, SubmittedSet } from '../api/types'
import { dropDrafts, useDraft } from '../lib/draft'
import { plural, text, usd } from '../lib/format'
import { randomID } from '../lib/random'
import { isChat, linesOf } from '../lib/rows'
import { curl, python } from '../lib/snippets'
import { compareHref } from '../parts/comparewith'
import { Code } from '../parts/copy'
import { Estimated, useEstimate } from '../parts/estimate'
import { nameSize, priorityName, titleOf } from '../parts/job'
import { beyond, blank, changedFields, deadlineOf, json, marksField, messagesAt, ownParams, prioritySized, rowsError, sample, schemaError, sentRows, settingsOf, submission, unknownColumns, withModels, type Form } from '../parts/jobform'
import { Load, Problem } from '../parts/load'
import { isServed, ModelSelect, OtherModels } from '../parts/models'
import { Card, Page } from '../parts/page'
import { longer } from '../parts/retry'
import { RowsInput } from '../parts/rowsinput'
import { TestButton, TestRuns, useTestRuns, wholeCost } from '../parts/testrun'

const noQuotas: Quota[] = []
const noModels: Model[] = []
const noFunctions: Fn[] = []

const useModels = () => useGet<{ data: Model[] }>('/v1/models', { fresh: 60_000 })

// useRows returns the inputs of the rows of a job with these numbers, as New job gets them in
// its address.
const useRows = (job: string | null, numbers: string | null) =>
  useQuery<string[], ApiError>({
    queryKey: [`/v1/jobs/${job}/rows`, numbers],
    queryFn: ({ signal }) => Promise.all(numbers!.split(',').map(async (n) => text((await get<Row>(`/v1/jobs/${job}/rows/${n}`, signal)).input))),
    enabled: !!numbers,
    staleTime: Infinity,
  })

// NewJob has a form with a draft for each address: a form that begins with the settings of a job or with
// a file does not replace the draft of another form.
export default function NewJob() {
  const [search] = useSearchParams()
  const { data: me } = useMe()
  const [id, numbers] = [search.get('like'), search.get('rows')]
  const like = useGet<{ job: Job }>(`/v1/jobs/${id}`, { enabled: !!id, fresh: Infinity })
  const rows = useRows(id, numbers)
  const models = useModels()
  if (id && !like.data) return <Load query={like} title="New job">{() => null}</Load>
  if (id && models.isPending) return <Load query={models} title="New job">{() => null}</Load>
  if (numbers && !rows.data) return <Load query={rows} title="New job">{() => null}</Load>
  const initial: Form = {
    ...blank,
    ...(search.has('sample') && sample),
    ...(search.has('file') && { source: 'file', fileID: search.get('file')! }),
    ...(like.data ? settingsOf(like.data.job, models.data?.data) : { model: search.get('model') ?? '' }),
    ...(search.has('cut') && { noCut: false }),
    ...(search.has('longer') && like.data && { params: JSON.stringify({ ...ownParams(like.data.job, models.data?.data), max_tokens: longer(like.data.job) }, null, 2) }),
    ...(rows.data && { source: 'rows', prompt: '', limit: '', reuse: undefined, rows: linesOf(rows.data), chats: rows.data.every(isChat) }),
  }
  const draft = `newjob:${me?.account}?${search}:`
  return <NewJobForm key={draft} draft={draft} initial={initial} isCopy={search.size > 0} again={like.data && !numbers ? titleOf(like.data.job) : undefined} />
}

// NewJobForm begins with the form initial, or with its draft. isCopy is set if initial is not blank, and
// again is the title of the job that runs again.
function NewJobForm({ draft, initial, isCopy, again }: { draft: string; initial: Form; isCopy: boolean; again?: string }) {
  const [first] = useState(initial)
  const [form, setForm, isKept] = useDraft<Form>(draft, first)
  const clear = () => {
    dropDrafts(draft)
    setForm(first)
  }
  const set = (change: Partial<Form>) => setForm((f) => ({ ...f, ...change }))
  const models = useModels()
  const functions = useGet<{ functions: Fn[] }>('/v1/functions', { fresh: 60_000 })
  const choice = { models: models.data?.data ?? noModels, functions: functions.data?.functions ?? noFunctions }
  const others = form.others ?? []
  const fn = functions.data?.functions.find((f) => f.name === form.model)
  useEffect(() => {
    const served = models.data?.data.find(isServed)
    if (!form.model && served) set({ model: served.id })
  }, [models.data])

  const quotas = useGet<{ quotas: Quota[] }>('/v1/get-quotas', { fresh: 60_000 }).data?.quotas ?? noQuotas
  const priority = form.priority || prioritySized(form, quotas)
  const exceeded = beyond(form, priority, quotas)

  const [, go] = useLocation()
  const single = useMemo(() => submission(form, !!fn, priority), [form, fn, priority])
  const body = useMemo(() => ({ ...withModels(single, form.others ?? []), ...deadlineOf(form) }), [single, form.others, form.deadline, form.onlyIfMet])
  const path = others.length > 0 ? '/v1/sets' : '/v1/batch-inference'
  const sent = sentRows(form)
  const rowsFault = useMemo(() => (fn && form.source === 'rows' ? rowsError(form.rows, fn.inputs) : ''), [fn, form.source, form.rows])
  const problem = rowsFault || (!fn && (schemaError(form.schema) || unknownColumns(form).length > 0)) || json(form.params).error
  const [refusal, setRefusal] = useState<{ e: Error; body: object }>()
  const refuse = (e: Error) => setRefusal({ e, body })
  const tests = useTestRuns<Form>(`${draft}tests`, single, form, refuse)
  const estimate = useEstimate(single, [form.model, ...others], tests.settings + others, refuse)
  const tested = others.length > 0 || form.deadline ? undefined : tests.done
  const rest = tested?.input_rows != null && tested.input_rows > (tested.num_rows ?? 0) ? tested : undefined
  const sampled = others.length > 0 || form.deadline || form.limit ? undefined : estimate.done
  const kept = rest ?? sampled // the full run takes over its answers
  const conflict = refusal?.e instanceof ApiError && refusal.e.status === 409 && refusal
  const once = useMemo(randomID, [body, kept?.job_id, conflict]) // another click after a lost answer makes no second job, and after a missed deadline a new forecast
  const submit = useMutation({
    mutationFn: () =>
      kept
        ? send<Submitted>('POST', `/v1/jobs/${kept.job_id}/resume`, { rows: 'rest', name: single.name, job_priority: single.job_priority ?? 0 }, { 'Idempotency-Key': once })
        : send<Submitted | SubmittedSet>('POST', path, body, { 'Idempotency-Key': once }),
    onError: refuse,
    onSuccess: ({ metadata: made }) => {
      clear()
      go('job_ids' in made ? compareHref(...made.job_ids) : `/jobs/${made.job_id}`)
    },
  })
  useEffect(() => submit.reset(), [body])
  const refused = refusal?.body === body ? refusal.e : undefined // an error is about the form as it was sent
  const marked = marksField(refused)
  const lacks = !form.model || others.includes('') ? 'Choose a model first.' : problem || marked ? 'Correct the marked field first.' : (Array.isArray(body.inputs) ? body.inputs.length === 0 : !body.inputs) ? 'Add rows first.' : !fn && form.several && !form.prompt.trim() && form.source !== 'rows' ? 'Write the prompt first.' : ''
  const formElement = useRef<HTMLFormElement>(null)
  const focusMarked = () => {
    const field = formElement.current?.querySelector<HTMLElement>('[aria-invalid=true]')
    field?.focus({ preventScroll: true })
    field?.scrollIntoView({ block: 'center' }) // the buttons cover the bottom of the window
  }
  useEffect(() => {
    if (marked) focusMarked()
  }, [marked])
  const changed = changedFields(first, form)
  const wholeUSD = rest ? wholeCost(rest) : sampled?.cost_estimate
  return (
    <Page title={again ? `Run again: ${again}` : 'New job'} actions={<Clear form={form} setForm={setForm} />}>
      {(again || (isCopy && isKept && form !== first)) && (
        <p className="actions small" role="note">
          {isKept && form !== first && <span>The form is as you left it.</span>}
          {again && <span>{changed.length > 0 ? `You changed: ${changed.join(', ')}.` : 'The settings are equal to the settings of the job.'}</span>}
          {form !== first && <Button variant="default" size="compact-xs" onClick={() => setForm(first)}>Undo my changes</Button>}
        </p>
      )}
      <form
        ref={formElement}
        onSubmit={(e) => {
          e.preventDefault()
          if (lacks) focusMarked()
          else submit.mutate()
        }}
      >
        <div className="stack">
          <div className="beside">
            <div className="stack">
              <Card title="Rows">
                <RowsInput form={form} set={set} fn={fn} fault={rowsFault} />
              </Card>
              <Card title="Prompt and model">
                {models.error && <Problem error={models.error} again={() => void models.refetch()} />}
                {functions.error && <Problem error={functions.error} again={() => void functions.refetch()} />}
                {!fn && <Textarea label="System prompt" description="Instructions for every row." placeholder="Is this review positive, negative or mixed?" autosize minRows={2} maxRows={12} value={form.system} onChange={(e) => set({ system: e.currentTarget.value })} />}
                <div className="fields">
                  <ModelSelect label="Model or Function" value={form.model} choose={(model) => set({ model })} without={others} {...choice} />
                  <TextInput label="Name" maxLength={nameSize} value={form.name} onChange={(e) => set({ name: e.currentTarget.value })} />
                </div>
                {fn?.description && <p className="small">{fn.description}</p>}
                {fn && (
                  <details>
                    <summary>Prompt of the Function</summary>
                    <div className="stack tight">
                      {fn.system_prompt && <Code label="System prompt" text={fn.system_prompt} />}
                      <Code label="Prompt" text={fn.prompt} />
                    </div>
                  </details>
                )}
                {!fn && (
                  <JSONText
                    label="JSON Schema of the answers"
                    description="Without a schema, answers are text."
                    minRows={2}
                    placeholder='{"type": "object", …}'
                    value={form.schema}
                    change={(schema) => set({ schema })}
                    error={schemaError(form.schema) || messagesAt(refused, 'json_schema')}
                  />
                )}
                <OtherModels first={form.model} value={others} set={(others) => set({ others })} {...choice} />
                <MoreSettings used={!!(form.priority || form.equal || form.params || form.output || form.description || form.noCut || form.deadline)}>
                  <div className="fields">
                    <NativeSelect
                      label="Priority"
                      value={form.priority}
                      onChange={(e) => set({ priority: e.currentTarget.value })}
                      data={[
                        { value: '', label: `Auto: ${prioritySized(form, quotas)}` },
                        { value: '0', label: `${priorityName(0)}: a few rows, soon` },
                        { value: '1', label: `${priorityName(1)}: many rows` },
                      ]}
                    />
                    <NativeSelect
                      label="Duplicate rows"
                      description="Run once: copies get the same answer and cost no tokens."
                      value={form.equal}
                      onChange={(e) => set({ equal: e.currentTarget.value })}
                      data={[
                        { value: '', label: 'Service default' },
                        { value: 'once', label: 'Run once' },
                        { value: 'each', label: 'Run all' },
                      ]}
                    />
                    <TextInput label="Output column" placeholder="the id of the job" maxLength={256} value={form.output} onChange={(e) => set({ output: e.currentTarget.value })} />
                    <TextInput
                      label="Deadline"
                      type="datetime-local"
                      description="Before the job starts, the service runs a sample and says when the job will end."
                      value={form.deadline}
                      onChange={(e) => set({ deadline: e.currentTarget.value })}
                      error={messagesAt(refused, 'deadline')}
                    />
                    <TextInput label="Description" maxLength={512} value={form.description} onChange={(e) => set({ description: e.currentTarget.value })} />
                  </div>
                  {form.deadline && <Checkbox label="Create the job only if the forecast meets the deadline" checked={!!form.onlyIfMet} onChange={(e) => set({ onlyIfMet: e.currentTarget.checked })} />}
                  <Checkbox label="Cut rows that are too long for the model. Otherwise the job fails at such a row." checked={!form.noCut} onChange={(e) => set({ noCut: !e.currentTarget.checked })} />
                  <JSONText
                    label="Sampling parameters"
                    description={`JSON. Defaults: ${JSON.stringify(models.data?.data.find((m) => m.id === form.model)?.sampling_params ?? {})}`}
                    minRows={1}
                    placeholder='{"temperature": 0.2, "max_tokens": 500}'
                    value={form.params}
                    change={(params) => set({ params })}
                    error={json(form.params).error || messagesAt(refused, 'sampling_params')}
                  />
                </MoreSettings>
              </Card>
            </div>
          <div className="stack results">
            <TestRuns of={tests} restore={setForm} />
            <Estimated of={estimate} ready={!lacks} />
          </div>
          </div>
          {submit.error && !marked && <Problem error={submit.error} />}
          {exceeded.length > 0 && <p className="warning" role="status">The service will refuse this job: {exceeded.join('; ')} of priority {priority}. Ask an administrator for a higher quota{priority === '0' && ', or choose priority 1 in More settings'}.</p>}
        </div>
        <div className="actions foot">
          <TestButton of={tests} ready={!lacks} />
          <Button variant="default" disabled={!!lacks} loading={estimate.waiting} onClick={estimate.begin}>Estimate the cost</Button>
          <Button type="submit" disabled={!!lacks} loading={submit.isPending}>
            {kept ? `Run all ${plural(rest?.input_rows ?? kept.num_rows!, 'row')}${wholeUSD == null ? '' : ` (≈ ${usd(wholeUSD)})`}` : `Submit ${sent > 0 ? plural(sent, 'row') : others.length > 0 ? 'the jobs' : 'the job'}${others.length > 0 ? ` to ${others.length + 1} models` : ''}`}
          </Button>
          <span className="small">
            {lacks || (submit.isPending && form.deadline && 'A sample of the rows runs, for at most 90 seconds.') || (others.length > 0 ? 'A test run uses only the first model.' : kept ? `The job keeps the answers of the ${rest ? 'test run' : 'estimate'}.` : tested && <>The test run has run all rows: <Link href={`/jobs/${tested.job_id}`}>open the test run</Link>. Submit runs the rows again.</>)}
          </span>
        </div>
      </form>
      <Card>
        <details>
          <summary>Use the API</summary>
          <Tabs defaultValue="curl" keepMounted={false}>
            <Tabs.List>
              <Tabs.Tab value="curl">curl</Tabs.Tab>
              <Tabs.Tab value="python">Python</Tabs.Tab>
            </Tabs.List>
            <Tabs.Panel value="curl"><Code label="curl" text={curl(path, body)} /></Tabs.Panel>
            <Tabs.Panel value="python"><Code label="Python" text={python(path, body)} /></Tabs.Panel>
          </Tabs>
        </details>
      </Card>
    </Page>
  )
}

// Clear empties the form except its model. Another click undoes this, if the form has not changed since.
function Clear({ form, setForm }: { form: Form; setForm: (form: Form) => void }) {
  const [cleared, setCleared] = useState<{ before: Form; after: Form }>()
  if (cleared && form === cleared.after) return <Button variant="subtle" size="sm" onClick={() => setForm(cleared.before)}>Undo clear</Button>
  const clear = () => {
    const after = { ...blank, model: form.model }
    setForm(after)
    setCleared({ before: form, after })
  }
  return <Button variant="subtle" size="sm" onClick={clear}>Clear the form</Button>
}

const JSONText = ({ change, ...rest }: TextareaProps & { change: (text: string) => void }) => (
  <Textarea classNames={{ input: 'mono' }} autosize maxRows={8} onChange={(e) => change(e.currentTarget.value)} {...rest} />
)

// MoreSettings folds settings that few jobs need. It is open while one of them is used.
function MoreSettings({ used, children }: { used: boolean; children: ReactNode }) {
  const [open, setOpen] = useState(used)
  return (
    <details open={open || used} onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>More settings</summary>
      <div className="stack">{children}</div>
    </details>
  )
}
