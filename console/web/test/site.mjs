// Searches in the website of the docs, which `make docs` builds.
//
//   node test/site.mjs FOLDER
import { pathToFileURL } from 'node:url'
import { chromium } from 'playwright-core'

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium-headless-shell', args: ['--no-sandbox', '--disable-dev-shm-usage'] })
const page = await browser.newPage({ permissions: ['clipboard-write'] })
const errors = []
page.on('pageerror', (e) => errors.push(e.message))
await page.goto(pathToFileURL(`${process.argv[2]}/docs/api.html`).href)
await page.keyboard.press('/')
await page.keyboard.type('create a job')
const found = page.getByRole('search').getByRole('link')
await found.first().waitFor()
// A page with instructions comes first, although records of decisions have the words too.
for (const [query, want] of [
  ['deadline', 'The API: Deadline'],
  ['retry failed rows', 'The API: Resume a job'],
  ['how do I create a job', 'The API: Create a job'],
  ['how do I delete a job', "The API: Delete a job's data"],
  ['out of memory', 'Errors: torch.OutOfMemoryError: CUDA out of memory'],
  ['cost of a job', 'The API: Cost and estimates'],
]) {
  await page.getByRole('searchbox').fill(query)
  const first = await found.first().textContent()
  if (first !== want) errors.push(`the first section about ${query} is ${first}`)
}
for (const query of ['retry failed rows', 'webhook signature']) {
  await page.getByRole('searchbox').fill(query)
  const titles = (await found.allTextContents()).slice(0, 3)
  if (titles.some((t) => /^Architecture/.test(t))) errors.push(`the first sections about ${query} are ${titles}`)
}
const list = page.getByRole('search').getByRole('list')
if ((await list.boundingBox()).width < 416) errors.push('the list of results is narrow')
const [texts, words] = [await list.locator('span').allTextContents(), await page.evaluate(() => sections.map((s) => s.text).join(' ').split(/\s+/))]
const cut = texts.flatMap((t) => t.split(/\s+/)).map((w) => w.replace(/^…|…$/g, '')).filter((w) => w && !words.includes(w) && !words.includes(`${w}…`) && !words.includes(`…${w}`))
if (cut.length) errors.push(`the results have parts of words: ${cut}`)
await page.getByRole('searchbox').fill('Resume a Job')
await page.getByRole('link', { name: 'The API: Resume a job' }).click()
await page.waitForURL(/docs\/api\.html#resume-a-job$/)
if (await found.count()) errors.push('the list of results covers the section')
await page.getByRole('searchbox').fill('qqzzy')
await page.getByText('Nothing found.').waitFor()

await page.goto(pathToFileURL(`${process.argv[2]}/index.html`).href)
if (await page.locator('pre:has(.language-text)').getByRole('button').count()) errors.push('a picture has a button that copies it')

await page.setViewportSize({ width: 390, height: 844 })
await page.goto(pathToFileURL(`${process.argv[2]}/docs/first-job.html`).href)
if ((await page.getByRole('searchbox').boundingBox()).y > 100) errors.push('the search is not at the top of the page on a phone')
const block = page.locator('pre').first()
if (await block.evaluate((b) => b.scrollWidth > b.clientWidth)) errors.push('a line of code is cut')
await block.getByRole('button', { name: 'Copy' }).click()
await block.getByRole('button', { name: 'Copied' }).waitFor()
await browser.close()
if (errors.length) throw new Error(errors.join('; '))
