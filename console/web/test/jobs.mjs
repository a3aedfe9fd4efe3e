// The pages about jobs: the list, single jobs, estimates, failed rows, and the overview.
import { apart, api, at, check, ended, logIn, picture, settle, step } from './drive.mjs'

const missing = 'job-00000000-0000-4000-8000-000000000000'

// change answers a request of a page with the answer of the node, changed.
const change = (page, url, edit) => page.route(url, async (route) => route.fulfill({ json: edit(await (await route.fetch()).json()) }))

export async function jobPages({ job, failed, model }) {
  await step('a job that no engine serves has no time left', async (page) => {
    const message = `Waiting for an engine that serves ${model}; finished rows are kept.`
    await change(page, `**/v1/jobs/${job}`, (a) => ({ job: { ...a.job, status: 'running', message, rows_done: 100 } }))
    await change(page, `**/v1/jobs/${job}/progress`, (a) => ({ ...a, status: 'running', message, rows_per_second: 2, eta_seconds: 100, eta_low: 75, eta_high: 125 }))
    await page.route('**/v1/events*', (r) => r.fulfill({ status: 404, json: {} })) // an event has the true state of the job
    await page.goto(at(`jobs/${job}`))
    await logIn(page)
    const left = page.locator('.facts div').filter({ hasText: 'Time left' })
    await left.getByText('No engine serves this model.').waitFor()
    if ((await left.textContent()).includes('min')) throw new Error(`the page shows ${await left.textContent()}`)
    await page.locator('.warning').getByText(message).waitFor()
    await check(page, 'a job without an engine')
    await page.unrouteAll({ behavior: 'wait' })
  }, /\/v1\/(me|events)/)

  await step('the list of jobs fits a desk and a phone', async (page) => {
    await change(page, '**/v1/list-jobs?limit=50*', (a) => ({
      ...a, jobs: a.jobs.map((j) => ({ ...j, model: 'an-organization/a-model-with-a-long-name-70b', num_rows: 1_000_000, rows_done: 999_000, failed_rows: 1234, datetime_started: '2026-01-01T00:00:00Z', datetime_completed: '2026-01-02T11:35:00Z' })),
    }))
    await page.setViewportSize({ width: 1440, height: 900 })
    await page.goto(at('jobs'))
    await logIn(page)
    const list = page.getByRole('region', { name: 'Jobs' })
    await list.getByText('1 d 11 h').first().waitFor()
    for (const [width, hidden] of [[1440, []], [390, ['Model', 'Took', 'Cost', 'Created']]]) {
      await page.setViewportSize({ width, height: 900 })
      await page.waitForTimeout(100)
      const beyond = await list.evaluate((e) => e.scrollWidth - e.clientWidth)
      await picture(page, `jobs-${width}`)
      if (beyond > 0) throw new Error(`at ${width} the list is ${beyond} px too wide`)
      await apart(page, 'main table')
      for (const name of hidden) if (await list.getByRole('columnheader', { name }).isVisible()) throw new Error(`at ${width} the column ${name} is shown`)
    }
    await check(page, 'the list of jobs on a phone')
    await page.unrouteAll({ behavior: 'wait' })
  })

  await step('an estimate shows its result, and runs all rows', async (page) => {
    const { results: id } = await api('POST', '/v1/batch-inference', { model, inputs: Array.from({ length: 300 }, (_, i) => `Estimate ${i}`), name: 'an estimate', cost_estimate: true })
    await ended(id)
    await page.goto(at(`jobs?q=${id}`))
    await logIn(page)
    await page.getByRole('row', { name: /an estimate/ }).getByText('estimate, 300 rows').waitFor()
    await page.getByRole('link', { name: 'an estimate' }).click()
    await page.getByText('estimate complete').waitFor()
    if ((await page.locator('.now').textContent()).includes('%')) throw new Error('an estimate has a percentage')
    await page.getByText('Rows sampled').waitFor()
    const [low, high] = (await page.locator('.now').textContent()).match(/\$[\d.]+/g).slice(-2)
    if (low.length !== high.length || (await page.getByText('Would cost').count())) throw new Error(`the cost is between ${low} and ${high}`)
    await check(page, 'an estimate')
    await page.getByRole('button', { name: /^Run all 300 rows/ }).click()
    await page.waitForURL((url) => !url.href.includes(id))
    const all = await ended(page.url().match(/job-[0-9a-f-]+/)[0])
    if (all.status !== 'succeeded' || all.num_rows !== 300 || !all.rows_taken_over) throw new Error(`the job is ${JSON.stringify(all)}`)
    await page.goto(at(`jobs/${id}`))
    await page.getByRole('button', { name: /^Run all 300 rows once more/ }).waitFor()
  })

  await step('a running job has a curve of its rate, and says how many rows no node has', async (page) => {
    let rows_per_second = 0
    await change(page, `**/v1/jobs/${job}`, (a) => ({ job: { ...a.job, status: 'running', rows_done: 100 } }))
    await change(page, `**/v1/jobs/${job}/progress`, (a) => ({ ...a, status: 'running', rows_done: 100, rows_per_second: (rows_per_second += 2), nodes: [{ node: 'one', rows_done: 100, rows_assigned: 50, rows_per_second: 2 }] }))
    await page.route('**/v1/events*', (r) => r.fulfill({ status: 404, json: {} })) // an event has the true state of the job
    await page.goto(at(`jobs/${job}`))
    await logIn(page)
    const curve = page.getByRole('img', { name: /^Rows a second since this page was opened: [\d.]+ now, [\d.]+ at most$/ })
    await curve.waitFor()
    await page.waitForFunction(() => document.querySelector('.curve polyline')?.points.numberOfItems >= 3)
    const heights = await curve.locator('polyline').evaluate((line) => Array.from(line.points, (p) => p.y))
    if (heights.some((y, i) => i > 0 && y >= heights[i - 1])) throw new Error(`the rate rises, and the curve has the heights ${heights}`)
    await page.getByRole('region', { name: 'Rows by node' }).getByRole('row', { name: /^no node yet 151$/ }).waitFor()
    await check(page, 'a job with a curve')
    await page.unrouteAll({ behavior: 'wait' })
  }, /\/v1\/(me|events)/)

  await step('a job is paused, runs first and continues', async (page) => {
    const { results: id } = await api('POST', '/v1/batch-inference', { model, inputs: Array.from({ length: 900 }, (_, i) => `[[sim:delay=500ms]] A row that is paused ${i}`), name: 'a paused job', job_priority: 1 })
    await api('PATCH', `/v1/jobs/${id}`, { paused: true })
    await page.goto(at(`jobs/${id}`))
    await logIn(page)
    await page.locator('.status').getByText('paused', { exact: true }).first().waitFor()
    await page.getByText(/^Paused\./).first().waitFor()
    for (const fact of ['Paused at', 'Ran for']) await page.locator('.facts div').filter({ hasText: fact }).waitFor()
    if (await page.getByText('Progress by node').count()) throw new Error('a paused job has an empty table of nodes')
    await check(page, 'a paused job')
    await page.goto(at('jobs?status=running'))
    await page.getByRole('button', { name: /^paused/ }).click()
    await page.getByRole('button', { name: /^running/ }).click()
    await page.waitForURL(/status=paused$/)
    await page.getByRole('region', { name: 'Jobs' }).getByRole('link', { name: 'a paused job' }).waitFor()
    await page.goto(at(''))
    await page.getByRole('region', { name: 'In numbers' }).getByRole('link', { name: /^\d+ ?paused$/ }).waitFor()
    await page.getByRole('region', { name: 'Running and waiting' }).getByRole('link', { name: 'a paused job' }).waitFor()
    await page.getByRole('region', { name: 'Running and waiting' }).getByRole('listitem').filter({ hasText: 'a paused job' }).getByText(/^\d+ of 900 rows$/).waitFor()
    await settle(page)
    const shown = await page.getByRole('link', { name: 'a paused job' }).count()
    if (shown !== 1) throw new Error(`the overview shows the paused job ${shown} times`)
    await page.goto(at(`jobs/${id}`))
    const more = page.getByRole('button', { name: 'More actions' })
    const raise = page.getByRole('button', { name: 'Raise priority' })
    await more.click()
    await check(page, 'the further actions of a job')
    await raise.click()
    await page.getByRole('button', { name: 'Raise the priority' }).click()
    await raise.waitFor({ state: 'detached' })
    await page.getByRole('button', { name: 'Continue' }).click()
    const done = await ended(id)
    const timeline = page.getByRole('list').filter({ hasText: 'created' })
    for (const what of ['paused', 'priority changed', 'pause ended', 'succeeded']) await timeline.getByText(what, { exact: true }).waitFor()
    if (await timeline.getByText('input removed').count()) throw new Error('the timeline has the removal of an input that no job needs')
    if (done.status !== 'succeeded' || done.job_priority !== 0) throw new Error(`the job is ${JSON.stringify(done)}`)

    let body
    await change(page, `**/v1/jobs/${job}`, (a) => ({ job: { ...a.job, status: 'running', job_priority: 0 } }))
    await page.route(`**/v1/jobs/${job}`, async (route) => {
      if (route.request().method() !== 'PATCH') return route.fallback()
      body = route.request().postDataJSON()
      await route.fulfill({ json: {} })
    })
    await page.route('**/v1/events*', (r) => r.fulfill({ status: 404, json: {} })) // an event has the true state of the job
    await page.goto(at(`jobs/${job}`))
    await more.waitFor()
    if ((await page.locator('header.title .actions > :is(a, button, span)').count()) > 5) throw new Error('the head has more than four buttons and a list')
    await page.getByRole('button', { name: 'Pause' }).click()
    for (const until = Date.now() + 5_000; !body && Date.now() < until; ) await page.waitForTimeout(50)
    if (body?.paused !== true) throw new Error(`the request is ${JSON.stringify(body)}`)
    await page.unroute(`**/v1/jobs/${job}`)
    await change(page, `**/v1/jobs/${job}`, (a) => ({ job: { ...a.job, status: 'running', job_priority: 1, num_rows: 1001 } }))
    await page.reload()
    await more.click()
    await page.getByRole('link', { name: 'Run again with changes' }).waitFor()
    await settle(page)
    if (await raise.count()) throw new Error('a job with too many rows can get priority 0')
    await page.unrouteAll({ behavior: 'wait' })
  }, /\/v1\/(me|events)/)

  await step('a paused job is pausing while its nodes finish rows', async (page) => {
    let nodes = [{ node: 'one', rows_done: 100, rows_assigned: 2, rows_per_second: 2 }]
    const message = 'Paused. No new row starts until the pause ends.'
    await change(page, `**/v1/jobs/${job}`, (a) => ({ job: { ...a.job, status: 'running', paused: true, message, rows_done: 100, datetime_completed: null } }))
    await change(page, `**/v1/jobs/${job}/progress`, (a) => ({ ...a, status: 'running', message, nodes }))
    await page.route('**/v1/events*', (r) => r.fulfill({ status: 404, json: {} })) // an event has the true state of the job
    await page.goto(at(`jobs/${job}`))
    await logIn(page)
    const now = page.locator('.now .status')
    await now.getByText('pausing', { exact: true }).waitFor()
    await page.getByText('Pausing. 2 rows in flight finish first.').waitFor()
    nodes = null
    await now.getByText('paused', { exact: true }).waitFor()
    await page.getByText(message).waitFor()
    await page.unrouteAll({ behavior: 'wait' })
  }, /\/v1\/(me|events)/)

  await step('the list and the page of a job say how long it took', async (page) => {
    const times = { datetime_created: '2026-01-01T00:00:00Z', datetime_started: '2026-01-01T01:00:00Z', datetime_completed: '2026-01-01T01:00:07Z' }
    await change(page, '**/v1/list-jobs?limit=50*', (a) => ({ ...a, jobs: a.jobs.map((j) => ({ ...j, ...times })) }))
    await change(page, `**/v1/jobs/${job}`, (a) => ({ job: { ...a.job, ...times } }))
    await page.goto(at('jobs?q=towns'))
    await logIn(page)
    await page.getByRole('row', { name: /towns/ }).first().getByRole('cell', { name: '7 s', exact: true }).waitFor()
    await page.goto(at(`jobs/${job}`))
    await page.locator('.facts div').filter({ hasText: 'Took' }).getByText('7 s', { exact: true }).waitFor()
    await page.unrouteAll({ behavior: 'wait' })
  })

  await step('a job whose rows all failed says why, and does not offer what does not help', async (page) => {
    const { results: id } = await api('POST', '/v1/batch-inference', { model, name: 'all refused', inputs: ['a', 'b', 'c'].map((t) => `[[sim:fail=400]] ${t}`) })
    const whole = await ended(id)
    if (whole.status !== 'failed' || whole.failed_rows !== 3) throw new Error(`the job is ${JSON.stringify(whole)}`)
    await page.goto(at(`jobs/${id}`))
    await logIn(page)
    const box = page.locator('.problem')
    await box.getByText(/^All of them: The server refused/).waitFor()
    await page.locator('.now .big').getByText('0 of 3 rows succeeded').waitFor()
    await box.locator('[data-variant=filled]').getByText('Run again with changes').waitFor()
    if ((await box.locator('[data-variant=filled]').count()) !== 1) throw new Error('the box has more than one main action')
    await settle(page)
    if (await page.getByRole('link', { name: 'Parquet' }).count()) throw new Error('one may download results without an answer')
    for (const name of ['Code', 'Raw answer']) if (await page.getByRole('region', { name: 'Samples of failed rows' }).getByRole('columnheader', { name }).count()) throw new Error(`the samples have the column ${name}, which says nothing`)
    await check(page, 'a job whose rows all failed')
    await page.goto(at('jobs?status=failed'))
    await page.getByRole('link', { name: 'The list of succeeded jobs' }).click()
    await page.waitForURL(/jobs\?status=succeeded$/)
    await page.getByRole('region', { name: 'Jobs' }).waitFor()
  })

  await step('a job that does not exist leaves the page live, and leads to the others', async (page) => {
    await page.goto(at(`jobs/${missing}`))
    await logIn(page)
    await page.getByRole('heading', { name: 'No such job' }).waitFor()
    await page.getByText('Live', { exact: true }).waitFor()
    await page.waitForTimeout(1_000)
    await page.getByText('Live', { exact: true }).waitFor()
    await check(page, 'a job that does not exist')
    await page.getByRole('link', { name: 'Show all jobs' }).click()
    await page.getByRole('region', { name: 'Jobs' }).waitFor()
    await page.goto(at(`jobs/${missing}/rows`))
    await page.getByRole('heading', { name: 'No such job' }).waitFor()
  }, new RegExp(`/v1/(me|jobs/${missing})$`))

  await step('a share is 100 % only at the end, and 0 % only at the start', async (page) => {
    await page.route('**/v1/events*', (r) => r.fulfill({ status: 404, json: {} })) // an event has the true numbers
    for (const [done, text] of [[0, '0 %'], [1, '< 0.1 %'], [35_700, '35.7 %'], [99_999, '> 99.9 %'], [100_000, '100 %']]) {
      await change(page, `**/v1/jobs/${job}`, (a) => ({ job: { ...a.job, status: 'running', num_rows: 100_000, rows_done: done } }))
      await page.goto(at(`jobs/${job}`))
      if (!done) await logIn(page)
      const big = page.locator('.now .big')
      await big.waitFor()
      if ((await big.textContent()) !== text) throw new Error(`${done} of 100,000 rows are ${await big.textContent()}, not ${text}`)
      await page.unroute(`**/v1/jobs/${job}`)
    }
    await page.unrouteAll({ behavior: 'wait' })
  }, /\/v1\/(me|events)/)

  await step('failures have samples, and failed rows run again', async (page) => {
    await page.goto(at(`jobs/${failed}`))
    await logIn(page)
    const samples = page.getByRole('region', { name: 'Samples of failed rows' }).getByRole('row')
    await samples.filter({ hasText: /^2\D*c/ }).waitFor()
    await page.route(`**/v1/jobs/${job}`, async (route) => {
      const answer = await (await route.fetch()).json()
      await route.fulfill({ json: { job: { ...answer.job, failed_rows: 2 } } })
    })
    let body
    await page.route(`**/v1/jobs/${job}/resume`, async (route) => {
      body = route.request().postDataJSON()
      await route.fulfill({ json: { results: failed, metadata: { job_id: failed, message: '' } } })
    })
    await page.route('**/v1/events*', (r) => r.fulfill({ status: 404, json: {} })) // an event has the true number of failed rows
    await page.goto(at(`jobs/${job}`))
    await page.getByRole('button', { name: 'Retry 2 failed rows' }).click()
    await page.waitForURL((url) => url.href.includes(failed))
    if (body.rows !== 'failed') throw new Error(`the request is ${JSON.stringify(body)}`)
    await page.unrouteAll({ behavior: 'wait' })
  }, /\/v1\/(me|events)/)

  await step('a failed job says which rows did not run, and how to repair it', async (page) => {
    const failure_reason = { code: 'row_too_long', message: 'Row 2 does not fit the context of the model: it is too long.', additional_context: '' }
    await change(page, `**/v1/jobs/${failed}`, (a) => ({ job: { ...a.job, status: 'failed', failure_reason, truncate_rows: false, num_rows: 3, rows_done: 2, failed_rows: 0 } }))
    await change(page, `**/v1/jobs/${failed}/preview*`, (a) => ({ ...a, rows: a.rows.map((r) => (r.row === 2 ? { ...r, status: 'pending', code: null, input: null } : r)) }))
    await page.route('**/v1/events*', (r) => r.fulfill({ status: 404, json: {} })) // an event has the true state of the job
    await page.goto(at(`jobs/${failed}`))
    await logIn(page)
    await page.locator('.facts div').filter({ hasText: 'Rows not run' }).getByText('1', { exact: true }).waitFor()
    await check(page, 'a job with a row that is too long')
    await page.getByRole('link', { name: 'Show row 2' }).click()
    await page.getByRole('region', { name: 'Rows' }).getByText('not run', { exact: true }).waitFor()
    await page.goBack()
    await page.getByRole('link', { name: 'Run again, and cut long rows' }).click()
    await page.getByText('More settings', { exact: true }).click()
    if (!(await page.getByLabel('Cut rows that are too long').isChecked())) throw new Error('the new job does not cut rows')
    await page.unrouteAll({ behavior: 'wait' })
  }, /\/v1\/(me|events)/)

  await step('a job runs again with changes, on its stored input', async (page) => {
    await page.goto(at(`jobs/${job}`))
    await logIn(page)
    await page.getByRole('link', { name: 'Run again with changes' }).click()
    const system = page.getByLabel('System prompt')
    await page.waitForFunction(() => [...document.querySelectorAll('textarea')].some((t) => t.value === 'Be brief.'))
    await system.fill('Be long.')
    await page.reload()
    await system.waitFor()
    if ((await system.inputValue()) !== 'Be long.') throw new Error(`after a reload the system prompt is ${await system.inputValue()}`)
    await page.waitForFunction((model) => [...document.querySelectorAll('input[role=combobox]')].some((i) => i.value === model), model)
    await page.getByText('The 301 stored rows of').waitFor()
    await page.getByRole('button', { name: 'Submit 301 rows' }).click()
    await page.waitForURL(/\/jobs\/job-/)
    const again = await ended(page.url().match(/job-[0-9a-f-]+/)[0])
    if (again.input_of !== job || again.num_rows !== 301 || again.system_prompt !== 'Be long.') throw new Error(`the job is ${JSON.stringify(again)}`)
    await page.getByText('Reads the input of').getByRole('link', { name: 'towns' }).waitFor()
    await page.getByRole('link', { name: 'Compare with towns' }).waitFor()
    await page.getByRole('button', { name: 'More actions' }).click()
    await page.getByRole('button', { name: 'Compare with…' }).click()
    await page.getByText('source of the input').waitFor()
    await check(page, 'jobs to compare with, of one input')
  })

  await step('a job that reads answers runs again with the same answers and without cuts', async (page) => {
    const source = await ended((await api('POST', '/v1/batch-inference', { model, inputs: ['One', 'Two'] })).results)
    const title = `${model}: Is this right? {{answer}}`
    const body = { model, inputs: `job:${source.job_id}`, prompt: 'Is this right? {{answer}}', where: 'answer != nothing', truncate_rows: false }
    const judge = await ended((await api('POST', '/v1/batch-inference', body)).results)
    await page.goto(at(`jobs/${judge.job_id}`))
    await logIn(page)
    await page.getByRole('heading', { name: title, exact: true }).waitFor()
    await page.getByRole('link', { name: 'Run again with changes' }).click()
    await page.getByText('answer != nothing', { exact: true }).waitFor()
    await page.getByRole('button', { name: /^Submit/ }).click()
    await page.waitForURL((url) => /jobs\/job-/.test(url.href) && !url.href.includes(judge.job_id))
    const again = await ended(page.url().match(/job-[0-9a-f-]+/)[0])
    if (again.answers_of !== source.job_id || again.where !== body.where || again.truncate_rows !== false || again.num_rows !== 2) throw new Error(`the job is ${JSON.stringify(again)}`)
  })

  await step('a job that another job continues says so', async (page) => {
    const { results: first } = await api('POST', `/v1/jobs/${failed}/resume`, { rows: 'failed' })
    await ended(first)
    await page.goto(at(`jobs/${failed}`))
    await logIn(page)
    await page.getByRole('note').filter({ hasText: 'A later job continues this job' }).getByRole('link', { name: 'cut short' }).waitFor()
    await page.getByRole('link', { name: 'Open the later job' }).click()
    await page.waitForURL((url) => url.href.includes(first))
    const origin = page.getByRole('region', { name: 'Timeline' }).getByText(/continues/i)
    await origin.first().waitFor()
    const origins = await origin.count()
    if (origins !== 1) throw new Error(`the timeline has the origin of the job ${origins} times`)
    await page.getByRole('region', { name: 'Timeline' }).getByRole('link', { name: 'cut short' }).waitFor()
    const dialog = page.getByRole('dialog')

    let sent
    await page.route(`**/v1/jobs/${failed}/resume`, async (route) => {
      sent = route.request().postDataJSON()
      await route.fulfill({ json: { results: first, metadata: { job_id: first, message: '' } } })
    })
    await page.goto(at(`jobs/${failed}`))
    await page.getByRole('button', { name: /^Retry \d failed row/ }).first().click()
    await dialog.getByRole('link', { name: 'cut short' }).waitFor()
    if (sent) throw new Error('rows ran once more without a question')
    await check(page, 'a second retry')
    await dialog.getByRole('button', { name: 'Run these rows once more' }).click()
    await page.waitForURL((url) => url.href.includes(first))
    if (sent.rows !== 'failed' || !sent.again || sent.name !== 'cut short (2)') throw new Error(`the request is ${JSON.stringify(sent)}`)
    await page.unrouteAll({ behavior: 'wait' })
  })

  await step('failed rows are listed with their inputs, and found', async (page) => {
    const fail = (status, text) => `[[sim:fail=${status}]] ${text}`
    const { results: id } = await api('POST', '/v1/batch-inference', {
      model, name: 'some fail', inputs: ['Good morning.', fail(400, 'Ask for pears.'), 'Good day.', fail(500, 'Ask for plums.'), fail(400, 'Ask for figs.'), ...Array.from({ length: 300 }, (_, i) => `Greeting ${i}`)],
    })
    await ended(id)
    const { counts } = await api('GET', `/v1/jobs/${id}/errors/counts`)
    if (counts.length < 2) throw new Error(`the rows failed with ${JSON.stringify(counts)}`)
    await page.goto(at(`jobs/${id}/rows?failed=1`))
    await logIn(page)
    const list = page.getByRole('region', { name: 'Failed rows' })
    const lines = list.getByRole('listitem')
    await lines.filter({ hasText: 'Ask for plums.' }).filter({ hasText: counts.find((c) => c.first_row === 3).code }).waitFor()
    if ((await lines.count()) !== 3) throw new Error(`there are ${await lines.count()} rows`)
    await check(page, 'failed rows')
    await page.getByLabel('Search in inputs and answers').fill('FIGS')
    await page.getByRole('button', { name: 'Search' }).click()
    await page.getByText('1 row found.').waitFor()
    await lines.filter({ hasText: 'Ask for figs.' }).getByRole('button').click()
    await page.getByRole('dialog', { name: 'Row 4' }).waitFor()
    await page.keyboard.press('Escape')
    await page.getByLabel('Search in inputs and answers').fill('')
    await page.getByRole('button', { name: 'Search' }).click()
    await page.getByText('3 of 3 failed rows shown.').waitFor()
    const code = counts.find((c) => c.first_row === 1).code
    await page.getByRole('group', { name: 'Error codes' }).getByRole('button', { name: code }).click()
    await page.getByText('2 rows found.').waitFor()
    await page.reload()
    await page.getByText('2 rows found.').waitFor()
    await page.setViewportSize({ width: 390, height: 844 })
    await check(page, 'failed rows on a phone')
    await page.setViewportSize({ width: 1280, height: 860 })
    await page.goto(at('jobs?q=some+fail'))
    await page.getByRole('region', { name: 'Jobs' }).getByRole('link', { name: '3 rows failed' }).waitFor()
    await page.goto(at(''))
    const failures = page.getByRole('region', { name: 'Recent failures' })
    const [download] = await Promise.all([page.waitForEvent('download'), failures.getByRole('link', { name: 'Download CSV: some fail' }).click()])
    if (!download.suggestedFilename().startsWith('some fail-results')) throw new Error(`the file is called ${download.suggestedFilename()}`)
    if (await page.getByRole('region', { name: 'Recently finished' }).getByText('some fail').count()) throw new Error('a job is in two lists')
    await failures.getByRole('link', { name: 'All failed jobs' }).waitFor()
    const failing = failures.getByRole('listitem').filter({ hasText: 'some fail' })
    await failing.getByText(/^3 of \d+ rows failed: \S/).waitFor()
    await failing.getByRole('link', { name: /^3 of \d+ rows failed$/ }).click()
    await page.getByText('3 of 3 failed rows shown.').waitFor()
  })

  await step('the overview says why a job waits, and that storage is away', async (page) => {
    await page.route('**/readyz?verbose', (r) => r.fulfill({ status: 503, contentType: 'text/plain', body: '[+] store\n[-] objects\nnot ready\n' }))
    await page.route('**/v1/list-jobs?limit=10&status=running*', async (route) => {
      const { job: one } = await api('GET', `/v1/jobs/${job}`)
      const waits = { ...one, status: 'pending', name: 'in the queue', message: 'Waiting for a place: node a runs as many jobs as it may (jobs.max_active), 1 of them of this account.', datetime_created: new Date(Date.now() - 600_000).toISOString() }
      const stuck = { ...one, job_id: missing, status: 'running', name: 'without an engine', message: `Waiting for an engine that serves ${model}; finished rows are kept.` }
      await route.fulfill({ json: { jobs: [waits, stuck], next_cursor: null, scanned_all: true } })
    })
    await page.route('**/v1/list-jobs?limit=3&status=running', async (route) => {
      const { job: one } = await api('GET', `/v1/jobs/${job}`)
      await route.fulfill({ json: { jobs: [{ ...one, status: 'running', name: 'nightly run' }], next_cursor: null, scanned_all: true } })
    })
    await page.route(`**/v1/jobs/${missing}/progress`, (r) => r.fulfill({ status: 404, json: {} }))
    await page.goto(at(''))
    await logIn(page)
    const attention = page.getByRole('region', { name: 'Needs attention' })
    await attention.getByText('object storage').waitFor()
    await attention.getByText('storage unreachable').waitFor()
    await attention.getByText('Running now: nightly run.').waitFor()
    await attention.getByRole('link', { name: 'without an engine' }).waitFor()
    if (await page.getByRole('region', { name: 'Running and waiting' }).count()) throw new Error('jobs of Needs attention are listed twice')
    await settle(page)
    await check(page, 'an overview with jobs that wait')
    await page.unrouteAll({ behavior: 'wait' })
  }, new RegExp(`/v1/(me|jobs/${missing}/progress)$|/readyz`))

  await step('log out stops the requests of the page', async (page) => {
    let late = 0
    await page.route('**/v1/stats*', async (route) => {
      if (!(await page.locator('main').count())) late++
      await new Promise((r) => setTimeout(r, 300))
      await route.continue().catch(() => {})
    })
    await page.goto(at(''))
    await logIn(page)
    await settle(page)
    await page.getByRole('button', { name: 'Log out' }).click()
    await page.getByLabel('API key', { exact: true }).waitFor()
    await page.waitForTimeout(1_000)
    if (late) throw new Error(`${late} requests after the log out`)
    await page.unrouteAll({ behavior: 'wait' })
  })
}
