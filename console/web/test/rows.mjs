// The rows of a job: a long list, search, values, and single rows.
import { apart, api, at, check, ended, logIn, step } from './drive.mjs'
import { upload } from './things.mjs'

export async function rowList({ model, failed }) {
  await step('100,000 rows are scrolled through', async (page) => {
    const { results: large } = await api('POST', '/v1/batch-inference', {
      model, name: 'large', job_priority: 1, inputs: Array.from({ length: 100_000 }, (_, i) => `Row ${i}`), sampling_params: { max_tokens: 8 },
    })
    await page.goto(at(`jobs/${large}/rows`))
    await logIn(page)
    const list = page.getByRole('region', { name: 'Rows' })
    await list.getByRole('listitem').first().waitFor({ timeout: 60_000 })
    const { frames, work } = await scroll(page, list)
    console.log(`   a frame took ${p95(frames)} ms at p95, of which the page's own work ${p95(work)} ms`)
    if (p95(work) >= 100) throw new Error(`scrolling takes ${p95(work)} ms of work a frame`)
    await ended(large)
    await page.getByLabel(/Jump to row/).fill('99999')
    await page.getByRole('button', { name: 'Jump' }).click()
    await list.getByText('Row 99999', { exact: true }).waitFor()
    if ((await list.getByRole('listitem').count()) > 200) throw new Error('all rows are in the document')
  })

  await step('a failed row shows what the server answered', async (page) => {
    await page.goto(at(`jobs/${failed}/rows`))
    await logIn(page)
    const first = page.getByRole('region', { name: 'Rows' }).getByRole('button').first()
    await first.locator('.n.less').first().getByText('–').waitFor() // its tokens are not known
    const { error } = await api('GET', `/v1/jobs/${failed}/rows/0`)
    await first.getByText(error.message.slice(1)).waitFor()
    await first.click()
    const dialog = page.getByRole('dialog')
    await dialog.locator('.facts div').filter({ hasText: 'Attempts' }).waitFor()
    if (await dialog.locator('.facts div').filter({ hasText: /Tokens out|–/ }).count()) throw new Error('the dialog shows facts that the row does not have')
    await page.setViewportSize({ width: 390, height: 844 })
    await check(page, 'a failed row on a phone')
    await apart(page, '[role=dialog]')
    await page.setViewportSize({ width: 1280, height: 860 })
    const message = await dialog.locator('.problem strong').textContent()
    if (!/^[A-Z]/.test(message)) throw new Error(`the message is ${message}`)
    await dialog.getByText('schema_violation').or(dialog.getByText('truncated')).first().waitFor()
    await dialog.getByRole('region', { name: 'Raw answer' }).waitFor()
    await page.keyboard.press('ArrowRight')
    await page.waitForURL(/open=1$/)
    await dialog.getByRole('button', { name: 'Previous' }).click()
    await page.waitForURL(/open=0$/)
    await dialog.getByRole('button', { name: 'Next' }).click()
    await page.waitForURL(/open=1$/)
    await page.reload()
    await page.getByRole('dialog', { name: 'Row 1' }).getByRole('region', { name: 'Input' }).waitFor()
  })

  await step('the answer of a reasoning model is shown without its reasoning', async (page) => {
    const { results: id } = await api('POST', '/v1/batch-inference', { model: 'gpt-oss-20b', inputs: ['Hello'] })
    await ended(id)
    await page.goto(at(`jobs/${id}/rows`))
    await logIn(page)
    const line = page.getByRole('region', { name: 'Rows' }).getByRole('listitem').first()
    await line.getByText(/^\[simulated\]/).waitFor()
    if ((await line.textContent()).includes('reasoning_content')) throw new Error(`the row shows ${await line.textContent()}`)
  })

  await step('rows are found by their values and texts', async (page) => {
    const labels = ['good', 'bad', 'mixed']
    const { results: id } = await api('POST', '/v1/batch-inference', {
      model, inputs: Array.from({ length: 300 }, (_, i) => `Review ${i}`),
      json_schema: { type: 'object', properties: { label: { enum: labels }, score: { type: 'integer', minimum: 0, maximum: 1000 }, grade: { type: 'integer', minimum: 1, maximum: 14 }, note: { type: 'string' } }, required: ['label', 'score', 'grade', 'note'] },
    })
    await ended(id)
    const { outputs } = (await api('POST', '/v1/job-results', { job_id: id })).results
    const answers = outputs.map((o) => JSON.parse(o))
    await page.goto(at(`jobs/${id}`))
    await logIn(page)
    const answered = page.getByRole('region', { name: 'First answers' }).last()
    for (const name of ['label', 'score']) await answered.locator('.rowheads').getByText(name, { exact: true }).waitFor()
    const second = answered.getByRole('listitem').nth(1)
    await second.getByText(answers[1].label, { exact: true }).waitFor()
    await check(page, 'a job with answers in columns')
    await second.getByRole('button').click()
    await page.getByRole('dialog', { name: 'Row 1' }).waitFor()
    await page.goto(at(`jobs/${id}/rows`))
    const list = page.getByRole('region', { name: 'Rows' })
    await list.locator('.rowheads').getByText('label', { exact: true }).waitFor()
    const first = list.getByRole('listitem').first()
    await first.getByText(answers[0].label, { exact: true }).waitFor()
    await first.getByText(String(answers[0].score), { exact: true }).waitFor()
    await page.getByText('Nearly all values differ: note.').waitFor()
    if (await page.getByRole('group', { name: 'note' }).count()) throw new Error('free texts are a list of values')
    await check(page, 'rows with values')

    const grades = [...new Set(answers.map((a) => a.grade))].toSorted((a, b) => a - b)
    const shown = page.getByRole('group', { name: 'grade' })
    if (grades.length < 13) throw new Error(`the simulator gave the grades ${grades}`)
    await shown.getByRole('button', { name: `${grades.length - 10} more values` }).click()
    const named = (await shown.locator('button .cell').allTextContents()).map(Number)
    if (named.join() !== grades.join()) throw new Error(`the grades are ${named}, want ${grades}`)
    if (await page.evaluate(() => document.documentElement.scrollHeight > innerHeight + 200)) throw new Error('the page scrolls beside the list')

    const of = (label) => answers.flatMap((a, i) => (a.label === label ? [i] : []))
    const label = labels.find((l) => of(l).length > 2)
    const values = page.getByRole('group', { name: 'label' })
    await values.getByRole('button', { name: new RegExp(`^${label}\\D*${of(label).length}`) }).click()
    await page.getByText(`${of(label).length} rows found.`).waitFor()
    if (!page.url().includes(`where=label%3D${label}`)) throw new Error(`the address is ${page.url()}`)
    await list.getByRole('button').nth(1).click()
    await page.getByRole('dialog', { name: `Row ${of(label)[1]}` }).waitFor()
    await page.getByRole('button', { name: 'Next', exact: true }).click()
    await page.getByRole('dialog', { name: `Row ${of(label)[2]}` }).waitFor()
    await page.keyboard.press('Escape')
    await check(page, 'found rows')

    await page.getByRole('button', { name: 'Remove the filter' }).click()
    await page.getByLabel('Search in inputs and answers').fill('review 299')
    await page.getByRole('button', { name: 'Search' }).click()
    await page.getByText('1 row found.').waitFor()
    await page.reload()
    await page.getByText('1 row found.').waitFor()
    await page.getByLabel('Search in inputs and answers').fill('nowhere to be found')
    await page.getByRole('button', { name: 'Search' }).click()
    await page.getByText('No row matches the filter.').waitFor()
    await page.getByRole('button', { name: 'Remove the filter' }).click()
    await page.setViewportSize({ width: 390, height: 844 })
    await first.getByText(Object.values(answers[0]).join(' · '), { exact: true }).waitFor() // below the input
    await list.locator('.rowheads').getByText(', label · ').waitFor()
    if (await list.evaluate((e) => e.scrollWidth > e.clientWidth)) throw new Error('the list scrolls sideways on a phone')
    const tools = (await list.boundingBox()).y - (await page.locator('.tools').boundingBox()).y
    if (tools > 140) throw new Error(`the tools above the rows are ${tools} pixels high on a phone`)
    if (await page.getByLabel(/Jump to row/).isVisible()) throw new Error('Jump is open on a phone')
    await page.getByText('Jump and filter').click()
    await page.getByLabel(/Jump to row/).waitFor()
    await check(page, 'rows with values on a phone')
    await page.setViewportSize({ width: 1280, height: 860 })
    await page.getByLabel('Properties as columns').press('Space')
    await list.locator('.rowheads').getByText('Answer', { exact: true }).waitFor()
    await page.setViewportSize({ width: 390, height: 844 })
    await page.reload()
    await list.getByRole('listitem').first().waitFor()
    if (await values.isVisible()) throw new Error('the values fill the screen of a phone')
    await page.getByText('Jump and filter').click()
    await values.waitFor()
    await check(page, 'values on a phone')
  })

  await step('rows have their IDs', async (page) => {
    const file = await upload('skus.csv', 'user_data', 'sku,text\nA-1,Hello\nA-2,Good night\n')
    const { results: id } = await api('POST', '/v1/batch-inference', { model, inputs: `file:${file}`, column_name: 'text', id_column_name: 'sku', system_prompt: 'Be brief.' })
    await ended(id)
    await page.goto(at(`jobs/${id}/rows`))
    await logIn(page)
    const list = page.getByRole('region', { name: 'Rows' })
    await list.locator('.rowheads').getByText('ID', { exact: true }).waitFor()
    await list.getByText('A-2', { exact: true }).click()
    const dialog = page.getByRole('dialog', { name: 'Row 1' })
    await dialog.getByText('A-2', { exact: true }).waitFor()
    await dialog.getByText('Prompt of the job').click()
    await dialog.getByRole('region', { name: 'System prompt' }).getByText('Be brief.').waitFor()
    await dialog.getByRole('region', { name: 'Answer' }).waitFor()
    await check(page, 'a row with an ID')
    await dialog.getByRole('link', { name: 'Run this row in a new job' }).click()
    await page.getByLabel('One row per line').waitFor()
    if ((await page.getByLabel('One row per line').inputValue()) !== 'Good night') throw new Error('the new job has another row')
    await page.goto(at(`jobs/${id}/rows`))
    await page.setViewportSize({ width: 390, height: 844 })
    await list.getByText('Good night', { exact: true }).waitFor()
    if (await list.getByText('A-2', { exact: true }).isVisible()) throw new Error('the IDs take the place of texts on a phone')
    await check(page, 'rows on a phone')
  })
}

// scroll scrolls through a list in steps of many screens. It returns the time of each
// frame, and the time that the page worked for it: script, styles and layout, by the
// browser's clock, which other programs on the machine do not affect.
async function scroll(page, list) {
  const session = await page.context().newCDPSession(page)
  await session.send('Performance.enable', { timeDomain: 'threadTicks' })
  const worked = async () => {
    const { metrics } = await session.send('Performance.getMetrics')
    const of = (name) => metrics.find((m) => m.name === name).value
    return 1000 * (of('ScriptDuration') + of('LayoutDuration') + of('RecalcStyleDuration'))
  }
  const frames = [], work = []
  for (let i = 0; i < 60; i++) {
    const before = await worked()
    frames.push(await list.evaluate((box, i) => new Promise((done) => {
      const began = performance.now()
      box.scrollTop = (box.scrollHeight * ((i * 37) % 60)) / 60
      requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)))
    }), i))
    work.push((await worked()) - before)
  }
  return { frames, work }
}

const p95 = (figures) => Math.round(figures.toSorted((a, b) => a - b)[Math.floor(0.95 * figures.length)])
