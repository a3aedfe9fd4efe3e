import { useState } from 'react'
import { Button, Textarea } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import { Link } from 'wouter'
import { send } from '../api/client'
import type { Fn, Run } from '../api/types'
import { number, text, usd } from '../lib/format'
import { Code } from './copy'
import { Problem } from './load'
import { Card } from './page'
import { SimulatedAnswer } from './simulated'

type Field = Pick<Fn['inputs'][number], 'name' | 'required' | 'description'>

// RunOne runs a Function for one input: the published revision, or the one in more.
export function RunOne({ title, name, fields, more, children }: { title: string; name: string; fields: Field[]; more?: () => object; children?: string }) {
  const [input, setInput] = useState<Record<string, string>>({})
  const run = useMutation({
    mutationFn: async () => {
      const given = fields.map((f) => f.name).filter((f) => input[f] !== undefined)
      return send<Run>('POST', `/v1/functions/${encodeURIComponent(name)}/run`, { input: Object.fromEntries(given.map((f) => [f, input[f]])), ...more?.() })
    },
  })
  return (
    <Card title={title}>
      {children && <p className="small">{children}</p>}
      <form
        className="stack"
        onSubmit={(e) => {
          e.preventDefault()
          run.mutate()
        }}
      >
        {fields.map((f) => (
          <Textarea
            key={f.name}
            label={f.name}
            description={f.description || undefined}
            required={f.required}
            autosize
            maxRows={10}
            value={input[f.name] ?? ''}
            onChange={(e) => setInput({ ...input, [f.name]: e.currentTarget.value })}
          />
        ))}
        <div className="actions">
          <Button type="submit" variant="default" loading={run.isPending}>
            Run
          </Button>
        </div>
      </form>
      {run.error && <Problem error={run.error} />}
      {run.data && (
        <div className="stack" role="status">
          <SimulatedAnswer output={run.data.output} />
          <Code label="Output" text={text(run.data.output)} />
          <p className="small">
            {number(run.data.usage.input_tokens)} tokens in, {number(run.data.usage.output_tokens)} out,{' '}
            {run.data.cost_usd == null ? 'the model has no price' : usd(run.data.cost_usd)}; <Link href={`/jobs/${run.data.job_id}`}>open its job</Link>
          </p>
        </div>
      )}
    </Card>
  )
}
