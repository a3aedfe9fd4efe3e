// The requests of New job: rows of the form, of files, and of the snippets.
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { api, at, base, check, chooseModel, ended, key, logIn, step } from './drive.mjs'

const run = promisify(execFile)

// Rows with special characters for a shell, for Python or for readers of tables.
const hard = [
  'It\'s "quoted", \'twice\' and `once`.',
  '$HOME ${PATH} $(echo run) $((1+1)) \\$HOME !!',
  'back\\slash \\n \\\\\\\\ \\u0041 \\',
  'END',
  '"""',
  "'''",
  'a tab\there, ; and | and #',
  'Grüße, 東京, 🚂, e\u0301, \u200b, \u2028',
  '  spaces around  ',
  '%s %d %%',
  '-n',
]
const rows = [...hard, ...Array.from({ length: 30 }, (_, i) => `Count to ${i}.`)]

// inputsOf returns the rows of a job after its end.
async function inputsOf(id) {
  const job = await ended(id)
  if (job.status !== 'succeeded') throw new Error(`job ${id} is ${job.status}: ${JSON.stringify(job.failure_reason)}`)
  return (await api('POST', '/v1/job-results', { job_id: id, include_inputs: true })).results.inputs
}

export function same(got, want, of) {
  if (JSON.stringify(got) !== JSON.stringify(want)) throw new Error(`${of}: the job has ${JSON.stringify(got)}, want ${JSON.stringify(want)}`)
}

// jobOf returns the id of the job on the page.
export async function jobOf(page) {
  await page.waitForURL(/\/jobs\/job-/)
  return page.url().match(/job-[0-9a-f-]+/)[0]
}

// sentBy runs the snippet of a tab in its program and returns the new job.
async function sentBy(page, tab, program) {
  if (!(await page.getByRole('tab', { name: tab }).isVisible())) await page.getByText('Use the API').click()
  await page.getByRole('tab', { name: tab }).click()
  const snippet = await page.getByRole('region', { name: tab, exact: true }).textContent()
  const { stdout } = await run(program, ['-c', snippet], { env: { ...process.env, ROWMILL_API_KEY: key } })
  const id = stdout.match(/job-[0-9a-f-]+/)?.[0]
  if (!id) throw new Error(`${tab}: it printed ${stdout}`)
  return id
}

export async function newJob({ model }) {
  await step('the snippets send exactly the rows of the form', async (page) => {
    const system = 'Answer "$USER"\nin one \'line\':\nEND\n\\'
    const name = 'it\'s "$named" \\'
    await page.goto(at('jobs/new'))
    await logIn(page)
    await page.getByLabel('One row per line').fill(rows.join('\n'))
    await chooseModel(page, model)
    await page.getByLabel('System prompt').fill(system)
    await page.getByLabel('Name', { exact: true }).fill(name)
    const form = page.getByRole('button', { name: `Submit ${rows.length} rows` })
    await form.waitFor()
    for (const [tab, program] of [['curl', 'bash'], ['Python', 'python3']]) {
      const id = await sentBy(page, tab, program)
      same(await inputsOf(id), rows, tab)
      const { job } = await api('GET', `/v1/jobs/${id}`)
      same([job.name, job.system_prompt], [name, system], tab)
    }
    await form.click()
    same(await inputsOf(await jobOf(page)), rows, 'the form')
  })

  await step('an account without jobs is shown three ways to the first job', async (page) => {
    const starter = await api('POST', '/v1/keys', { name: 'starter', role: 'user', account: 'starter' })
    await page.goto(at(''))
    await logIn(page, starter.key)
    same(await page.getByRole('region', { name: 'Address' }).textContent(), new URL('/v1', base).href, 'the base URL')
    await page.getByRole('button', { name: 'Copy address' }).click()
    same((await page.getByRole('region', { name: 'Code' }).textContent()).split('\n').length, 3, 'lines of Python')
    await check(page, 'an overview without jobs')
    await page.getByRole('link', { name: 'Upload a file' }).click()
    await page.locator('input[type=file]').waitFor()
    await page.goBack()
    await page.getByRole('link', { name: 'Run an example job' }).click()
    await page.getByRole('button', { name: 'Submit 10 rows' }).click()
    const { job } = await api('GET', `/v1/jobs/${await jobOf(page)}`, undefined, starter.key)
    same([job.num_rows, job.name], [10, 'Sample reviews'], 'the sample')
    await page.locator('.now .status', { hasText: 'succeeded' }).waitFor()
    await page.getByRole('link', { name: 'Overview' }).click()
    await page.getByText('No job runs or waits.').waitFor()
    if (await page.getByText('You have no jobs yet.').count()) throw new Error('a job is there, and the page does not know it')
    await page.goto('about:blank') // the page asks no more with the key
    await api('DELETE', `/v1/keys/${starter.id}`)
  })

  await step('a stored file shows its columns, also after a job that could not read it', async (page) => {
    const form = new FormData()
    form.set('purpose', 'user_data')
    form.set('file', new Blob(['id,review\n1,A long and kind review.\n2,Short.\n']), 'stored.csv')
    const sent = await fetch(new URL('/v1/files', base), { method: 'POST', headers: { Authorization: `Key ${key}` }, body: form })
    const { id } = await sent.json()
    await page.goto(at(`jobs/new?file=${id}`))
    await logIn(page)
    await page.getByText('The first of its 2 rows:').waitFor()
    same(await page.getByLabel('Prompt column').inputValue(), 'review', 'the column')
    same(await page.getByLabel('Name', { exact: true }).inputValue(), 'stored.csv', 'the name')
    const { results: failed } = await api('POST', '/v1/batch-inference', { model, inputs: `file:${id}`, column_name: 'none', name: 'wrong column', limit: 1 })
    same((await ended(failed)).status, 'failed', 'the job')
    await page.goto(at(`jobs/${failed}`))
    await page.getByRole('link', { name: 'Run again with changes' }).click()
    await page.getByText('The first of its 2 rows:').waitFor()
    same(await page.getByLabel('Prompt column').inputValue(), 'review', 'the column of a job that named a wrong one')
    same(await page.getByLabel('Rows to run').inputValue(), '1', 'the limit')
    await check(page, 'a new job on the file of another')
    await page.getByLabel('Or choose an uploaded file').selectOption('')
    await page.getByText('ended before it read its input. Choose the rows again.').waitFor()
    await page.getByLabel('Or choose an uploaded file').selectOption(id)
    await page.getByText('The first of its 2 rows:').waitFor()
  })

  await step('a submission whose answer was lost makes no second job', async (page) => {
    await page.goto(at('jobs/new'))
    await logIn(page)
    await page.getByLabel('One row per line').fill('once')
    await chooseModel(page, model)
    let first
    const lose = async (route) => {
      first = (await (await route.fetch()).json()).results
      await route.abort('failed')
    }
    await page.route('**/v1/batch-inference', lose, { times: 1 })
    const form = page.getByRole('button', { name: 'Submit 1 row' })
    await form.click()
    await page.getByText('The node cannot be reached.').waitFor()
    await form.click()
    same(await jobOf(page), first, 'the second click')
  }, /\/v1\/(me|batch-inference)$/)

  await step('five rows are tested twice, and the full run keeps their answers', async (page) => {
    const inputs = Array.from({ length: 12 }, (_, i) => `Town ${i}`)
    await page.goto(at('jobs/new'))
    await logIn(page)
    await page.getByLabel('One row per line').fill(inputs.join('\n'))
    await chooseModel(page, model)
    await page.getByLabel('Name', { exact: true }).fill('towns')
    const tryIt = page.getByRole('button', { name: 'Test 5 rows' })
    const answers = page.getByRole('region', { name: 'Answers of the test run' }).getByRole('row')
    const all = page.getByRole('button', { name: 'Run all 12 rows' })
    await tryIt.click()
    await all.waitFor()
    if (await page.getByRole('button', { name: /^Submit/ }).count()) throw new Error('two buttons run the rows')
    same((await answers.allTextContents()).length, 6, 'the head and the rows of the test run')
    await answers.filter({ hasText: 'Town 4' }).filter({ hasText: 'simulated' }).waitFor()
    await page.getByLabel('System prompt').fill('In French.')
    await page.getByText('The form has changed since this test run.').waitFor()
    if (await all.isVisible()) throw new Error('a run of other settings can reuse the answers')
    await page.getByRole('button', { name: 'Submit 12 rows' }).waitFor()
    await tryIt.click()
    await page.getByLabel('Test runs').waitFor()
    await all.waitFor()
    await page.getByRole('columnheader', { name: 'Answer of test run 1' }).waitFor()
    await check(page, 'New job with test runs')
    await page.setViewportSize({ width: 390, height: 844 })
    await check(page, 'New job with test runs on a phone')
    await page.setViewportSize({ width: 1280, height: 860 })
    await page.getByLabel('Test runs').selectOption('Test run 1')
    await page.getByRole('button', { name: 'Restore these settings' }).click()
    if ((await page.getByLabel('System prompt').inputValue()) !== '') throw new Error('the settings of the first test run did not return')
    await all.click()
    const id = await jobOf(page)
    same(await inputsOf(id), inputs, 'the full run')
    const { job } = await api('GET', `/v1/jobs/${id}`)
    same([job.name, job.rows_taken_over, job.system_prompt], ['towns', 5, null], 'name, rows of the test run, and system prompt')
  })

  await step('answers with a JSON Schema have columns, beside the values of the test run before', async (page) => {
    await page.goto(at('jobs/new'))
    await logIn(page)
    await page.getByLabel('One row per line').fill('Bern\nRome\nOslo\nRiga\nGent\nNice')
    await chooseModel(page, model)
    await page.getByLabel('JSON Schema of the answers').fill('{"type": "object", "properties": {"score": {"type": "integer", "minimum": 0, "maximum": 100000}}, "required": ["score"]}')
    const cells = page.getByRole('region', { name: 'Answers of the test run' }).locator('td[data-name=score]')
    const values = async () => (await cells.allTextContents()).map((t) => t.split(' ').at(-1))
    await page.getByRole('button', { name: 'Test 5 rows' }).click()
    await page.getByRole('button', { name: 'Run all 6 rows' }).waitFor()
    await page.getByRole('columnheader', { name: 'score' }).waitFor()
    const first = await values()
    await page.getByLabel('System prompt').fill('Be strict.')
    await page.getByRole('button', { name: 'Test 5 rows' }).click()
    await page.getByText(/^\d of 5 answers differs? from test run 1\. A value that is struck through is from test run 1\.$/).waitFor()
    await cells.locator('del').first().waitFor()
    const second = await values()
    const changed = first.filter((v, i) => v !== second[i])
    same(await cells.locator('del').allTextContents(), changed, 'the values of the test run before')
    await check(page, 'New job with answers in columns')
  })

  await step('a test run of all rows is opened, and a cleared form comes back', async (page) => {
    await page.goto(at('jobs/new'))
    await logIn(page)
    const rows = page.getByLabel('One row per line')
    await rows.fill('Bern\nRome')
    await chooseModel(page, model)
    await page.getByRole('button', { name: 'Test 5 rows' }).click()
    await page.getByText('The test run has run all rows').waitFor()
    await page.getByRole('button', { name: 'Clear the form' }).click()
    same(await rows.inputValue(), '', 'the cleared form')
    await page.getByRole('button', { name: 'Undo clear' }).click()
    same(await rows.inputValue(), 'Bern\nRome', 'the form after the undo')
    await page.getByRole('button', { name: 'Clear the form' }).click()
    await rows.fill('Oslo')
    await page.getByRole('button', { name: 'Clear the form' }).waitFor() // an undo would now lose the new rows
  })

  await step('an error of the JSON Schema is at its field, which has the focus', async (page) => {
    await page.goto(at('jobs/new'))
    await logIn(page)
    await page.getByLabel('One row per line').fill('Bern')
    await chooseModel(page, model)
    const schema = page.getByLabel('JSON Schema of the answers')
    const submit = page.getByRole('button', { name: 'Submit 1 row' })
    const focused = () => schema.evaluate((e) => e === document.activeElement && e.getAttribute('aria-invalid') === 'true')
    for (const [text, why] of [['{"type": ', /^This text is not JSON\. /], ['[]', 'A JSON Schema is a JSON object.']]) {
      await schema.fill(text)
      await page.getByText(why).waitFor()
      if (await submit.isEnabled()) throw new Error(`a job with the schema ${text} can be submitted`)
    }
    await schema.fill('{"type": "nonsense"}')
    await submit.click()
    await page.waitForFunction(() => document.activeElement?.getAttribute('aria-invalid') === 'true')
    if (!(await focused())) throw new Error('another field has the focus')
    const why = page.getByText(/^It is not a valid JSON Schema: /)
    await why.waitFor()
    const [{ y, height }, bar] = [await why.boundingBox(), await page.locator('.foot').boundingBox()]
    if (y < 52 || y + height > bar.y) throw new Error(`the message is at ${y}, behind the buttons at ${bar.y}`)
    if (await submit.isEnabled()) throw new Error('a refused schema can be submitted again')
    await schema.fill('{"type": "nonsense, too"}')
    await page.getByRole('button', { name: 'Test 5 rows' }).click()
    await page.getByText(/^It is not a valid JSON Schema: /).waitFor()
    if ((await page.locator('.problem').count()) || (await page.getByText('The action failed').count())) throw new Error('the error is shown twice')
    await check(page, 'New job with a wrong schema')
    await schema.fill('{"type": "object"}')
    await page.waitForFunction(() => !document.querySelector('form [aria-invalid=true]'))
  }, /\/v1\/(me|batch-inference)$/)

  await step('a draft survives leaving, a reload and the end of the session', async (page) => {
    await page.goto(at('jobs/new'))
    await logIn(page)
    const rows = page.getByLabel('One row per line')
    const kept = async (after) => same([await rows.inputValue(), await page.getByLabel('Name', { exact: true }).inputValue()], ['a\nb', 'draft'], after)
    await rows.fill('a\nb')
    await page.getByLabel('Name', { exact: true }).fill('draft')
    await page.getByRole('link', { name: 'Jobs', exact: true }).click()
    await page.getByRole('link', { name: 'New job' }).first().click()
    await kept('leaving')
    await page.reload()
    await kept('a reload')
    await page.context().clearCookies()
    await page.getByRole('button', { name: 'Submit 2 rows' }).click()
    await logIn(page)
    await kept('a new login')
    await page.getByRole('button', { name: 'Submit 2 rows' }).click()
    await jobOf(page)
    await page.getByRole('link', { name: 'New job' }).first().click()
    same(await rows.inputValue(), '', 'the form after the submission')
    await rows.fill('secret')
    await page.getByRole('button', { name: 'Log out' }).click()
    await logIn(page)
    await page.goto(at('jobs/new'))
    same(await rows.inputValue(), '', 'the form of the next user')
  }, /\/v1\/(me|batch-inference|events)/)

  await step('the snippets send exactly the objects of a Function', async (page) => {
    const essays = [...hard, 'two\nlines\r\nand a third']
    await page.goto(at('jobs/new'))
    await logIn(page)
    await chooseModel(page, 'grade')
    await page.getByLabel('One row per line').fill('{"essay": "Good."}\n\n{"easy": "Bad."}')
    await page.getByText('Line 3 has no field "essay".').waitFor()
    await page.getByText('Correct the marked field first.').waitFor()
    await page.getByLabel('One row per line').fill('{"essay": "Good."}\n{"essay')
    await page.getByText('Line 2 begins with { but is not a JSON object.').waitFor()
    await page.getByText('Correct the marked field first.').waitFor()
    await page.getByText('Prompt of the Function').click()
    await page.getByRole('region', { name: 'Prompt', exact: true }).getByText('Grade this from 1 to 6:').waitFor()
    await page.getByLabel('One row per line').fill(essays.map((essay) => JSON.stringify({ essay })).join('\n'))
    const form = page.getByRole('button', { name: `Submit ${essays.length} rows` })
    await form.waitFor()
    const prompts = essays.map((essay) => `Grade this from 1 to 6:\n${essay}`)
    same(await inputsOf(await sentBy(page, 'curl', 'bash')), prompts, 'curl')
    await form.click()
    same(await inputsOf(await jobOf(page)), prompts, 'the form')
  })

  const cells = hard.slice(0, 3)
  const lines = ['id,question', '1,"a, b"', 'a\ttab', ...cells]
  const tables = {
    'rows.tsv': {
      text: 'id\tquestion, in short\tnote\n' + cells.map((cell, i) => `${i}\t"${cell.replaceAll('"', '""')}, in words"\t,\n`).join(''),
      column: 'question, in short',
      rows: cells.map((cell) => `${cell}, in words`),
    },
    'rows.txt': { text: lines.join('\n') + '\n', column: '', rows: lines },
  }
  for (const [name, table] of Object.entries(tables)) {
    for (const way of ['chosen', 'dropped']) {
      await step(`${name} is ${way}, and its rows are sent`, async (page) => {
        await page.goto(at('jobs/new'))
        await logIn(page)
        await page.getByText('Upload', { exact: true }).click()
        if (way === 'chosen') {
          await page.locator('input[type=file]').setInputFiles({ name, mimeType: '', buffer: Buffer.from(table.text) })
        } else {
          const dataTransfer = await page.evaluateHandle(({ name, text }) => {
            const data = new DataTransfer()
            data.items.add(new File([text], name))
            return data
          }, { name, text: table.text })
          await page.dispatchEvent('.drop', 'drop', { dataTransfer })
        }
        await page.getByRole('status').filter({ hasText: name }).filter({ hasText: 'uploaded' }).waitFor()
        const column = await page.getByLabel('Prompt column').inputValue()
        if (column !== table.column) throw new Error(`the column ${column} is chosen`)
        if (column) await page.getByRole('listitem').getByText(table.rows[0], { exact: true }).waitFor()
        await chooseModel(page, model)
        await page.getByRole('button', { name: /^Submit \d[\d,]* rows?$/ }).click()
        same(await inputsOf(await jobOf(page)), table.rows, name)
      })
    }
  }

  await step('the name follows the chosen file until it is edited', async (page) => {
    await page.goto(at('jobs/new'))
    await logIn(page)
    await page.getByText('Upload', { exact: true }).click()
    const name = page.getByLabel('Name', { exact: true })
    const choose = async (file) => {
      await page.locator('input[type=file]').setInputFiles({ name: file, mimeType: 'text/csv', buffer: Buffer.from('text\nHello\n') })
      await page.getByRole('status').filter({ hasText: file }).filter({ hasText: 'uploaded' }).waitFor()
      return name.inputValue()
    }
    same(await choose('ragged.csv'), 'ragged.csv', 'the first file')
    await page.getByText('The first of its 1 row:').waitFor()
    same(await choose('whole.csv'), 'whole.csv', 'the second file')
    await name.fill('my own')
    same(await choose('third.csv'), 'my own', 'a file after an edit')
  })

  await step('a model is found by typing, with the keyboard', async (page) => {
    await page.goto(at('jobs/new'))
    await logIn(page)
    const box = page.getByRole('combobox', { name: 'Model or Function' })
    await page.waitForFunction(() => document.querySelector('input[role=combobox]')?.value)
    await box.fill('no such model')
    await page.getByText('No model and no Function matches.').waitFor()
    await box.fill(model.slice(0, 5).toUpperCase())
    await page.getByRole('option').filter({ hasText: model }).getByText('per million tokens').waitFor()
    await check(page, 'the models of New job')
    await box.fill('rade')
    await page.getByRole('option').filter({ hasText: 'grade' }).waitFor()
    await box.press('ArrowDown')
    await box.press('Enter')
    same(await box.inputValue(), 'grade', 'the chosen Function')
    await page.getByText('A JSON object with essay').waitFor()
  })

  await step('a file is uploaded and its column chosen', async (page) => {
    await page.goto(at('jobs/new'))
    await logIn(page)
    await page.getByText('Upload', { exact: true }).click()
    const csv = 'id,"the ""text"""\n' + Array.from({ length: 50 }, (_, i) => `${i},"row, ${i}"`).join('\n')
    await page.locator('input[type=file]').setInputFiles({ name: 'rows.csv', mimeType: 'text/csv', buffer: Buffer.from(csv) })
    await page.getByText('uploaded', { exact: false }).first().waitFor()
    if ((await page.getByLabel('Prompt column').inputValue()) !== 'the "text"') throw new Error('the column with most text is not chosen')
    await page.getByText('The first of its 50 rows').waitFor()
    await page.getByRole('listitem').getByText('row, 0', { exact: true }).waitFor()
    same(await page.getByLabel('ID column').inputValue(), 'id', 'the ID column')
    await page.getByRole('button', { name: 'Estimate the cost' }).click()
    await page.getByText('Would cost').waitFor()
    const all = page.getByRole('button', { name: /^Run all 50 rows \(≈ \$/ })
    await all.waitFor()
    await page.getByLabel('System prompt').fill('Another prompt.')
    await page.getByText(/^The form has changed since this estimate of \$[\d.]+\.$/).waitFor()
    await page.getByRole('button', { name: 'Estimate again' }).waitFor()
    if (await all.count()) throw new Error('the estimate of an earlier form can run')
    await page.getByLabel('System prompt').fill('')
    await page.getByText('The job keeps the answers of the estimate.').waitFor()
    if ((await page.locator('input[type=file]').boundingBox()).width < 100) throw new Error('beside an estimate, the field for a file is too small')
    await all.click()
    await page.locator('.now .status', { hasText: 'succeeded' }).waitFor()
  })

  await step('a prompt is made from two columns', async (page) => {
    await page.goto(at('jobs/new'))
    await logIn(page)
    await page.getByText('Upload', { exact: true }).click()
    await page.locator('input[type=file]').setInputFiles({ name: 'films.csv', mimeType: 'text/csv', buffer: Buffer.from('film,year\nAlien,1979\n"Up, up",2009\n') })
    await page.getByText('uploaded', { exact: false }).first().waitFor()
    if (await page.getByLabel('Prompt', { exact: true }).count()) throw new Error('the form has a prompt for several columns before a choice')
    await page.getByText('Several columns', { exact: true }).click()
    await page.getByText('Write the prompt first.').waitFor()
    const prompt = page.getByLabel('Prompt', { exact: true })
    await prompt.fill('Is {{ film }} of {{yaer}} good?')
    await page.getByText('The file has no column yaer. Its columns are: film, year.').waitFor()
    await page.getByText('Correct the marked field first.').waitFor()
    if (await page.getByRole('button', { name: /^Submit/ }).isEnabled()) throw new Error('a prompt with an unknown column can be submitted')
    await check(page, 'a prompt with an unknown column')
    await prompt.fill('Is {{ film }} of {{year}} good? {{film}}')
    await page.getByText('The file has no column').waitFor({ state: 'detached' })
    await page.reload()
    await page.getByText('The file films.csv is uploaded already.').waitFor()
    const rows = ['Is Alien of 1979 good? Alien', 'Is Up, up of 2009 good? Up, up']
    await page.getByRole('listitem').getByText(rows[1], { exact: true }).waitFor()
    if (await page.getByLabel('Prompt column').count()) throw new Error('a column of the prompts can still be chosen')
    await page.getByRole('button', { name: /^Submit \d[\d,]* rows?$/ }).click()
    same(await inputsOf(await jobOf(page)), rows, 'prompts')
    await page.getByLabel('Prompt', { exact: true }).getByText('Is {{ film }} of {{year}} good? {{film}}').waitFor()
  })

  await step('a few rows are run first, with the columns of the file', async (page) => {
    await page.goto(at('jobs/new'))
    await logIn(page)
    await page.getByText('Upload', { exact: true }).click()
    await page.locator('input[type=file]').setInputFiles({ name: 'towns.csv', mimeType: 'text/csv', buffer: Buffer.from('town,country\nBergen,Norway\nPorto,Portugal\nLyon,France\n') })
    await page.getByText('uploaded', { exact: false }).first().waitFor()
    await page.getByLabel('Prompt column').selectOption('town')
    await page.getByLabel('Rows to run').fill('2')
    await page.getByText('Copy the other columns of the file').click()
    await page.getByRole('button', { name: /^Submit \d[\d,]* rows?$/ }).click()
    await page.locator('.now .status', { hasText: 'succeeded' }).waitFor()
    const tableOf = async (id) => {
      await ended(id)
      const link = await page.getByRole('link', { name: 'JSON', exact: true }).getAttribute('href')
      const { town, country } = await page.evaluate(async (link) => (await fetch(link)).json(), link)
      return { town, country }
    }
    const sample = await jobOf(page)
    same(await tableOf(sample), { town: ['Bergen', 'Porto'], country: ['Norway', 'Portugal'] }, 'the sample')
    const other = page.getByRole('button', { name: 'Run the other row', exact: true })
    await other.click()
    await page.waitForURL((url) => !url.href.includes(sample))
    await page.locator('.now .status', { hasText: 'succeeded' }).waitFor()
    same(await tableOf(await jobOf(page)), { town: ['Bergen', 'Porto', 'Lyon'], country: ['Norway', 'Portugal', 'France'] }, 'the whole')
    await page.getByRole('heading', { name: 'towns.csv (2)', exact: true }).waitFor()
    await page.goto(at(`jobs/${sample}`))
    await other.click()
    await page.getByRole('dialog').getByRole('link', { name: 'towns.csv (2)' }).waitFor()
    await check(page, 'another run of the other rows')
    await page.getByRole('button', { name: 'Run the other row once more' }).click()
    await page.waitForURL((url) => !url.href.includes(sample))
  })

  await step('the form says before the submission that a quota is exceeded', async (page) => {
    await page.goto(at('jobs/new'))
    await logIn(page)
    await page.getByLabel('One row per line').fill('row\n'.repeat(1001))
    await page.getByText('More settings', { exact: true }).click()
    await page.getByLabel('Priority').selectOption('0')
    await page.getByText('1,001 rows are more than the 1,000 rows of a job of priority 0').waitFor()
    await page.getByLabel('Priority').selectOption('1')
    await page.getByText('are more than').waitFor({ state: 'detached' })
  })

  await step('a file of more rows than priority 0 takes gets priority 1', async (page) => {
    await page.goto(at('jobs/new'))
    await logIn(page)
    await page.getByText('Upload', { exact: true }).click()
    const csv = 'text\n' + Array.from({ length: 1500 }, (_, i) => `row ${i}`).join('\n')
    await page.locator('input[type=file]').setInputFiles({ name: 'large.csv', mimeType: 'text/csv', buffer: Buffer.from(csv) })
    await page.getByText('The first of its 1,500 rows').waitFor()
    await page.getByRole('button', { name: /^Submit \d[\d,]* rows?$/ }).click()
    await page.getByRole('heading', { name: 'large.csv' }).waitFor()
    await page.locator('.now .status', { hasText: 'succeeded' }).waitFor()
  })

  await step('a deadline that has passed is refused at its field, and a job with a deadline shows its forecast', async (page) => {
    await page.goto(at('jobs/new'))
    await logIn(page)
    await page.getByLabel('One row per line').fill('row\n'.repeat(200))
    await page.getByText('More settings', { exact: true }).click()
    const deadline = page.getByLabel('Deadline', { exact: true })
    await deadline.fill('2001-01-01T06:00')
    await page.getByLabel('Create the job only if the forecast meets the deadline').check()
    await page.getByRole('button', { name: 'Submit 200 rows' }).click()
    await page.getByText('It has passed; send a time in the future').waitFor()
    await check(page, 'New job with a deadline that has passed')
    await deadline.fill('2999-11-27T06:00')
    await page.getByRole('button', { name: 'Submit 200 rows' }).click()
    const job = await ended(await jobOf(page))
    same([job.status, job.forecast.met, job.rows_taken_over, job.deadline], ['succeeded', true, 100, new Date('2999-11-27T06:00').toISOString().replace('.000', '')], 'the job with a deadline')
    await page.getByText(/^Deadline 27 Nov 2999, 06:00:00, forecast \d/).waitFor()
  }, /\/v1\/(me|batch-inference)$/)
}
