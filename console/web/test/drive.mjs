// The base of all parts of the browser test: the node, the browser, the checks of each
// page, and the failures.
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { chromium } from 'playwright-core'

const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium-headless-shell'

export const [base, key, out] = process.argv.slice(2)
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

export const failures = []

// How often the network of this machine has changed, for example because other tests
// make networks. The browser then aborts all its requests, which no page can prevent,
// so the failed part runs again.
let changes = 0

export async function tried(f) {
  for (let tries = 1; ; tries++) {
    const [before, was] = [failures.length, changes]
    await f()
    if (failures.length === before || changes === was || tries === 3) return
    failures.length = before
    console.log('the network changed meanwhile: tried again')
  }
}

export function fail(what) {
  failures.push(what)
  console.error(`FAIL ${what}`)
}

// api asks the node without a browser.
export async function api(method, path, body, as = key, at = base) {
  const answer = await fetch(new URL(path, at), {
    method,
    headers: { Authorization: `Key ${as}`, 'Content-Type': 'application/json' },
    body: body && JSON.stringify(body),
  })
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`)
  return answer.json()
}

// ended waits for the end of a job.
export async function ended(id) {
  for (;;) {
    const { job } = await api('GET', `/v1/jobs/${id}`)
    if (['succeeded', 'failed', 'cancelled'].includes(job.status)) return job
    await new Promise((r) => setTimeout(r, 200))
  }
}

export const launch = (...args) =>
  chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage', ...args] })

export const browser = await launch()

export const at = (path, node = base) => new URL(`console/${path}`, node).href

// At first no user is signed in, and this request is refused.
export const usual = /\/v1\/me$/

// watch fails the test for messages in a page's console and for failed requests, except
// refusals of addresses that match expected.
export function watch(page, name, expected = usual) {
  page.on('console', (m) => m.type() === 'error' && !expected.test(m.location().url) && fail(`${name()}: console: ${m.text()} ${m.location().url}`))
  page.on('pageerror', (e) => fail(`${name()}: ${e.message}`))
  page.on('response', (r) => r.status() >= 400 && !expected.test(r.url()) && fail(`${name()}: ${r.status()} ${r.url()}`))
  page.on('requestfailed', (r) => {
    if (r.failure()?.errorText === 'net::ERR_NETWORK_CHANGED') changes++
    if (r.failure()?.errorText !== 'net::ERR_ABORTED' && !expected.test(r.url())) fail(`${name()}: ${r.failure()?.errorText} ${r.url()}`)
  })
}

export async function logIn(page, as = key) {
  await page.getByLabel('API key', { exact: true }).fill(as)
  await page.getByRole('button', { name: 'Log in' }).click()
  await page.getByRole('navigation', { name: 'Pages' }).or(page.getByRole('button', { name: 'Navigation' })).first().waitFor()
}

// chooseModel chooses a model or a Function in the form of New job by its name.
export async function chooseModel(page, name) {
  await page.getByRole('combobox', { name: 'Model or Function' }).click()
  await page.getByRole('option').filter({ hasText: name }).first().click()
}

// settle waits until a page has loaded its data.
export async function settle(page) {
  await page.locator('h1').first().waitFor()
  await page.waitForFunction(() => !document.querySelector('[role=status][aria-label=Loading]'), null, { timeout: 15_000 })
  await page.waitForTimeout(150)
}

// check checks a page, or a part, with axe, and compares its width with the window's.
export async function check(page, name, part) {
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(axe)
  const { violations } = await page.evaluate(
    (part) => globalThis.axe.run((part && document.querySelector(part)) || document, { resultTypes: ['violations'] }),
    part,
  )
  for (const v of violations.filter((v) => ['serious', 'critical'].includes(v.impact)))
    fail(`${name}: ${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.target} ${n.any[0]?.message ?? ''}`).join(' | ')} (${v.nodes.length})`)
  const beyond = () => document.documentElement.scrollWidth - document.documentElement.clientWidth
  // The page may still follow a change of the window.
  const fits = await page.waitForFunction(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth, null, { timeout: 10_000 }).catch(() => null)
  if (!fits) fail(`${name}: ${await page.evaluate(beyond)} px wider than the window`)
}

// apart throws an error if visible texts in a part of a page overlap.
export async function apart(page, part) {
  const overlaps = await page.locator(part).first().evaluate((root) => {
    const texts = []
    const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT)
    for (let node; (node = walk.nextNode()); ) {
      if (!node.textContent.trim() || !node.parentElement.checkVisibility({ visibilityProperty: true })) continue
      const range = document.createRange()
      range.selectNodeContents(node)
      for (const { left, top, right, bottom } of range.getClientRects()) {
        const box = { left, top, right, bottom, node, text: node.textContent.slice(0, 40) }
        for (let e = node.parentElement; e && e !== document.body; e = e.parentElement) {
          if (getComputedStyle(e).overflowX === 'visible') continue
          const clip = e.getBoundingClientRect()
          Object.assign(box, { left: Math.max(box.left, clip.left), right: Math.min(box.right, clip.right), top: Math.max(box.top, clip.top), bottom: Math.min(box.bottom, clip.bottom) })
        }
        texts.push(box)
      }
    }
    // The boxes of two lines may share some pixels.
    const meet = (a, b) => a.node !== b.node && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4
    return texts.flatMap((a, i) => texts.slice(i + 1).filter((b) => meet(a, b)).map((b) => `${a.text} | ${b.text}`))
  })
  if (overlaps.length) throw new Error(`texts overlap: ${overlaps.slice(0, 5).join('; ')}`)
}

export const picture = (page, name) => page.screenshot({ path: join(out, `${name}.png`) })

// step runs a scenario on its own page.
export const step = (name, f, expected = usual) => tried(() => scenario(name, f, expected))

async function scenario(name, f, expected) {
  // Without motion, a dialog never is half transparent when axe measures its contrast.
  // The headless shell allows a page to write to the clipboard only if the test does.
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, reducedMotion: 'reduce', permissions: ['clipboard-write'] })
  const page = await context.newPage()
  page.setDefaultTimeout(20_000)
  const before = failures.length
  watch(page, () => name, expected)
  try {
    await f(page)
  } catch (e) {
    fail(`${name}: ${e.message}`)
    await picture(page, 'failed')
  }
  await context.close()
  if (failures.length === before) console.log(`ok ${name}`)
}
