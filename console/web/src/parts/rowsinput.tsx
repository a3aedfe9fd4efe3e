import { useState } from 'react'
import { Checkbox, Input, NativeSelect, SegmentedControl, Textarea, TextInput } from '@mantine/core'
import { Link } from 'wouter'
import { useGet } from '../api/hooks'
import type { Fn, StoredFile } from '../api/types'
import { bytes, plural } from '../lib/format'
import { likelyPrompts, type Peek } from '../lib/peek'
import { FileInput } from './fileinput'
import { nameSize } from './job'
import { promptOf, unknownColumns, type Form, type Source } from './jobform'

// RowsInput chooses the rows of a new job. fault is the first error in pasted rows.
export function RowsInput({ form, set, fn, fault }: { form: Form; set: (change: Partial<Form>) => void; fn?: Fn; fault: string }) {
  const { seen } = form
  const file = form.source === 'file' || form.source === 'url'
  const columns = seen?.columns ?? []
  const several = form.source !== 'rows' && !!form.several
  const unknown = unknownColumns(form)
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
      {form.missing && !form.rows && !form.url && !form.fileID && !form.hiddenURL && (
        <p className="warning" role="note"><Link href={`/jobs/${form.job}`}>{form.jobName}</Link> ended before it read its input. Choose the rows again.</p>
      )}
      {form.source === 'rows' && (
        <Textarea
          label="One row per line"
          description={fn ? `A JSON object with ${fn.inputs.map((i) => i.name + (i.required ? '' : ' (optional)')).join(', ')}, or a prompt that is rendered already.` : 'If all lines are JSON strings, a row may have several lines.'}
          autosize
          minRows={5}
          maxRows={8}
          placeholder={fn ? undefined : 'The room was clean and the staff were kind.\nMy order came three weeks late.'}
          value={form.rows}
          onChange={(e) => set({ rows: e.currentTarget.value })}
          error={fault}
        />
      )}
      {form.source === 'file' && <File form={form} set={set} />}
      {form.source === 'url' && (
        <TextInput
          label="URL of a file"
          type="url"
          description={form.hiddenURL && `The URL of ${form.jobName} was ${form.hiddenURL}. The hidden parts may be secrets. Paste the whole URL.`}
          placeholder="https://…"
          value={form.url}
          onChange={(e) => set({ url: e.currentTarget.value })}
        />
      )}
      {file && !fn && (
        <Input.Wrapper label="The prompts come from" labelElement="div">
          <SegmentedControl
            fullWidth
            aria-label="The prompts come from"
            value={several ? 'several' : 'one'}
            onChange={(columns) => set({ several: columns === 'several' })}
            data={[{ value: 'one', label: 'One column' }, { value: 'several', label: 'Several columns' }]}
          />
        </Input.Wrapper>
      )}
      {several && !fn && (
        <Textarea
          label="Prompt"
          description={`The value of the column replaces {{column}}.${columns.length > 0 && unknown.length === 0 ? ` Columns: ${columns.join(', ')}.` : ''}`}
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
          ) : several ? null : columns.length > 0 ? (
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
        <TextInput label="Rows to run" type="number" min={1} placeholder="all" description="Another job can run the other rows later." value={form.limit} onChange={(e) => set({ limit: e.currentTarget.value })} />
        {Number(form.limit) > 0 && (
          <NativeSelect label="Which rows" value={form.sample} onChange={(e) => set({ sample: e.currentTarget.value })} data={[{ value: 'first', label: 'The first' }, { value: 'random', label: 'Random' }]} />
        )}
      </div>
      {form.reuse && !form.limit && <Checkbox label={`Reuse the answers of ${form.reuse.from} to equal rows`} checked={!form.noReuse} onChange={(e) => set({ noReuse: !e.currentTarget.checked })} />}
      {!fn && (form.source === 'rows' ? form.chats : file && !several) && <Checkbox label="The rows are chats: lists of messages with role and content" checked={form.chats} onChange={(e) => set({ chats: e.currentTarget.checked })} />}
      {file && <Checkbox label="Copy the other columns of the file into the results" checked={form.keep} onChange={(e) => set({ keep: e.currentTarget.checked })} />}
      {form.source === 'file' && !fn && seen && <FirstPrompts form={form} seen={seen} />}
    </>
  )
}

// File uploads a file, or chooses an uploaded file.
function File({ form, set }: { form: Form; set: (change: Partial<Form>) => void }) {
  const [chosen, setChosen] = useState(0) // a choice ends the upload
  const files = useGet<{ data: StoredFile[] }>('/v1/files?purpose=user_data&limit=50', { fresh: 30_000 }).data?.data ?? []
  return (
    <>
      <FileInput
        key={chosen}
        fileID={form.fileID}
        name={form.fileName}
        known={!!form.seen}
        uploaded={(fileID) => set({ fileID })}
        peeked={(p, name) => {
          const fileName = name.slice(0, nameSize)
          const edited = form.name && form.name !== form.fileName
          const column = !form.seen && p.columns.includes(form.column) ? form.column : likelyPrompts(p)
          const idColumn = p.columns.find((c) => c.toLowerCase() === 'id' && c !== column) ?? ''
          set({ seen: p, column, idColumn: p.columns.includes(form.idColumn) && !form.seen ? form.idColumn : idColumn, fileRows: p.rows, fileName, ...(!edited && { name: fileName }) })
        }}
      />
      {files.length > 0 && (
        <div className="fields">
          <NativeSelect
            label="Or choose an uploaded file"
            value={files.some((f) => f.id === form.fileID) ? form.fileID : ''}
            onChange={(e) => {
              setChosen(chosen + 1)
              set({ fileID: e.currentTarget.value, seen: undefined })
            }}
            data={[{ value: '', label: 'none' }, ...files.map((f) => ({ value: f.id, label: `${f.filename}, ${bytes(f.bytes)}` }))]}
          />
        </div>
      )}
    </>
  )
}

// FirstPrompts shows the first rows to be sent.
function FirstPrompts({ form, seen }: { form: Form; seen: Peek }) {
  if ((form.several ? !form.prompt.trim() : !seen.columns.includes(form.column)) || seen.first.length === 0) return null
  return (
    <div className="small">
      The first of {seen.rows === undefined ? 'its rows' : `its ${plural(seen.rows, 'row')}`}:
      <ol className="firstrows" start={0}>
        {seen.first.map((row, i) => <li key={i}>{promptOf(row, seen, form)}</li>)}
      </ol>
    </div>
  )
}
