import type { Fn } from '../api/types'

// Definition has the parts of a Function that a revision fixes.
export type Definition = Pick<Fn, 'description' | 'model' | 'prompt'> & {
  inputs: Pick<Fn['inputs'][number], 'name' | 'required'>[]
  system_prompt: unknown
  json_schema: unknown
  sampling_params: unknown
}

const json = (v: unknown) => JSON.stringify(v, null, 2)

// written returns a definition as text, so that two can be compared by line.
export const written = (f: Definition) =>
  [
    `model: ${f.model}`,
    `description: ${f.description}`,
    `fields: ${f.inputs.map((i) => i.name + (i.required ? '' : '?')).join(', ')}`,
    'prompt:',
    f.prompt,
    ...(f.system_prompt ? ['system prompt:', f.system_prompt] : []),
    ...(f.json_schema ? [`schema: ${json(f.json_schema)}`] : []),
    ...(f.sampling_params && Object.keys(f.sampling_params).length > 0 ? [`parameters: ${json(f.sampling_params)}`] : []),
  ].join('\n')
