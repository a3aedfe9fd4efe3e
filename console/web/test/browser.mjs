// Drives the console of a running node in a browser.
//
//   node test/browser.mjs BASE KEY OUTDIR
//
// BASE is the node's address, KEY an administrator's key of the account default,
// OUTDIR where a picture of each page goes. The node should be simulated. Without
// a browser it says so and succeeds, unless CONSOLE_BROWSER=required.
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { chromium } from 'playwright-core'

const [base, key, out] = process.argv.slice(2)
const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium'
if (!base || !key || !out) {
  console.error('usage: browser.mjs BASE KEY OUTDIR')
  process.exit(2)
}
if (!existsSync(executablePath)) {
  console.error(`SKIPPED: there is no browser at ${executablePath}`)
  process.exit(process.env.CONSOLE_BROWSER === 'required' ? 1 : 0)
}
mkdirSync(out, { recursive: true })

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const failures = []
const fail = (what) => {
  failures.push(what)
  console.error(`FAIL ${what}`)
}

const api = async (method, path, body, as = key) => {
  const answer = await fetch(new URL(path, base), {
    method,
    headers: { Authorization: `Key ${as}`, 'Content-Type': 'application/json' },
    body: body && JSON.stringify(body),
  })
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`)
  return answer.json()
}

const has = async (path) => (await fetch(new URL(path, base), { headers: { Authorization: `Key ${key}` } })).ok

const ended = async (id) => {
  for (;;) {
    const { job } = await api('GET', `/v1/jobs/${id}`)
    if (['succeeded', 'failed', 'cancelled'].includes(job.status)) return job
    await new Promise((r) => setTimeout(r, 200))
  }
}

const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] })

// watch fails the test for what a page says to its console and does not get.
// Refusals of addresses that match expected are expected.
function watch(page, name, expected) {
  page.on('console', (m) => m.type() === 'error' && !expected.test(m.location().url) && fail(`${name()}: console: ${m.text()} ${m.location().url}`))
  page.on('pageerror', (e) => fail(`${name()}: ${e.message}`))
  page.on('response', (r) => r.status() >= 400 && !expected.test(r.url()) && fail(`${name()}: ${r.status()} ${r.url()}`))
  page.on('requestfailed', (r) => {
    if (r.failure()?.errorText !== 'net::ERR_ABORTED') fail(`${name()}: ${r.failure()?.errorText} ${r.url()}`)
  })
}

async function logIn(page, as = key) {
  await page.getByLabel('API key', { exact: true }).fill(as)
  await page.getByRole('button', { name: 'Log in' }).click()
  await page.getByRole('navigation', { name: 'Pages' }).or(page.getByRole('button', { name: 'Navigation' })).first().waitFor()
}

async function settle(page) {
  await page.locator('h1').first().waitFor()
  await page.waitForFunction(() => !document.querySelector('[role=status][aria-label=Loading]'), null, { timeout: 15_000 })
  await page.waitForTimeout(250)
}

async function check(page, name) {
  await page.evaluate(axe)
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }))
  for (const v of violations.filter((v) => ['serious', 'critical'].includes(v.impact)))
    fail(`${name}: ${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.target} ${n.any[0]?.message ?? ''}`).join(' | ')} (${v.nodes.length})`)
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
  if (wide > 0) fail(`${name}: ${wide} px wider than the window`)
}

// What the pages have to show: a job with failed rows, one that is over, an
// estimate, a Function with two revisions, a hostile row.
async function prepare() {
  const hostile = '<img src=x onerror="window.hit = 1"><script>window.hit = 1</' + 'script>'
  const model = (await api('GET', '/v1/models')).data.find((m) => !m.problem && m.kind === 'generation').id
  const rows = [hostile, ...Array.from({ length: 300 }, (_, i) => `Describe town ${i} in one line.`)]
  const job = (await api('POST', '/v1/batch-inference', { inputs: rows, model, name: 'towns', description: 'one line about each', system_prompt: 'Be brief.' })).results
  await api('POST', '/v1/batch-inference', { inputs: rows, model, name: 'estimate of towns', cost_estimate: true })
  const fn = { name: 'grade', description: 'Grades an essay', model, prompt: 'Grade this: {{essay}}', inputs: [{ name: 'essay' }] }
  const { functions } = await api('GET', '/v1/functions')
  if (!functions.some((f) => f.name === 'grade')) {
    await api('POST', '/v1/functions', fn)
    await api('POST', '/v1/functions', { ...fn, prompt: 'Grade this from 1 to 6:\n{{essay}}', json_schema: { type: 'object', properties: { grade: { type: 'integer' } } } })
  }
  const form = new FormData()
  form.set('purpose', 'batch')
  const line = JSON.stringify({ custom_id: 'a', method: 'POST', url: '/v1/chat/completions', body: { model, messages: [{ role: 'user', content: 'Hello' }] } })
  form.set('file', new Blob([line]), 'greetings.jsonl')
  const file = await (await fetch(new URL('/v1/files', base), { method: 'POST', headers: { Authorization: `Key ${key}` }, body: form })).json()
  await api('POST', '/v1/batches', { input_file_id: file.id, endpoint: '/v1/chat/completions', completion_window: '24h' })
  if (await has('/v1/webhooks')) {
    const { webhooks } = await api('GET', '/v1/webhooks')
    if (!webhooks.length) await api('POST', '/v1/webhooks', { url: 'https://receiver.example/hook', description: 'of the browser test' })
  }
  const reader = await api('POST', '/v1/keys', { name: 'reader of the browser test', role: 'reader' })
  const failed = (await api('POST', '/v1/batch-inference', {
    inputs: ['a', 'b', 'c'], model, name: 'cut short', sampling_params: { max_tokens: 3 },
    json_schema: { type: 'object', properties: { why: { type: 'string', minLength: 400 } }, required: ['why'] },
  })).results
  await Promise.all([ended(job), ended(failed)])
  return { job, failed, model, reader }
}

const { job, failed, model, reader } = await prepare()
const webhooks = (await has('/v1/webhooks')) && (await api('GET', '/v1/webhooks')).webhooks
const pages = [
  ['overview', ''],
  ['jobs', 'jobs'],
  ['jobs-filtered', 'jobs?status=succeeded&q=towns'],
  ['jobs-none', 'jobs?q=nothing-is-called-so'],
  ['job', `jobs/${job}`],
  ['rows', `jobs/${job}/rows`],
  ['job-failed', `jobs/${failed}`],
  ['rows-failed', `jobs/${failed}/rows?failed=1`],
  ['new-job', 'jobs/new'],
  ['functions', 'functions'],
  ['function', 'functions/grade'],
  ['function-edit', 'functions/grade/edit'],
  ['files', 'files'],
  ['batches', 'batches'],
  ['engines', 'engines'],
  ['nodes', 'nodes'],
  ['actors', 'actors'],
  ['usage', 'usage'],
  ['quotas', 'quotas'],
  ['keys', 'keys'],
  ...(webhooks ? [['webhooks', 'webhooks'], ['webhook', `webhooks/${webhooks[0].id}`]] : []),
  ['settings', 'settings'],
  ['audit', 'audit'],
  ['about', 'about'],
  ['nowhere', 'no/such/page'],
]

// Nobody is logged in at first, and older nodes have no webhooks.
const usual = webhooks ? /\/v1\/me$/ : /\/v1\/(me|webhooks)$/

const at = (path) => new URL(`console/${path}`, base).href

for (const colorScheme of ['light', 'dark'])
  for (const width of [1280, 320]) {
    const context = await browser.newContext({ colorScheme, viewport: { width, height: width === 320 ? 640 : 860 }, reducedMotion: 'reduce' })
    const page = await context.newPage()
    let name = 'login'
    watch(page, () => `${name} ${colorScheme} ${width}`, usual)
    const picture = () => page.screenshot({ path: join(out, `${name}-${colorScheme}-${width}.png`) })
    await page.goto(at('jobs?q=towns'))
    await page.getByLabel('API key', { exact: true }).waitFor()
    await check(page, `login ${colorScheme} ${width}`)
    await picture()
    await logIn(page)
    if (!page.url().endsWith('/console/jobs?q=towns')) fail(`after the login one is at ${page.url()}`)
    for (const [called, path] of pages) {
      name = called
      try {
        await page.goto(at(path))
        await settle(page)
        await check(page, `${name} ${colorScheme} ${width}`)
        const problem = await page.locator('.problem[role=alert]').first().textContent({ timeout: 1 }).catch(() => null)
        if (problem) fail(`${name}: ${problem}`)
      } catch (e) {
        fail(`${name} ${colorScheme} ${width}: ${e.message}`)
      }
      await picture()
    }
    await context.close()
    console.log(`looked at ${pages.length + 1} pages, ${colorScheme}, ${width} px`)
  }

async function step(name, f, expected = usual) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 } })
  const page = await context.newPage()
  page.setDefaultTimeout(20_000)
  const before = failures.length
  watch(page, () => name, expected)
  try {
    await f(page)
  } catch (e) {
    fail(`${name}: ${e.message}`)
    await page.screenshot({ path: join(out, 'failed.png') })
  }
  await context.close()
  if (failures.length === before) console.log(`ok ${name}`)
}

await step('a job is submitted and followed to its end without a reload', async (page) => {
  await page.goto(at('jobs/new'))
  await logIn(page)
  await page.getByLabel('One row a line').fill(Array.from({ length: 800 }, (_, i) => `Count to ${i}.`).join('\n'))
  await page.getByLabel('Model or Function').selectOption(model)
  await page.getByLabel('Name', { exact: true }).fill('followed')
  await page.getByRole('button', { name: 'Submit 800 rows' }).click()
  await page.getByRole('heading', { name: 'followed' }).waitFor()
  let loads = 0
  page.on('load', () => loads++)
  await page.locator('.now .big', { hasText: /^100 %$/ }).waitFor({ timeout: 60_000 })
  await page.locator('.now .status', { hasText: 'succeeded' }).waitFor()
  if (loads) throw new Error('the page was loaded again')
  await page.getByRole('link', { name: 'Parquet' }).waitFor()
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name: 'JSON' }).click()])
  if (JSON.parse(readFileSync(await download.path(), 'utf8')).outputs.length !== 800) throw new Error('the download lacks rows')
})

await step('a hostile row is text', async (page) => {
  await page.goto(at(`jobs/${job}/rows`))
  await logIn(page)
  await page.getByRole('button', { name: /onerror/ }).click()
  await page.getByRole('region', { name: 'Input' }).getByText('<img src=x').waitFor()
  await page.waitForTimeout(300)
  if (await page.evaluate(() => globalThis.hit)) throw new Error('a row was run')
  if (await page.locator('img[src=x]').count()) throw new Error('a row became an element')
})

await step('a file is uploaded and its column chosen', async (page) => {
  await page.goto(at('jobs/new'))
  await logIn(page)
  await page.getByText('Upload', { exact: true }).click()
  const csv = 'id,"the ""text"""\n' + Array.from({ length: 50 }, (_, i) => `${i},"row, ${i}"`).join('\n')
  await page.locator('input[type=file]').setInputFiles({ name: 'rows.csv', mimeType: 'text/csv', buffer: Buffer.from(csv) })
  await page.getByText('uploaded', { exact: false }).first().waitFor()
  await page.getByLabel('Column of the prompts').selectOption('the "text"')
  await page.getByLabel('Column of ids').selectOption('id')
  await page.getByRole('button', { name: 'Estimate the cost' }).click()
  await page.getByText('Would cost').waitFor()
  await page.getByRole('button', { name: 'Submit the job' }).click()
  await page.locator('.now .status', { hasText: 'succeeded' }).waitFor()
})

await step('one input of a Function is run', async (page) => {
  await page.goto(at('functions/grade'))
  await logIn(page)
  await page.getByLabel('essay').fill('It was a dark and stormy night.')
  await page.getByRole('button', { name: 'Run' }).click()
  await page.getByRole('region', { name: 'Output' }).waitFor()
})

await step('a key is made, shown once, and revoked', async (page) => {
  await page.goto(at('keys'))
  await logIn(page)
  await page.getByRole('button', { name: 'Create a key' }).click()
  await page.getByLabel('Name').fill('of the browser test')
  await page.getByRole('button', { name: 'Create it' }).click()
  const secret = await page.getByRole('region', { name: 'key', exact: true }).textContent()
  await api('GET', '/v1/auth/check', undefined, secret)
  await check(page, 'a new key')
  await page.getByRole('button', { name: 'I have copied it' }).click()
  await page.getByRole('row', { name: /of the browser test/ }).last().getByRole('button', { name: 'Revoke' }).click()
  await page.getByRole('button', { name: 'Revoke the key' }).click()
  await page.getByText('The key is revoked.').waitFor()
})

await step('jobs are cancelled by what they match, after a look', async (page) => {
  await page.goto(at('jobs?q=followed'))
  await logIn(page)
  await page.getByRole('button', { name: 'Cancel all that match' }).click()
  await page.getByText('over already').waitFor()
  await check(page, 'bulk cancel')
  await page.getByRole('button', { name: 'Keep them running' }).click()
})

await step('what cannot be read again stays, dimmed, with the reason', async (page) => {
  await page.goto(at('jobs'))
  await logIn(page)
  await page.getByRole('row', { name: /towns/ }).first().waitFor()
  await page.route('**/v1/**', (r) => r.fulfill({ status: 400, json: { message: 'not today', code: 'made_up', request_id: 'r-1' } }))
  await page.getByRole('button', { name: /failed/ }).click()
  await page.getByRole('button', { name: /failed/ }).click()
  await page.locator('.problem', { hasText: 'not today' }).getByText('made_up').waitFor()
  await page.locator('.stale').getByRole('row', { name: /towns/ }).first().waitFor()
  await page.unroute('**/v1/**')
  await page.getByRole('button', { name: 'Try again' }).first().click()
  await page.locator('.stale').waitFor({ state: 'detached' })
}, /\/v1\//)

await step('the switch stops all requests', async (page) => {
  await page.goto(at(''))
  await logIn(page)
  await page.getByText('Live', { exact: true }).waitFor()
  await page.getByLabel('Live updates').uncheck({ force: true })
  await page.getByText('Paused').waitFor()
  await page.waitForTimeout(500)
  const asked = []
  page.on('request', (r) => asked.push(r.url()))
  await page.waitForTimeout(6_000)
  if (asked.length) throw new Error(`asked for ${asked}`)
})

await step('without the stream the page asks', async (page) => {
  await page.route('**/v1/events*', (r) => r.fulfill({ status: 404, json: {} }))
  await page.goto(at('jobs'))
  await logIn(page)
  await page.getByText('Every 5 s').waitFor()
  await page.waitForRequest(/list-jobs/, { timeout: 8_000 })
}, /\/v1\/(events|me|webhooks)/)

await step('on plain HTTP under a name, which is no secure context', async () => {
  const far = new URL(base)
  if (far.protocol !== 'http:') return
  far.hostname = 'lan.test'
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage', '--host-resolver-rules=MAP lan.test 127.0.0.1'] })
  try {
    const page = await browser.newPage()
    await page.goto(new URL('console/jobs/new', far).href)
    await logIn(page)
    await page.getByRole('button', { name: 'Copy curl' }).click()
    await page.getByRole('button', { name: 'Copied' }).waitFor()
    await page.getByLabel('One row a line').fill('one')
    await page.getByLabel('Model or Function').selectOption(model)
    await page.getByRole('button', { name: 'Submit' }).click()
    await page.locator('.now .status', { hasText: 'succeeded' }).waitFor()
  } finally {
    await browser.close()
  }
})

await step('a reader sees and does nothing', async (page) => {
  await page.goto(at(''))
  await logIn(page, reader.key)
  for (const path of ['', 'jobs', `jobs/${job}`, 'functions/grade', 'files', 'batches', 'quotas']) {
    await page.goto(at(path))
    await settle(page)
    const acts = await page.locator('main button:not([aria-pressed])', { hasText: /cancel|delete|submit|run|publish|set|drain|resume/i }).count()
    if (acts) throw new Error(`${path} has ${acts} buttons that act`)
  }
  for (const name of ['API keys', 'Nodes', 'New job', 'Settings'])
    if (await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name, exact: true }).count()) throw new Error(`there is a link to ${name}`)
})

await step('who logs out, or loses the key, is asked for one', async (page) => {
  const lost = await api('POST', '/v1/keys', { name: 'lost', role: 'user' })
  await page.goto(at('jobs'))
  await logIn(page, lost.key)
  await api('DELETE', `/v1/keys/${lost.id}`)
  await page.getByLabel('API key', { exact: true }).waitFor()
  if (!page.url().includes('/login?to=')) throw new Error(`at ${page.url()}`)
  await logIn(page)
  await page.getByRole('button', { name: 'Log out' }).click()
  await page.getByLabel('API key', { exact: true }).waitFor()
  await page.goto(at('jobs'))
  await page.getByLabel('API key', { exact: true }).waitFor()
}, /\/v1\//)

await browser.close()
await api('DELETE', `/v1/keys/${reader.id}`)
console.log(failures.length ? `${failures.length} failures` : 'all passed')
process.exit(failures.length ? 1 : 0)
