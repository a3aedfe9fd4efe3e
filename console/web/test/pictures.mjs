// Makes the pictures of docs/console.md: three pages of a new simulated node while a
// job runs.
//
//   node test/pictures.mjs BASE KEY OUTDIR
import { api, at, browser, ended, failures, logIn, picture, settle, watch } from './drive.mjs'

const model = 'llama-3.1-8b'
const complaint = (i) => `Complaint ${i}: the parcel came ${2 + (i % 8)} days late, and nobody answered the telephone.`
const submit = async (name, rows, rest = {}) =>
  (await api('POST', '/v1/batch-inference', { model, name, job_priority: 1, inputs: Array.from({ length: rows }, (_, i) => complaint(i)), ...rest })).results

await ended(await submit('first thousand', 1000))
await ended(await submit('too short', 20, { sampling_params: { max_tokens: 2 }, output_schema: { type: 'object', properties: { topic: { type: 'string' } } } }))
const id = await submit('complaints', 250_000, { description: 'a sentence about each complaint of 2026', system_prompt: 'Say in one sentence what the customer wants.' })

const page = await (await browser.newContext({ viewport: { width: 1280, height: 860 }, reducedMotion: 'reduce' })).newPage()
watch(page, () => page.url())
await page.goto(at(''))
await logIn(page)
while ((await api('GET', `/v1/jobs/${id}`)).job.rows_done < 100_000) await page.waitForTimeout(200)
for (const [name, path] of [['overview', ''], ['job', `jobs/${id}`], ['rows', `jobs/${id}/rows`]]) {
  await page.goto(at(path))
  await settle(page)
  await page.waitForTimeout(1500) // a rate needs two readings
  await picture(page, name)
}
await browser.close()
process.exit(failures.length ? 1 : 0)
