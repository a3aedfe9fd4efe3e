// The data that the pages show.
import { api, base, ended, key } from './drive.mjs'

export const hostile = '<img src=x onerror="window.hit = 1"><script>window.hit = 1</' + 'script>'

const newKey = (name, role, account) => api('POST', '/v1/keys', { name, role, account })

// Jobs: one with failed rows, two on one input that have ended, one of a team's key, an estimate, and
// one that failed before its rows were counted. A Function with two revisions, files, a
// batch, webhooks, and keys of a reader and of an account without data.
export async function prepare() {
  const model = (await api('GET', '/v1/models')).data.find((m) => !m.problem && m.kind === 'generation').id
  const submit = async (body) => (await api('POST', '/v1/batch-inference', { model, ...body })).results
  const rows = [hostile, ...Array.from({ length: 300 }, (_, i) => `Describe town ${i} in one line.`)]
  const webhooks = []
  for (const description of ['of the browser test', 'that has nothing to tell']) {
    const events = description.startsWith('of') ? undefined : ['job.cancelled']
    webhooks.push((await api('POST', '/v1/webhooks', { url: 'https://receiver.example/hook', description, events })).id)
  }
  const job = await submit({ inputs: rows, name: 'towns', description: 'one line about each', system_prompt: 'Be brief.' })
  const again = await submit({ inputs: rows, name: 'places', system_prompt: 'Be long.' })
  await submit({ inputs: rows, name: 'estimate of towns', cost_estimate: true })
  const fn = { name: 'grade', description: 'Grades an essay', model, prompt: 'Grade this: {{essay}}', inputs: [{ name: 'essay' }] }
  await api('POST', '/v1/functions', fn)
  await api('POST', '/v1/functions', { ...fn, prompt: 'Grade this from 1 to 6:\n{{essay}}', json_schema: { type: 'object', properties: { grade: { type: 'integer' } } } })
  const line = JSON.stringify({ custom_id: 'a', method: 'POST', url: '/v1/chat/completions', body: { model, messages: [{ role: 'user', content: 'Hello' }] } })
  const file = await upload('greetings.jsonl', 'batch', line)
  await api('POST', '/v1/batches', { input_file_id: file, endpoint: '/v1/chat/completions', completion_window: '24h' })
  const many = await upload('many.csv', 'user_data', 'text\n' + 'row\n'.repeat(1001))
  const uncounted = await submit({ inputs: `file:${many}`, name: 'more than may be', job_priority: 0 })
  const failed = await submit({
    inputs: ['a', 'b', 'c'], name: 'cut short', sampling_params: { max_tokens: 3 },
    json_schema: { type: 'object', properties: { why: { type: 'string', minLength: 400 } }, required: ['why'] },
  })
  const team = await newKey('of the team', 'user')
  const ofTeam = (await api('POST', '/v1/batch-inference', { model, inputs: ['Hello', 'Good night'], name: 'greetings' }, team.key)).results
  const reader = await newKey('reader of the browser test', 'reader')
  const newcomer = await newKey('first key', 'admin', 'newcomer')
  await Promise.all([ended(job), ended(again), ended(failed), ended(uncounted), ended(ofTeam)])
  return { job, again, failed, uncounted, model, team, ofTeam, reader, newcomer, webhook: webhooks[0], quiet: webhooks[1] }
}

export async function upload(name, purpose, text) {
  const form = new FormData()
  form.set('purpose', purpose)
  form.set('file', new Blob([text]), name)
  const answer = await fetch(new URL('/v1/files', base), { method: 'POST', headers: { Authorization: `Key ${key}` }, body: form })
  if (!answer.ok) throw new Error(`upload ${name}: ${answer.status} ${await answer.text()}`)
  return (await answer.json()).id
}
