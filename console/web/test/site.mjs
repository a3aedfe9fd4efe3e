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
await page.getByRole('searchbox').fill('Resume a Job')
await page.getByRole('link', { name: 'The API: Resume a job' }).click()
await page.waitForURL(/docs\/api\.html#resume-a-job$/)
await page.getByRole('searchbox').fill('qqzzy')
await page.getByText('Nothing found.').waitFor()

await page.setViewportSize({ width: 390, height: 844 })
await page.goto(pathToFileURL(`${process.argv[2]}/docs/first-job.html`).href)
if ((await page.getByRole('searchbox').boundingBox()).y > 100) errors.push('the search is not at the top of the page on a phone')
const block = page.locator('pre').first()
if (await block.evaluate((b) => b.scrollWidth > b.clientWidth)) errors.push('a line of code is cut')
await block.getByRole('button', { name: 'Copy' }).click()
await block.getByRole('button', { name: 'Copied' }).waitFor()
await browser.close()
if (errors.length) throw new Error(errors.join('; '))
