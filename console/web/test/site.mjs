// Searches in the website of the docs, which `make docs` builds.
//
//   node test/site.mjs FOLDER
import { pathToFileURL } from 'node:url'
import { chromium } from 'playwright-core'

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium-headless-shell', args: ['--no-sandbox', '--disable-dev-shm-usage'] })
const page = await browser.newPage()
const errors = []
page.on('pageerror', (e) => errors.push(e.message))
await page.goto(pathToFileURL(`${process.argv[2]}/docs/api.html`).href)
await page.keyboard.press('/')
await page.keyboard.type('create a job')
await page.getByRole('search').getByRole('link').first().waitFor()
await page.getByRole('searchbox').fill('Resume a Job')
await page.getByRole('link', { name: 'The API: Resume a job' }).click()
await page.waitForURL(/docs\/api\.html#resume-a-job$/)
await page.getByRole('searchbox').fill('qqzzy')
await page.getByText('Nothing found.').waitFor()
await browser.close()
if (errors.length) throw new Error(errors.join('; '))
