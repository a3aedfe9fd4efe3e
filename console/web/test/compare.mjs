// Jobs on one input, compared from the list of jobs and from the page of a job.
import { readFileSync } from 'node:fs'
import { api, at, check, chooseModel, ended, logIn, settle, step } from './drive.mjs'

export async function comparison({ model }) {
  const other = model === 'qwen-3-4b' ? 'llama-3.1-8b' : 'qwen-3-4b'
  const inputs = Array.from({ length: 12 }, (_, i) => `Is ${i} a good number?`)
  const submit = async (name, system_prompt) =>
    (await api('POST', '/v1/batch-inference', { model, inputs, name, system_prompt, sampling_params: { structured_outputs: { choice: ['yes', 'no'] } } })).results
  const jobs = [await submit('kind', 'Be kind.'), await submit('strict', 'Be strict.')]
  const plain = await submit('plain')
  await Promise.all([...jobs, plain].map(ended))
  const { equal, different } = await api('GET', `/v1/jobs/compare/summary?jobs=${jobs}`)
  if (!equal || !different) throw new Error(`the simulator gave ${equal} equal and ${different} different answers`)

  await step('two jobs are compared', async (page) => {
    await page.goto(at('jobs'))
    await logIn(page)
    await page.getByLabel('Mark strict').check()
    await page.getByText('Select two to four jobs with the same input to compare them.').waitFor()
    await page.getByLabel('Mark towns', { exact: true }).check()
    await page.getByText('These jobs cannot be compared: their inputs have different numbers of rows.').waitFor()
    await check(page, 'selected jobs')
    await page.getByLabel('Mark towns', { exact: true }).uncheck()
    await page.getByLabel('Mark kind').check()
    await page.getByRole('link', { name: 'Compare 2 jobs' }).click()
    await page.waitForURL(`**/compare?jobs=${jobs}`) // the older job comes first
    await page.getByRole('paragraph').filter({ hasText: `${equal} of 12 rows ${equal === 1 ? 'is' : 'are'} equal (` }).waitFor()
    await page.getByRole('region', { name: 'Values of the answer' }).getByRole('cell', { name: 'yes', exact: true }).waitFor()
    await page.getByRole('region', { name: 'Difference' }).getByText('Be strict.').waitFor()
    const rows = page.getByRole('region', { name: 'Rows', exact: true }).locator('tbody tr')
    await page.getByText(`All ${different} different rows shown.`).waitFor()
    const summaries = await page.getByText(/of 12 rows (is|are) equal/).count()
    if (summaries !== 1) throw new Error(`the page says ${summaries} times how many rows are equal`)
    await page.getByLabel('Only different rows').uncheck()
    await page.getByText('All 12 rows shown.').waitFor()
    if ((await rows.count()) !== 12) throw new Error('rows are missing')
    if (!page.url().endsWith('&different=0')) throw new Error(`the address is ${page.url()}`)
    await page.reload()
    await page.getByText('All 12 rows shown.').waitFor()
    await page.getByLabel('Only different rows').check()
    await page.getByText(`All ${different} different rows shown.`).waitFor()
    if (!page.url().endsWith('&different=1')) throw new Error(`the address is ${page.url()}`)
    if ((await rows.locator('ins').count()) !== different || (await rows.locator('del').count()) !== different) throw new Error('the changed words are not marked')
    await check(page, 'a comparison')
    await page.setViewportSize({ width: 390, height: 844 })
    const { x, width } = await rows.first().locator('td').last().boundingBox()
    if (x + width > 390) throw new Error(`the second answer ends at ${x + width}, outside the window`)
    await check(page, 'a comparison on a phone')
    await page.route('**/v1/jobs/compare?*', async (route) => {
      const answer = await (await route.fetch()).json()
      const long = (o, i) => ({ ...o, output: `${'Both answers begin with this. '.repeat(20)}Answer ${i} ends.` })
      await route.fulfill({ json: { ...answer, rows: answer.rows.map((r) => ({ ...r, input: 'A line of a long input.\n'.repeat(20), outputs: r.outputs.map(long) })) } })
    })
    await page.reload()
    await rows.first().getByText(/^….{10,40}Answer 0 ends\.$/).waitFor() // long answers are cut before their first difference
    await rows.first().locator('ins').getByText('1').waitFor()
    await rows.first().getByRole('button', { name: 'more' }).nth(1).click()
    await rows.first().getByText(/^Both .*Answer 0 ends\.$/).waitFor()
    await page.goto(at(`jobs/compare?jobs=${jobs}&different=0`))
    await page.getByText('10 rows shown; “Show more” reads on.').waitFor() // a phone shows fewer rows at first
    const { height } = await rows.first().boundingBox()
    if (height > 200) throw new Error(`a row with a long input and two long answers is ${height} px high on a phone`)
    await check(page, 'long texts on a phone')
    await page.getByRole('button', { name: 'Show more' }).click()
    await page.getByText('All 12 rows shown.').waitFor()
    await page.unrouteAll({ behavior: 'wait' })
    await page.setViewportSize({ width: 1280, height: 860 })
    await page.goto(at(`jobs/compare?jobs=${jobs}&different=1`))
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Export as CSV' }).click()])
    const [heads, ...lines] = readFileSync(await download.path(), 'utf8').trim().split('\r\n')
    if (heads !== 'row,input,kind,strict' || lines.length !== different || !/^\d+,Is \d+ a good number\?,(yes,no|no,yes)$/.test(lines[0])) throw new Error(`the file is ${[heads, ...lines]}`)
  })

  await step('the properties of JSON answers are compared', async (page) => {
    const values = Array.from({ length: 8 }, (_, i) => `v${i}`)
    const json_schema = { type: 'object', properties: { always: { enum: ['same'] }, topic: { enum: values } }, required: ['always', 'topic'] }
    const ask = async (seed) => (await ended((await api('POST', '/v1/batch-inference', { model, inputs: inputs.slice(0, 9), json_schema, sampling_params: { seed, temperature: 1 } })).results)).job_id
    await page.goto(at(`jobs/compare?jobs=${await ask(1)},${await ask(2)}`))
    await logIn(page)
    const cells = page.getByRole('region', { name: 'Rows', exact: true }).locator('tbody td[data-name]')
    await cells.filter({ has: page.locator('del') }).first().waitFor()
    for (const text of await cells.allTextContents()) {
      if (!/^always: sametopic: (v\d){1,2}$/.test(text)) throw new Error(`an answer is shown as ${text}`)
    }
    const [first] = await page.locator('details summary').allTextContents()
    if (!first.includes('topic')) throw new Error(`the property with the least agreement is not first, but ${first}`)
    await check(page, 'a comparison of JSON answers')
  })

  await step('the same rows run with two models', async (page) => {
    await page.goto(at('jobs/new'))
    await logIn(page)
    await page.getByLabel('One row per line').fill(inputs.slice(0, 7).join('\n'))
    await chooseModel(page, model)
    await page.getByRole('button', { name: 'Add a model to compare' }).click()
    await page.getByRole('combobox', { name: 'Model 2' }).click()
    await page.getByRole('option').filter({ hasText: other }).first().click()
    await page.getByRole('button', { name: 'Estimate the cost' }).click()
    const estimates = page.getByRole('region', { name: 'Estimates' })
    await estimates.getByRole('row').filter({ hasText: 'Together' }).getByText('$').waitFor()
    for (const name of [model, other]) await estimates.getByRole('row').filter({ hasText: name }).getByText('$').waitFor()
    await check(page, 'a new job with two models')
    await page.getByRole('button', { name: 'Submit 7 rows to 2 models' }).click()
    await page.waitForURL(/compare\?jobs=job-/)
    const first = page.getByText(/^All \d different rows shown\.$|^All 7 rows shown\.$/)
    await first.waitFor()
    for (const name of [model, other]) await page.getByRole('region', { name: 'Rows', exact: true }).getByRole('columnheader', { name }).waitFor()
    const parquet = page.getByRole('link', { name: 'Download Parquet' })
    await parquet.waitFor({ timeout: 60_000 }) // both jobs have succeeded
    const [download] = await Promise.all([page.waitForEvent('download'), parquet.click()])
    if (readFileSync(await download.path()).subarray(0, 4).toString() !== 'PAR1') throw new Error('the file is not Parquet')
    await page.getByRole('region', { name: 'Jobs', exact: true }).getByRole('link', { name: other }).click()
    const set = page.getByRole('region', { name: 'Job 2 of 2 on the same rows' })
    await set.getByText('this job').waitFor()
    await set.getByRole('link', { name: model }).waitFor()
    await check(page, 'a job of a set')
    await set.getByRole('link', { name: 'Compare the 2 jobs' }).click()
    await first.waitFor()
  }, /\/v1\/(me$|jobs\/compare)/)

  await step('three jobs are compared', async (page) => {
    await page.goto(at(`jobs/compare?jobs=${jobs},${plain}`))
    await logIn(page)
    const values = page.getByRole('region', { name: 'Values of the answer' })
    for (const name of ['kind', 'strict', 'plain']) await values.getByRole('columnheader', { name }).waitFor()
    await page.getByLabel('Compare kind with').selectOption('plain')
    const prompts = page.getByRole('region', { name: 'Difference' })
    await prompts.getByText('Be kind.').waitFor()
    if (await prompts.getByText('Be strict.').count()) throw new Error('the prompt of another job is shown')
    if (!page.url().endsWith(`&prompt=${plain}`)) throw new Error(`the address is ${page.url()}`)
  })

  await step('jobs with different inputs have a warning, and unnamed jobs the name of their model', async (page) => {
    const own = async (model, text) => ended((await api('POST', '/v1/batch-inference', { model, inputs: ['the same', text] })).results)
    const [a, b] = [await own(model, 'a first text'), await own(other, 'another text')]
    await page.goto(at(`jobs/compare?jobs=${a.job_id},${b.job_id}`))
    await logIn(page)
    const note = page.getByRole('note').filter({ hasText: 'The inputs of these jobs differ in 1 of 2 rows.' })
    await note.waitFor()
    const heads = page.getByRole('region', { name: 'Rows', exact: true }).getByRole('columnheader')
    await heads.first().waitFor()
    if ((await note.boundingBox()).y > (await page.getByRole('region', { name: 'Jobs', exact: true }).boundingBox()).y) throw new Error('the warning is below the jobs')
    if (await page.getByRole('heading', { name: 'Agreement' }).count()) throw new Error('free texts have a card of agreement')
    await page.getByText(`“${model}”, “${other}”`, { exact: true }).waitFor()
    if ((await heads.allTextContents()).join() !== `Row,Input,${model},${other}`) throw new Error(`the columns are ${await heads.allTextContents()}`)
    await check(page, 'a comparison of different inputs')
  })

  await step('a job offers jobs to compare it with', async (page) => {
    await page.goto(at(`jobs/${jobs[0]}`))
    await logIn(page)
    await page.getByRole('button', { name: 'Compare with…' }).click()
    const offered = page.getByRole('dialog').getByRole('link')
    await offered.first().waitFor()
    await check(page, 'jobs to compare with')
    if ((await offered.allTextContents()).join() !== 'plain,strict') throw new Error(`offered: ${await offered.allTextContents()}`)
    await page.getByRole('heading', { name: 'Jobs with the same number of rows; the inputs may differ' }).waitFor()
    if (await page.getByRole('heading', { name: 'Jobs with the same input' }).count()) throw new Error('jobs with their own rows are on the same input')
    await offered.last().click()
    await page.getByRole('paragraph').filter({ hasText: `${equal} of 12 rows ${equal === 1 ? 'is' : 'are'} equal (` }).waitFor()
    const again = (await api('POST', '/v1/batch-inference', { model, inputs: `job:${jobs[1]}`, name: 'again' })).results
    await ended(again)
    await page.goto(at(`jobs/${again}`))
    await page.getByRole('button', { name: 'Compare with…' }).click()
    await page.getByRole('region', { name: 'Jobs with the same input' }).getByRole('link', { name: 'strict' }).waitFor()
    await page.keyboard.press('Escape')
    await page.getByRole('link', { name: 'Compare with strict' }).click()
    await page.waitForURL(`**/compare?jobs=${jobs[1]},${again}`) // the older job comes first
    await settle(page)
  })

  await step('a job with a limit is compared with a job on the whole input', async (page) => {
    const some = (await api('POST', '/v1/batch-inference', { model, inputs: `job:${jobs[0]}`, name: 'some', limit: 4, sample: 'random', sampling_params: { seed: 3, temperature: 0 } })).results
    await ended(some)
    await page.goto(at(`jobs/${jobs[0]}`))
    await logIn(page)
    await page.getByRole('button', { name: 'Compare with…' }).click()
    await page.getByRole('region', { name: 'Jobs with the same input' }).getByRole('link', { name: 'some' }).click()
    await page.getByRole('note').filter({ hasText: 'Compares the 4 rows that both jobs have.' }).waitFor()
    await page.getByLabel('Only different rows').uncheck()
    await page.getByText('All 4 rows shown.').waitFor()
    if (await page.getByText('inputs differ').count()) throw new Error('a row is beside another row')
    if (await page.getByRole('link', { name: 'Download Parquet' }).count()) throw new Error('jobs with different rows have one file')
  })
}
