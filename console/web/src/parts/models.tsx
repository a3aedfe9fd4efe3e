import { memo } from 'react'
import { Button, Select } from '@mantine/core'
import type { Fn, Model } from '../api/types'
import { number, usd } from '../lib/format'

const maxModels = 4 // of a set

// detail describes a model by its prices and context.
const detail = (m?: Model) =>
  m && [m.input_price != null && `${usd(m.input_price)} in, ${usd(m.output_price)} out per million tokens`, m.context_length && `context ${number(m.context_length)}`].filter(Boolean).join(' · ')

// isServed reports whether a server accepts rows for a model now.
export const isServed = (m: Model) => !m.problem && m.served_by.length > 0

type Choice = { models: Model[]; functions: Fn[] }

type SelectProps = Choice & { label: string; value: string; choose: (model: string) => void; without: string[] }

// hasSame reports whether two renderings look equal. choose does not count: it changes only together
// with without.
const hasSame = (a: SelectProps, b: SelectProps) => a.value === b.value && a.models === b.models && a.functions === b.functions && String(a.without) === String(b.without)

// ModelSelect chooses a model or a Function. Keys in other fields do not draw its long list again.
export const ModelSelect = memo(function ModelSelect({ label, value, choose, models, functions, without }: SelectProps) {
  const named = (names: string[]) => names.filter((name) => !without.includes(name))
  const standalone = models.filter((m) => functions.every((f) => f.name !== m.id)) // a Select takes no name twice
  return (
    <Select
      label={label}
      searchable
      onKeyDown={(e) => e.key === 'Enter' && e.preventDefault()} // it chooses a model, and never submits the form
      maxDropdownHeight={320}
      allowDeselect={false}
      nothingFoundMessage="No model and no Function matches."
      value={value || null}
      onChange={(model) => model && choose(model)}
      renderOption={({ option }) => (
        <span>
          {option.label}
          <span className="detail">{detail(models.find((m) => m.id === option.value))}</span>
        </span>
      )}
      data={[
        { group: 'Served models', items: named(standalone.filter(isServed).map((m) => m.id)) },
        { group: 'Functions', items: named(functions.map((f) => f.name)) },
        { group: 'Models that no engine serves now', items: named(standalone.filter((m) => !isServed(m)).map((m) => m.id)) },
      ].filter((g) => g.items.length > 0)}
    />
  )
}, hasSame)

// OtherModels chooses further models that run the same rows, to compare their answers.
export function OtherModels({ first, value, set, ...choice }: Choice & { first: string; value: string[]; set: (models: string[]) => void }) {
  const all = [first, ...value]
  return (
    <>
      {value.map((model, i) => (
        <div className="actions" key={i} style={{ alignItems: 'end' }}>
          <ModelSelect
            {...choice}
            label={`Model ${i + 2}`}
            value={model}
            choose={(m) => set(value.map((old, at) => (at === i ? m : old)))}
            without={all.filter((m) => m !== model)}
          />
          <Button variant="subtle" onClick={() => set(value.filter((_, at) => at !== i))} aria-label={`Remove model ${i + 2}`}>Remove</Button>
        </div>
      ))}
      {all.length < maxModels && first && (
        <div className="actions">
          <Button variant="default" size="xs" onClick={() => set([...value, ''])} disabled={all.includes('')}>Add a model to compare</Button>
          <span className="small">{value.length > 0 ? 'Each model gets the same rows, and a job of its own. You can then compare the jobs.' : 'Runs the same rows with up to 4 models, and compares the answers.'}</span>
        </div>
      )}
    </>
  )
}
