// Every page, with data, with nothing, and without an answer: in light and dark, at
// 1280 and 320 pixels.
import { at, browser, check, fail, logIn, picture, settle, tried, usual, watch } from './drive.mjs'

// pages are the pages of the console. The empty state of a page is the same page for an
// account without data, unless empty names another path, or answers to requests,
// because an operator's cluster always has nodes.
export function pages(t) {
  return {
    overview: {},
    jobs: { path: 'jobs' },
    'jobs-filtered': { path: 'jobs?status=succeeded&q=towns', empty: { path: 'jobs?q=nothing-is-called-so' } },
    job: { path: `jobs/${t.job}`, empty: { path: `jobs/${t.uncounted}` } },
    rows: { path: `jobs/${t.job}/rows`, empty: { path: `jobs/${t.uncounted}/rows` } },
    compare: { path: `jobs/compare?jobs=${t.job},${t.again}`, empty: { path: 'jobs/compare' } },
    'job-failed': { path: `jobs/${t.failed}`, empty: null },
    'rows-failed': { path: `jobs/${t.failed}/rows?failed=1`, empty: { path: `jobs/${t.job}/rows?failed=1` } },
    'new-job': { path: 'jobs/new' },
    functions: { path: 'functions' },
    function: { path: 'functions/grade', empty: null },
    'function-edit': { path: 'functions/grade/edit', empty: { path: 'functions/new' } },
    files: { path: 'files' },
    batches: { path: 'batches' },
    engines: { path: 'engines', empty: { answers: { '/v1/engines': { engines: [], missing_nodes: [] } } } },
    nodes: { path: 'nodes', empty: { answers: { '/v1/nodes': { nodes: [] } } } },
    actors: { path: 'actors', empty: { answers: { '/v1/actors': { actors: [], nodes: [], counts: [] } } } },
    usage: { path: 'usage' },
    'usage-by-key': { path: 'usage?by=day,key' },
    'usage-of-key': { path: `usage?by=key&key=${t.team.id}`, empty: { path: 'usage?key=000000000000' } },
    quotas: { path: 'quotas' },
    keys: { path: 'keys' },
    webhooks: { path: 'webhooks' },
    webhook: { path: `webhooks/${t.webhook}`, empty: { path: `webhooks/${t.quiet}` } },
    settings: { path: 'settings' },
    audit: { path: 'audit' },
    about: { path: 'about', empty: null, error: null }, // it has read the signed-in key before
    nowhere: { path: 'no/such/page', empty: null, error: null },
  }
}

const looks = [
  ['light', 1280],
  ['dark', 1280],
  ['dark', 320],
  ['light', 320],
]

async function looked(page, name, part) {
  for (const [colorScheme, width] of looks) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
    await page.setViewportSize({ width, height: width === 320 ? 640 : 860 })
    await page.waitForTimeout(50)
    await check(page, `${name} ${colorScheme} ${width}`, part)
    await picture(page, `${name}-${colorScheme}-${width}`)
  }
}

// lane opens the pages of an account one after another.
async function lane(as, expected, visits) {
  const context = await browser.newContext()
  const page = await context.newPage()
  let name = 'login'
  watch(page, () => name, expected)
  await page.goto(at('about'))
  await logIn(page, as)
  for (const [called, visit] of visits) {
    name = called
    await tried(async () => {
      try {
        await visit(page)
      } catch (e) {
        fail(`${name}: ${e.message}`)
        await picture(page, `failed-${name}`)
      }
    })
  }
  await context.close()
}

const withData = (name, path) => [name, async (page) => {
  await page.goto(at(path))
  await settle(page)
  await looked(page, name)
  const problem = await page.locator('.problem[role=alert]:not(.expected)').first().textContent({ timeout: 1 }).catch(() => null)
  if (problem) fail(`${name}: ${problem}`)
}]

const withNothing = (name, path, answers = {}) => [`${name}-empty`, async (page) => {
  for (const [route, json] of Object.entries(answers)) await page.route(`**${route}*`, (r) => r.fulfill({ json }))
  await page.goto(at(path))
  await settle(page)
  await looked(page, `${name}-empty`, 'main')
  await page.unrouteAll()
}]

// The pages do not retry this refusal.
const refusal = { status: 400, json: { message: 'The records are being moved.', code: 'made_up', request_id: 'req-of-the-test' } }

const withoutAnswer = (name, path) => [`${name}-error`, async (page) => {
  await page.route('**/v1/**', (r) => (/\/v1\/(me|events)/.test(r.request().url()) ? r.fallback() : r.fulfill(refusal)))
  await page.goto(at(path))
  const problem = page.locator('.problem[role=alert]').first()
  await problem.getByText('The records are being moved.').waitFor()
  await problem.getByText('req-of-the-test').waitFor()
  await settle(page)
  await looked(page, `${name}-error`, 'main')
  await page.unrouteAll()
  // Click all at once: at any other time, an event may repeat a request and remove its
  // button.
  await page.getByRole('button', { name: 'Try again' }).evaluateAll((buttons) => buttons.forEach((b) => b.click()))
  await page.waitForFunction(() => !document.querySelector('.problem[role=alert]'))
}]

export async function everyPageInEveryState(t) {
  const all = Object.entries(pages(t)).map(([name, { path = '', ...rest }]) => [name, { path, ...rest }])
  const own = [], others = [], broken = []
  for (const [name, { path, empty, error }] of all) {
    own.push(withData(name, path))
    if (empty === undefined) others.push(withNothing(name, path))
    else if (empty) own.push(withNothing(name, empty.path ?? path, empty.answers))
    if (error === undefined) broken.push(withoutAnswer(name, path))
  }
  await Promise.all([
    lane(undefined, usual, own),
    lane(t.newcomer.key, usual, others).then(() => lane(undefined, /\/v1\//, broken)),
  ])
  console.log(`looked at ${own.length + others.length + broken.length} states of ${all.length} pages in ${looks.length} looks`)
}

// theLogin checks the only page without an account.
export async function theLogin() {
  const context = await browser.newContext()
  const page = await context.newPage()
  watch(page, () => 'login')
  await page.goto(at('jobs?q=towns'))
  await page.getByLabel('API key', { exact: true }).waitFor()
  await looked(page, 'login')
  await logIn(page)
  if (!page.url().endsWith('/console/jobs?q=towns')) fail(`after the login one is at ${page.url()}`)
  await context.close()
}
