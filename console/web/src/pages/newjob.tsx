import { useEffect, useMemo, useRef, useState, type ReactNode } from 'react'
import { Button, Checkbox, NativeSelect, SegmentedControl, Tabs, Textarea, TextInput } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { Link, useLocation, useSearchParams } from 'wouter'
import { ApiError, get, send } from '../api/client'
import { useGet, useMe } from '../api/hooks'
import type { Fn, Job, Model, Quota, Row, Submitted, SubmittedSet } from '../api/types'
import { dropDrafts, useDraft } from '../lib/draft'
import { compact, plural, text, usd } from '../lib/format'
import { likelyPrompts, type Peek } from '../lib/peek'
import { randomID } from '../lib/random'
import { isChat, linesOf, rowsOf } from '../lib/rows'
import { curl, python } from '../lib/snippets'
import { compareHref } from '../parts/comparewith'
import { Code } from '../parts/copy'
import { EstimateFirst } from '../parts/estimate'
import { FileInput } from '../parts/fileinput'
import { nameSize, over } from '../parts/job'
import { Problem } from '../parts/load'
import { isServed, ModelSelect, OtherModels } from '../parts/models'
import { Card, Page } from '../parts/page'
import { Try, useTries, wholeCost } from '../parts/try'

type Source = 'rows' | 'file' | 'url' | 'job'
type Form = {
  source: Source
  rows: string
  url: string
  fileID: string
  fileRows?: number // if known without reading the whole file
  job: string // id of the job with the stored input
  jobName: string
  jobRows?: number
  where?: string // which answers of the job to read
  noCut?: boolean // a row that is too long fails the job
  missing?: boolean // the job has no stored input
  column: string
  prompt: string // makes the prompts from columns
  idColumn: string
  chats: boolean // rows are lists of messages
  keep: boolean // results repeat the columns of the file
  limit: string // number of rows to run; empty: all
  sample: string // which rows, with a limit
  model: string
  others?: string[] // further models that run the same rows
  system: string
  schema: string
  params: string
  output: string // name of the output column
  name: string
  fileName: string // the name that the chosen file gave to the job; empty without a file
  description: string
  priority: string
  equal: string
  seen?: Peek // the file
}

const blank: Form = {
  source: 'rows', rows: '', url: '', fileID: '', job: '', jobName: '', column: '', prompt: '', idColumn: '', chats: false, keep: false, limit: '', sample: 'first', model: '', system: '', schema: '', params: '',
  output: '', name: '', fileName: '', description: '', priority: '', equal: '',
}

// settingsOf returns the fields of the form that another job has. The new job reads its stored input.
const settingsOf = (j: Job): Partial<Form> => ({
  // A job that ended before its input was read has no stored input.
  ...(over(j.status) && !j.datetime_started ? { source: 'file', missing: true } : { source: 'job' }),
  // A job that reads answers has them from another job; its own rows have other answers.
  ...(j.answers_of
    ? { job: j.answers_of, jobName: j.answers_of, jobRows: undefined }
    : { job: j.job_id, jobName: j.name ?? j.job_id, jobRows: (j.input_rows ?? j.num_rows) ?? undefined }),
  where: j.where,
  noCut: j.truncate_rows === false,
  model: j.function?.name ?? j.model,
  prompt: j.prompt ?? '',
  system: j.system_prompt ?? '',
  schema: j.json_schema ? JSON.stringify(j.json_schema, null, 2) : '',
  params: Object.keys(j.sampling_params).length ? JSON.stringify(j.sampling_params, null, 2) : '',
  keep: !!j.keep_columns,
  name: j.name ?? '',
  description: j.description ?? '',
})

// sample is a form with short rows, for people who have no rows at hand.
const sample: Partial<Form> = {
  name: 'Sample reviews',
  system: 'Is this review positive, negative or mixed? Answer with one word.',
  rows: [
    'The room was clean and the staff were kind.',
    'My order came three weeks late.',
    'Good food, but the music was too loud.',
    'I have read this book twice.',
    'The battery is empty after two hours.',
    'It does what it says.',
    'Nobody answered my letters.',
    'A bit expensive, and worth the money.',
    'The film was long, and I fell asleep.',
    'My children want to go there again.',
  ].join('\n'),
}

const noQuotas: Quota[] = []
const noModels: Model[] = []
const noFunctions: Fn[] = []

// A JSON field is empty, a value, or text that is not valid yet.
function json(s: string): { value?: unknown; error?: string } {
  if (!s.trim()) return {}
  try {
    return { value: JSON.parse(s) }
  } catch (e) {
    return { error: (e as Error).message }
  }
}

// useRows returns the inputs of the rows of a job with these numbers, as New job gets them in
// its address.
const useRows = (job: string | null, numbers: string | null) =>
  useQuery({
    queryKey: [`/v1/jobs/${job}/rows`, numbers],
    queryFn: ({ signal }) => Promise.all(numbers!.split(',').map(async (n) => text((await get<Row>(`/v1/jobs/${job}/rows/${n}`, signal)).input))),
    enabled: !!numbers,
    staleTime: Infinity,
  })

export default function NewJob() {
  const [search, setSearch] = useSearchParams()
  const { data: me } = useMe()
  const draft = `newjob:${me?.account}`
  const [form, setForm] = useDraft<Form>(
    draft,
    { ...blank, ...(search.has('sample') && sample), model: search.get('model') ?? '', fileID: search.get('file') ?? '', source: search.has('file') ? 'file' : 'rows' },
    search.size > 0,
  )
  const like = useGet<{ job: Job }>(`/v1/jobs/${search.get('like')}`, { enabled: search.has('like'), fresh: Infinity }).data?.job
  const rows = useRows(search.get('like'), search.get('rows'))
  useEffect(() => {
    if (search.has('rows') && !rows.data) return
    if (like) set({ ...settingsOf(like), ...(rows.data && { source: 'rows', prompt: '', limit: '', rows: linesOf(rows.data), chats: rows.data.every(isChat) }) })
    if (search.size > 0 && (like || !search.has('like'))) setSearch({}, { replace: true }) // a reload then keeps the draft
  }, [like, rows.data])
  const clear = () => {
    dropDrafts(draft)
    setForm(blank)
  }
  const [cleared, setCleared] = useState<{ before: Form; after: Form }>()
  const set = (change: Partial<Form>) => setForm((f) => ({ ...f, ...change }))
  const models = useGet<{ data: Model[] }>('/v1/models', { fresh: 60_000 })
  const functions = useGet<{ functions: Fn[] }>('/v1/functions', { fresh: 60_000 })
  const choice = { models: models.data?.data ?? noModels, functions: functions.data?.functions ?? noFunctions }
  const others = form.others ?? []
  const fn = functions.data?.functions.find((f) => f.name === form.model)
  useEffect(() => {
    const served = models.data?.data.find(isServed)
    if (!form.model && !search.has('like') && served) set({ model: served.id })
  }, [models.data])

  const quotas = useGet<{ quotas: Quota[] }>('/v1/get-quotas', { fresh: 60_000 }).data?.quotas ?? noQuotas
  const priority = form.priority || prioritySized(form, quotas)
  const exceeded = beyond(form, priority, quotas)

  const [, go] = useLocation()
  const single = useMemo(() => submission(form, !!fn, priority), [form, fn, priority])
  const body = useMemo(() => withModels(single, form.others ?? []), [single, form.others])
  const path = others.length > 0 ? '/v1/sets' : '/v1/batch-inference'
  const sent = form.source === 'rows' || form.source === 'job' ? (countRows(form) ?? 0) : 0
  const problem = (!fn && json(form.schema).error) || json(form.params).error || (fn && form.source === 'rows' && rowsOf(form.rows, true) === null)
  const lacks = !form.model || others.includes('') ? 'Choose a model first.' : (Array.isArray(body.inputs) ? body.inputs.length === 0 : !body.inputs) ? 'Add rows first.' : problem ? 'Correct the marked field first.' : ''
  const tries = useTries<Form>(`${draft}:tries`, single)
  const tried = others.length > 0 ? undefined : tries.done
  const rest = tried?.input_rows != null && tried.input_rows > (tried.num_rows ?? 0) ? tried : undefined
  const once = useMemo(randomID, [body, rest?.job_id]) // another click after a lost answer makes no second job
  const submit = useMutation({
    mutationFn: () =>
      rest
        ? send<Submitted>('POST', `/v1/jobs/${rest.job_id}/resume`, { rows: 'rest', name: single.name, job_priority: single.job_priority ?? 0 }, { 'Idempotency-Key': once })
        : send<Submitted | SubmittedSet>('POST', path, body, { 'Idempotency-Key': once }),
    onError: (e) => setRefusal({ e, body }),
    onSuccess: ({ metadata: made }) => {
      clear()
      go('job_ids' in made ? compareHref(...made.job_ids) : `/jobs/${made.job_id}`)
    },
  })
  useEffect(() => submit.reset(), [body])
  const [refusal, setRefusal] = useState<{ e: Error; body: object }>()
  const refused = refusal?.body === body ? refusal.e : undefined // an error is about the form as it was sent
  // at returns the messages of a refusal about a field of the form.
  const at = (field: string) => refused instanceof ApiError && refused.fields.filter((f) => new RegExp(`^(variants\\[0\\]\\.)?${field}\\b`).test(f.field)).map((f) => f.message.replace(/^(?=[a-z])/, 'It ')).join(' ')
  const marked = !!(!fn && at('json_schema')) || !!at('sampling_params')
  const formElement = useRef<HTMLFormElement>(null)
  const focusMarked = () => formElement.current?.querySelector<HTMLElement>('[aria-invalid=true]')?.focus()
  useEffect(() => {
    if (marked) focusMarked()
  }, [marked])
  const wholeUSD = rest && wholeCost(rest)
  return (
    <Page title="New job">
      {rows.error && <Problem error={rows.error} again={() => void rows.refetch()} />}
      <form
        ref={formElement}
        className="stack"
        onSubmit={(e) => {
          e.preventDefault()
          if (lacks) focusMarked()
          else submit.mutate()
        }}
      >
        <Card title="Rows">
          <RowsInput form={form} set={set} fn={fn} />
        </Card>
        <Card title="Model and prompt">
          {models.error && <Problem error={models.error} again={() => void models.refetch()} />}
          {functions.error && <Problem error={functions.error} again={() => void functions.refetch()} />}
          <div className="fields">
            <ModelSelect label="Model or Function" value={form.model} choose={(model) => set({ model })} without={others} {...choice} />
          </div>
          <OtherModels first={form.model} value={others} set={(others) => set({ others })} {...choice} />
          {!fn && (
            <>
              <Textarea label="System prompt" description="Instructions for every row." placeholder="Is this review positive, negative or mixed?" autosize minRows={2} maxRows={12} value={form.system} onChange={(e) => set({ system: e.currentTarget.value })} />
              <Textarea
                label="JSON Schema of the answers"
                description="Empty: answers are text."
                classNames={{ input: 'mono' }}
                autosize
                minRows={2}
                maxRows={16}
                placeholder='{"type": "object", …}'
                value={form.schema}
                onChange={(e) => set({ schema: e.currentTarget.value })}
                error={json(form.schema).error || at('json_schema')}
              />
            </>
          )}
          <MoreSettings used={!!(form.priority || form.equal || form.params || form.output || form.description)}>
            <div className="fields">
              <NativeSelect
                label="Priority"
                value={form.priority}
                onChange={(e) => set({ priority: e.currentTarget.value })}
                data={[
                  { value: '', label: `Auto: ${prioritySized(form, quotas)}` },
                  { value: '0', label: '0: at once, for few rows' },
                  { value: '1', label: '1: any number of rows' },
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
              <TextInput label="Output column" description="Empty: the id of the job." maxLength={256} value={form.output} onChange={(e) => set({ output: e.currentTarget.value })} />
              <TextInput label="Description" maxLength={512} value={form.description} onChange={(e) => set({ description: e.currentTarget.value })} />
            </div>
            <Textarea
              label="Sampling parameters"
              description={`JSON. Defaults: ${JSON.stringify(models.data?.data.find((m) => m.id === form.model)?.sampling_params ?? {})}`}
              classNames={{ input: 'mono' }}
              autosize
              minRows={1}
              maxRows={12}
              placeholder='{"temperature": 0.2, "max_tokens": 500}'
              value={form.params}
              onChange={(e) => set({ params: e.currentTarget.value })}
              error={json(form.params).error || at('sampling_params')}
            />
          </MoreSettings>
        </Card>
        <Try of={tries} note={lacks || (others.length > 0 ? 'A try runs only the first model.' : '')} ready={!lacks} form={form} restore={setForm} refused={(e) => setRefusal({ e, body })} />
        {submit.error && !marked && <Problem error={submit.error} />}
        <Card title="Name and submission">
          <div className="fields">
            <TextInput label="Name" maxLength={nameSize} value={form.name} onChange={(e) => set({ name: e.currentTarget.value })} />
          </div>
          {others.length > 0 ? <p className="small">To estimate the cost, choose one model.</p> : <EstimateFirst body={body} ready={!lacks} refused={(e) => setRefusal({ e, body })} />}
          {exceeded.length > 0 && <p className="warning" role="status">The service will refuse this job: {exceeded.join('; ')} of priority {priority}. Ask an administrator for a higher quota{priority === '0' && ', or choose priority 1 in More settings'}.</p>}
          <div className="actions">
            <Button type="submit" disabled={!!lacks && !problem} loading={submit.isPending}>
              {rest ? `Run all ${plural(rest.input_rows!, 'row')}${wholeUSD == null ? '' : ` (≈ ${usd(wholeUSD)})`}` : `Submit ${sent > 0 ? plural(sent, 'row') : others.length > 0 ? 'the jobs' : 'the job'}${others.length > 0 ? ` to ${others.length + 1} models` : ''}`}
            </Button>
            {form === cleared?.after ? (
              <Button variant="default" onClick={() => setForm(cleared.before)}>Undo clear</Button>
            ) : (
              <Button
                variant="default"
                onClick={() => {
                  const after = { ...blank, model: form.model }
                  setForm(after)
                  setCleared({ before: form, after })
                }}
              >
                Clear the form
              </Button>
            )}
            <span className="small">
              {lacks || (rest ? 'It keeps the answers of the try.' : tried && <>The try has run all rows: <Link href={`/jobs/${tried.job_id}`}>open it</Link>. Submit runs them again.</>)}
            </span>
          </div>
        </Card>
      </form>
      <Card title="Use the API">
        <Tabs defaultValue="curl" keepMounted={false}>
          <Tabs.List>
            <Tabs.Tab value="curl">curl</Tabs.Tab>
            <Tabs.Tab value="python">Python</Tabs.Tab>
          </Tabs.List>
          <Tabs.Panel value="curl"><Code label="curl" text={curl(path, body)} /></Tabs.Panel>
          <Tabs.Panel value="python"><Code label="Python" text={python(path, body)} /></Tabs.Panel>
        </Tabs>
      </Card>
    </Page>
  )
}

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

function inputsOf(f: Form, fn: boolean): unknown[] | string {
  switch (f.source) {
    case 'rows':
      return rowsOf(f.rows, fn) ?? []
    case 'url':
      return f.url.trim()
    case 'file':
      return f.fileID && `file:${f.fileID}`
    case 'job':
      return f.job && `job:${f.job}`
  }
}

function submission(f: Form, fn: boolean, priority: string) {
  const file = f.source === 'file' || f.source === 'url'
  const prompt = f.source !== 'rows' && !fn && !!f.prompt.trim()
  return {
    inputs: inputsOf(f, fn),
    model: f.model,
    ...(prompt ? { prompt: f.prompt } : file && !fn && f.column ? { column_name: f.column } : {}),
    ...(file && f.idColumn ? { id_column_name: f.idColumn } : {}),
    ...(f.source === 'job' && f.where ? { where: f.where } : {}),
    ...(f.noCut ? { truncate_rows: false } : {}),
    ...(f.chats && !fn && !prompt && f.source !== 'job' ? { messages: true } : {}),
    ...(file && f.keep ? { keep_columns: '*' } : {}),
    ...(f.output ? { output_name: f.output } : {}),
    ...(Number(f.limit) > 0 ? { limit: Number(f.limit), sample: f.sample } : {}),
    ...(!fn && f.system ? { system_prompt: f.system } : {}),
    ...(!fn && f.schema.trim() ? { json_schema: json(f.schema).value } : {}),
    ...(f.params.trim() ? { sampling_params: json(f.params).value } : {}),
    ...(priority === '1' ? { job_priority: 1 } : {}),
    ...(f.equal ? { dedup: f.equal === 'once' } : {}),
    ...(f.name ? { name: f.name } : {}),
    ...(f.description ? { description: f.description } : {}),
  }
}

// withModels returns the submission of a set: the same rows with each model.
const withModels = (body: ReturnType<typeof submission>, others: string[]) => {
  if (others.length === 0) return body
  const { output_name: _, ...shared } = body
  return { ...shared, variants: [body.model, ...others].map((model) => ({ model, output_name: model, ...([...model].length <= nameSize ? { name: model } : {}) })) }
}

// countRows returns the number of rows that the job will run, if it is known.
function countRows(f: Form): number | undefined {
  const rows = f.source === 'rows' ? (rowsOf(f.rows, false)?.length ?? 0) : f.source === 'file' ? f.fileRows : f.source === 'job' ? f.jobRows : undefined
  const limit = Number(f.limit)
  return limit > 0 ? Math.min(limit, rows ?? limit) : rows
}

// prioritySized returns 1 for a job that has, or may have, more rows than priority 0 takes.
function prioritySized(f: Form, quotas: Quota[]): '0' | '1' {
  const q = quotas.find((q) => q.priority === 0)
  const most = q ? q.row_quota || Infinity : 0
  return (countRows(f) ?? Infinity) <= most ? '0' : '1'
}

// beyond describes the quotas that a job would exceed. Tokens are estimated at four bytes each.
function beyond(f: Form, priority: string, quotas: Quota[]): string[] {
  const q = quotas.find((q) => String(q.priority) === priority)
  const rows = countRows(f)
  if (!q || rows === undefined) return []
  const tokens = f.source === 'rows' ? new Blob([f.rows]).size / 4 + (rows * f.system.length) / 4 : 0
  return [
    ...(q.row_quota && rows > q.row_quota ? [`${plural(rows, 'row')} ${rows === 1 ? 'is' : 'are'} more than the ${plural(q.row_quota, 'row')} of a job`] : []),
    ...(q.token_quota && tokens > q.token_quota ? [`about ${compact(tokens)} tokens are more than the ${compact(q.token_quota)} tokens of a job`] : []),
  ]
}

function RowsInput({ form, set, fn }: { form: Form; set: (change: Partial<Form>) => void; fn?: Fn }) {
  const { seen } = form
  const file = form.source === 'file' || form.source === 'url'
  const columns = seen?.columns ?? []
  return (
    <>
      <SegmentedControl
        aria-label="Source of the rows"
        value={form.source}
        onChange={(source) => set({ source: source as Source })}
        data={[{ value: 'rows', label: 'Paste' }, { value: 'file', label: 'Upload' }, { value: 'url', label: 'URL' }, ...(form.job && !form.missing ? [{ value: 'job', label: 'Input of a job' }] : [])]}
      />
      {form.source === 'job' && (
        <p>
          The {form.jobRows == null ? 'stored rows' : plural(form.jobRows, 'stored row')} of <Link href={`/jobs/${form.job}`}>{form.jobName}</Link> {form.jobRows === 1 ? 'runs' : 'run'} again{form.where && <>, if <code>{form.where}</code></>}.
        </p>
      )}
      {form.missing && !form.rows && !form.url && !form.fileID && (
        <p className="warning" role="note">The input of <Link href={`/jobs/${form.job}`}>{form.jobName}</Link> is not stored, because the job ended before it read its input. Choose the rows again; the other settings are those of the job.</p>
      )}
      {form.source === 'rows' && (
        <Textarea
          label="One row per line"
          description={fn ? `A JSON object with ${fn.inputs.map((i) => i.name + (i.required ? '' : ' (optional)')).join(', ')}, or a prompt that is rendered already.` : 'If all lines are JSON strings, a row may have several lines.'}
          autosize
          minRows={5}
          maxRows={20}
          placeholder={fn ? undefined : 'The room was clean and the staff were kind.\nMy order came three weeks late.'}
          value={form.rows}
          onChange={(e) => set({ rows: e.currentTarget.value })}
          error={fn && rowsOf(form.rows, true) === null && 'A line begins with { but is not a JSON object.'}
        />
      )}
      {form.source === 'file' && (
        <FileInput
          fileID={form.fileID}
          known={!!seen}
          uploaded={(fileID) => set({ fileID })}
          peeked={(p, name) => {
            const fileName = name.slice(0, nameSize)
            const edited = form.name && form.name !== form.fileName
            set({ seen: p, column: likelyPrompts(p), idColumn: '', fileRows: p.rows, fileName, ...(!edited && { name: fileName }) })
          }}
        />
      )}
      {form.source === 'url' && (
        <TextInput label="URL of a file" type="url" placeholder="https://…" value={form.url} onChange={(e) => set({ url: e.currentTarget.value })} />
      )}
      {(file || (form.source === 'job' && !!form.prompt)) && !fn && (
        <Textarea
          label="Prompt from several columns"
          description={`{{column}} is replaced by the value of the column.${columns.length > 0 ? ` Columns: ${columns.join(', ')}.` : ''} Empty: one column has the prompts.`}
          placeholder="Positive or negative? {{title}}: {{body}}"
          autosize
          minRows={1}
          maxRows={12}
          value={form.prompt}
          onChange={(e) => set({ prompt: e.currentTarget.value })}
        />
      )}
      {file && (
        <div className="fields">
          {fn ? (
            <p className="small">Its columns must have the names of the Function’s fields: {fn.inputs.map((i) => i.name).join(', ')}.</p>
          ) : form.prompt.trim() ? null : columns.length > 0 ? (
            <NativeSelect label="Prompt column" value={form.column} onChange={(e) => set({ column: e.currentTarget.value })} data={columns} />
          ) : (
            <TextInput label="Prompt column" description="Empty: the first one." value={form.column} onChange={(e) => set({ column: e.currentTarget.value })} />
          )}
          {columns.length > 0 ? (
            <NativeSelect
              label="ID column"
              value={form.idColumn}
              onChange={(e) => set({ idColumn: e.currentTarget.value })}
              data={[{ value: '', label: 'none' }, ...columns.filter((c) => c !== form.column)]}
            />
          ) : (
            <TextInput label="ID column" description="Empty: none." value={form.idColumn} onChange={(e) => set({ idColumn: e.currentTarget.value })} />
          )}
        </div>
      )}
      <div className="fields">
        <TextInput label="Rows to run" type="number" min={1} description="Empty: all. Resume runs the others later." value={form.limit} onChange={(e) => set({ limit: e.currentTarget.value })} />
        {Number(form.limit) > 0 && (
          <NativeSelect label="Which rows" value={form.sample} onChange={(e) => set({ sample: e.currentTarget.value })} data={[{ value: 'first', label: 'The first' }, { value: 'random', label: 'Random' }]} />
        )}
      </div>
      {!fn && (form.source === 'rows' ? form.chats : file && !form.prompt.trim()) && <Checkbox label="The rows are chats: lists of messages with role and content" checked={form.chats} onChange={(e) => set({ chats: e.currentTarget.checked })} />}
      {file && <Checkbox label="Repeat the columns of the file in the results" checked={form.keep} onChange={(e) => set({ keep: e.currentTarget.checked })} />}
      {form.source === 'file' && !fn && seen && <FirstPrompts seen={seen} column={form.column} prompt={form.prompt} />}
    </>
  )
}

// promptOf returns the prompt of a row: the value of one column, or the text with the values
// of its columns. A placeholder without a column stays.
function promptOf(row: string[], { columns }: Peek, column: string, prompt: string) {
  if (!prompt.trim()) return row[columns.indexOf(column)]
  return prompt.replace(/\{\{\s*(.*?)\s*\}\}/g, (placeholder, name: string) => row[columns.indexOf(name)] ?? placeholder)
}

// FirstPrompts shows the first rows to be sent.
function FirstPrompts({ seen, column, prompt }: { seen: Peek; column: string; prompt: string }) {
  if ((!prompt.trim() && !seen.columns.includes(column)) || seen.first.length === 0) return null
  return (
    <div className="small">
      The first of {seen.rows === undefined ? 'its rows' : `its ${plural(seen.rows, 'row')}`}:
      <ol className="firstrows" start={0}>
        {seen.first.map((row, i) => <li key={i}>{promptOf(row, seen, column, prompt)}</li>)}
      </ol>
    </div>
  )
}
