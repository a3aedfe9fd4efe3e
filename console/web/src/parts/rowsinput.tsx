import { Checkbox, NativeSelect, SegmentedControl, Textarea, TextInput } from '@mantine/core'
import { Link } from 'wouter'
import type { Fn } from '../api/types'
import { plural } from '../lib/format'
import { likelyPrompts, type Peek } from '../lib/peek'
import { rowsOf } from '../lib/rows'
import { FileInput } from './fileinput'
import { nameSize } from './job'
import { promptOf, unknownColumns, type Form, type Source } from './jobform'

// RowsInput chooses the rows of a new job.
export function RowsInput({ form, set, fn }: { form: Form; set: (change: Partial<Form>) => void; fn?: Fn }) {
  const { seen } = form
  const file = form.source === 'file' || form.source === 'url'
  const columns = seen?.columns ?? []
  const unknown = file ? unknownColumns(form.prompt, columns) : []
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
        <p className="warning" role="note"><Link href={`/jobs/${form.job}`}>{form.jobName}</Link> ended before it read its input. Choose the rows again.</p>
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
          name={form.fileName}
          known={!!seen}
          uploaded={(fileID) => set({ fileID })}
          peeked={(p, name) => {
            const fileName = name.slice(0, nameSize)
            const edited = form.name && form.name !== form.fileName
            const column = likelyPrompts(p)
            const idColumn = p.columns.find((c) => c.toLowerCase() === 'id' && c !== column) ?? ''
            set({ seen: p, column, idColumn, fileRows: p.rows, fileName, ...(!edited && { name: fileName }) })
          }}
        />
      )}
      {form.source === 'url' && (
        <TextInput label="URL of a file" type="url" placeholder="https://…" value={form.url} onChange={(e) => set({ url: e.currentTarget.value })} />
      )}
      {(file || (form.source === 'job' && !!form.prompt)) && !fn && (
        <Textarea
          label="Prompt from several columns"
          description={`The value of the column replaces {{column}}.${columns.length > 0 && unknown.length === 0 ? ` Columns: ${columns.join(', ')}.` : ''} ${file ? 'Without this prompt, one column has the prompts.' : ''}`}
          placeholder="Positive or negative? {{title}}: {{body}}"
          autosize
          minRows={2}
          maxRows={12}
          value={form.prompt}
          onChange={(e) => set({ prompt: e.currentTarget.value })}
          error={unknown.length > 0 && `The file has no column ${unknown.join(', ')}. Its columns are: ${columns.join(', ')}.`}
        />
      )}
      {file && (
        <div className="fields">
          {fn ? (
            <p className="small">Its columns must have the names of the Function’s fields: {fn.inputs.map((i) => i.name).join(', ')}.</p>
          ) : form.prompt.trim() ? null : columns.length > 0 ? (
            <NativeSelect label="Prompt column" value={form.column} onChange={(e) => set({ column: e.currentTarget.value })} data={columns} />
          ) : (
            <TextInput label="Prompt column" placeholder="first column" value={form.column} onChange={(e) => set({ column: e.currentTarget.value })} />
          )}
          {columns.length > 0 ? (
            <NativeSelect
              label="ID column"
              value={form.idColumn}
              onChange={(e) => set({ idColumn: e.currentTarget.value })}
              data={[{ value: '', label: 'none' }, ...columns.filter((c) => c !== form.column)]}
            />
          ) : (
            <TextInput label="ID column" placeholder="none" value={form.idColumn} onChange={(e) => set({ idColumn: e.currentTarget.value })} />
          )}
        </div>
      )}
      <div className="fields">
        <TextInput label="Rows to run" type="number" min={1} placeholder="all" description="To run the other rows later, use Resume." value={form.limit} onChange={(e) => set({ limit: e.currentTarget.value })} />
        {Number(form.limit) > 0 && (
          <NativeSelect label="Which rows" value={form.sample} onChange={(e) => set({ sample: e.currentTarget.value })} data={[{ value: 'first', label: 'The first' }, { value: 'random', label: 'Random' }]} />
        )}
      </div>
      {form.reuse && !form.limit && <Checkbox label={`Reuse the answers of ${form.reuse.from} to equal rows`} checked={!form.noReuse} onChange={(e) => set({ noReuse: !e.currentTarget.checked })} />}
      {!fn && (form.source === 'rows' ? form.chats : file && !form.prompt.trim()) && <Checkbox label="The rows are chats: lists of messages with role and content" checked={form.chats} onChange={(e) => set({ chats: e.currentTarget.checked })} />}
      {file && <Checkbox label="Repeat the columns of the file in the results" checked={form.keep} onChange={(e) => set({ keep: e.currentTarget.checked })} />}
      {form.source === 'file' && !fn && seen && <FirstPrompts seen={seen} column={form.column} prompt={form.prompt} />}
    </>
  )
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
