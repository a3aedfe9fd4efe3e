import { ApiError } from '../api/client'
import type { Fn, Job, Model, Quota } from '../api/types'
import { compact, plural } from '../lib/format'
import type { Peek } from '../lib/peek'
import { rowsOf } from '../lib/rows'
import { nameSize, over, titleOf } from './job'

export type Source = 'rows' | 'file' | 'url' | 'job'

// A Form holds the fields of New job.
export type Form = {
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
  hiddenURL?: string // the URL of its input, without the parts that may be secrets
  column: string
  several?: boolean // prompt makes the prompts from columns of a file; else column has them
  prompt: string
  idColumn: string
  chats: boolean // rows are lists of messages
  keep: boolean // results repeat the columns of the file
  limit: string // number of rows to run; empty: all
  sample: string // which rows, with a limit
  reuse?: { from: string; by: 'text' | 'id' } // finished jobs whose answers to equal rows the job takes
  noReuse?: boolean // run all rows, in spite of reuse
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
  deadline: string // local time by which the job must end; empty for none
  onlyIfMet?: boolean // no job that misses the deadline
  seen?: Peek // the file
}

export const blank: Form = {
  source: 'rows', rows: '', url: '', fileID: '', job: '', jobName: '', column: '', prompt: '', idColumn: '', chats: false, keep: false, limit: '', sample: 'first', model: '', system: '', schema: '', params: '',
  output: '', name: '', fileName: '', description: '', priority: '', equal: '', deadline: '',
}

// nextName returns the name of another run of a job: "X (2)" after "X".
export function nextName(name: string): string {
  const [, before, n] = name.match(/^(.*) \((\d{1,6})\)$/s) ?? [, name, 1]
  const end = ` (${Number(n) + 1})`
  return [...before!].slice(0, nameSize - end.length).join('').trimEnd() + end
}

// isUnread reports whether a job ended before it read its input. Such a job has no stored input.
const isUnread = (j: Job) => over(j.status) && !j.datetime_started

// sourceOf returns the job whose stored input another run of j reads, if it is not j itself. A job that
// reads answers has them from another job; its own rows have other answers.
const sourceOf = (j: Job) => j.answers_of ?? (isUnread(j) ? j.input_of : null)

// inputOf returns the fields of the form for the input of a job that ended before it read the input.
function inputOf({ input = '', input_file }: Job): Partial<Form> {
  if (input_file) return { source: 'file', missing: true, fileID: input_file, fileName: input }
  if (!input) return { source: 'rows', missing: true }
  return { source: 'url', missing: true, ...(input.includes('…') ? { hiddenURL: input } : { url: input }) }
}

// ownParams returns the sampling parameters of a job that are not the defaults of its model. A Function has
// its own defaults.
export const ownParams = (j: Job, models: Model[] = []) => {
  const defaults = j.function ? {} : (models.find((m) => m.id === j.model)?.sampling_params ?? {})
  return Object.fromEntries(Object.entries(j.sampling_params).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(defaults[name as never])))
}

// settingsOf returns the fields of the form that another job has. The new job reads its stored input.
export const settingsOf = (j: Job, models?: Model[]): Partial<Form> => ({
  ...(isUnread(j) && !sourceOf(j) ? inputOf(j) : { source: 'job' }),
  ...(sourceOf(j)
    ? { job: sourceOf(j)!, jobName: sourceOf(j)!, jobRows: undefined }
    : { job: j.job_id, jobName: titleOf(j), jobRows: (j.input_rows ?? j.num_rows) ?? undefined }),
  where: j.where,
  limit: j.limit && (j.input_rows ?? Infinity) > j.limit ? String(j.limit) : '',
  sample: j.sample ?? 'first',
  reuse: j.reuse && { from: j.reuse.from, by: j.reuse.by },
  noCut: j.truncate_rows === false,
  model: j.function?.name ?? j.model,
  column: j.column_name ?? '',
  idColumn: j.id_column_name ?? '',
  several: !!j.prompt,
  prompt: j.prompt ?? '',
  system: j.system_prompt ?? '',
  schema: j.json_schema ? JSON.stringify(j.json_schema, null, 2) : '',
  params: JSON.stringify(ownParams(j, models), null, 2).replace(/^{}$/, ''),
  keep: !!j.keep_columns,
  name: j.name ? nextName(j.name) : '',
  description: j.description ?? '',
})

// labels are the names of fields in the list of changes.
const labels: Partial<Record<keyof Form, string>> = {
  source: 'Rows', rows: 'Rows', url: 'Rows', fileID: 'Rows', column: 'Prompt column', prompt: 'Prompt', idColumn: 'ID column', limit: 'Rows to run', sample: 'Which rows', noReuse: 'Reuse of answers',
  keep: 'Other columns', chats: 'Chats', system: 'System prompt', model: 'Model', name: 'Name', schema: 'JSON Schema', others: 'Models to compare', priority: 'Priority', equal: 'Duplicate rows', output: 'Output column',
  deadline: 'Deadline', description: 'Description', noCut: 'Cut rows', params: 'Sampling parameters',
}

// changedFields names the fields in which two forms differ.
export const changedFields = (a: Form, b: Form) => [
  ...new Set((Object.keys(labels) as (keyof Form)[]).filter((k) => String(a[k] || '') !== String(b[k] || '')).map((k) => labels[k]!)),
]

// sample is a form with short rows, for people who have no rows at hand.
export const sample: Partial<Form> = {
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

// A JSON field is empty, a value, or text that is not valid yet.
export function json(s: string): { value?: unknown; error?: string } {
  if (!s.trim()) return {}
  try {
    return { value: JSON.parse(s) }
  } catch (e) {
    return { error: `This text is not JSON. ${(e as Error).message}` }
  }
}

// schemaError returns why a text cannot be a JSON Schema. The service checks the schema itself.
export function schemaError(s: string): string | undefined {
  const { value, error } = json(s)
  if (error || value === undefined || typeof value === 'boolean') return error
  return typeof value === 'object' && value && !Array.isArray(value) ? undefined : 'A JSON Schema is a JSON object.'
}

// messagesAt returns the messages of a refusal about a field of the form.
export const messagesAt = (e: Error | undefined, field: string) =>
  e instanceof ApiError ? e.fields.filter((f) => new RegExp(`^(variants\\[0\\]\\.)?${field}\\b`).test(f.field)).map((f) => f.message.replace(/^(?=[a-z])/, 'It ')).join(' ') : ''

// marksField reports whether the form shows a refusal at a field.
export const marksField = (e: Error | undefined) => ['json_schema', 'sampling_params', 'deadline'].some((field) => !!messagesAt(e, field))

// deadlineOf returns the fields of a submission with a deadline.
export const deadlineOf = (f: Form) =>
  f.deadline ? { deadline: new Date(f.deadline).toISOString(), ...(f.onlyIfMet ? { admit: 'only_if_met' } : {}) } : {}

const placeholder = /\{\{\s*(.*?)\s*\}\}/g

// promptOf returns the prompt of a row: the value of one column, or the text with the values
// of its columns. A placeholder without a column stays.
export function promptOf(row: string[], { columns }: Peek, { column, several, prompt }: Form) {
  if (!several) return row[columns.indexOf(column)]
  return prompt.replace(placeholder, (whole, name: string) => row[columns.indexOf(name)] ?? whole)
}

// unknownColumns returns the placeholders of the prompt that are no columns of the uploaded file.
export function unknownColumns({ source, several, prompt, seen }: Form) {
  const columns = (source === 'file' && several && seen?.columns) || []
  return columns.length === 0 ? [] : [...new Set([...prompt.matchAll(placeholder)].map((m) => m[1]!))].filter((name) => !columns.includes(name))
}

// rowsError returns the first fault of rows for a Function with these fields.
export function rowsError(rows: string, fields: Fn['inputs']): string {
  for (const [i, line] of rows.split('\n').entries()) {
    if (!line.trimStart().startsWith('{')) continue
    try {
      const row = JSON.parse(line)
      const absent = fields.find((f) => f.required && !(f.name in row))
      if (absent) return `Line ${i + 1} has no field "${absent.name}".`
    } catch {
      return `Line ${i + 1} begins with { but is not a JSON object.`
    }
  }
  return ''
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

export function submission(f: Form, fn: boolean, priority: string) {
  const file = f.source === 'file' || f.source === 'url'
  const prompt = f.source !== 'rows' && f.several && !fn && !!f.prompt.trim()
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
    ...(f.reuse && !f.noReuse && !f.limit ? { reuse: f.reuse } : {}),
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
export const withModels = (body: ReturnType<typeof submission>, others: string[]) => {
  if (others.length === 0) return body
  const { output_name: _, reuse: __, ...shared } = body
  return { ...shared, variants: [body.model, ...others].map((model) => ({ model, output_name: model, ...([...model].length <= nameSize ? { name: model } : {}) })) }
}

// countRows returns the number of rows that the job will run, if it is known.
export function countRows(f: Form): number | undefined {
  const rows = f.source === 'rows' ? (rowsOf(f.rows, false)?.length ?? 0) : f.source === 'file' ? f.fileRows : f.source === 'job' ? f.jobRows : undefined
  const limit = Number(f.limit)
  return limit > 0 ? Math.min(limit, rows ?? limit) : rows
}

// sentRows returns the number of rows on the button that submits the form; 0 if the number is not known.
export const sentRows = (f: Form) => (f.source === 'url' || (f.source === 'file' && f.fileRows === undefined) ? 0 : (countRows(f) ?? 0))

// prioritySized returns 1 for a job that has, or may have, more rows than priority 0 takes.
export function prioritySized(f: Form, quotas: Quota[]): '0' | '1' {
  const q = quotas.find((q) => q.priority === 0)
  const most = q ? q.row_quota || Infinity : 0
  return (countRows(f) ?? Infinity) <= most ? '0' : '1'
}

// beyond describes the quotas that a job would exceed. Tokens are estimated at four bytes each.
export function beyond(f: Form, priority: string, quotas: Quota[]): string[] {
  const q = quotas.find((q) => String(q.priority) === priority)
  const rows = countRows(f)
  if (!q || rows === undefined) return []
  const tokens = f.source === 'rows' ? new Blob([f.rows]).size / 4 + (rows * f.system.length) / 4 : 0
  return [
    ...(q.row_quota && rows > q.row_quota ? [`${plural(rows, 'row')} ${rows === 1 ? 'is' : 'are'} more than the ${plural(q.row_quota, 'row')} of a job`] : []),
    ...(q.token_quota && tokens > q.token_quota ? [`about ${compact(tokens)} tokens are more than the ${compact(q.token_quota)} tokens of a job`] : []),
  ]
}
