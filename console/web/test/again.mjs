// Jobs that run again with changes in New job.
import { api, at, check, ended, logIn, step } from './drive.mjs'
import { jobOf, same } from './newjob.mjs'

export async function runAgain({ model }) {
  await step('a job whose URL could not be read runs again with this URL and its columns', async (page) => {
    await page.goto(at('jobs'))
    await logIn(page)
    const again = async (inputs) => {
      const { results: id } = await api('POST', '/v1/batch-inference', { model, inputs, column_name: 'body', id_column_name: 'sku', name: 'no server' })
      same((await ended(id)).status, 'failed', 'the job')
      await page.goto(at(`jobs/${id}`))
      await page.getByRole('link', { name: 'Run again with changes' }).click()
      return page.getByLabel('URL of a file').inputValue()
    }
    same(await again('http://127.0.0.1:9/tickets.csv'), 'http://127.0.0.1:9/tickets.csv', 'the URL')
    same([await page.getByLabel('Prompt column').inputValue(), await page.getByLabel('ID column').inputValue()], ['body', 'sku'], 'the columns')
    same(await again('http://127.0.0.1:9/secret/tickets.csv?signature=x'), '', 'a URL with a secret')
    await page.getByText('was http://127.0.0.1:9/…/tickets.csv?…. The hidden parts may be secrets.').waitFor()
    await check(page, 'a new job whose URL has secrets')
  })

  await step('the settings of another job do not replace a draft', async (page) => {
    const { results: id } = await api('POST', '/v1/batch-inference', { model, inputs: ['Bern'], system_prompt: 'Be brief.' })
    await ended(id)
    await page.goto(at('jobs/new'))
    await logIn(page)
    await page.getByLabel('One row per line').fill('my own row')
    await page.goto(at(`jobs/${id}`))
    const again = page.getByRole('link', { name: 'Run again with changes' })
    const system = page.getByLabel('System prompt')
    const left = page.getByText('The form is as you left it.')
    await again.click()
    await page.getByText('The 1 stored row of').waitFor()
    same([await system.inputValue(), await left.count()], ['Be brief.', 0], 'the form of the job')
    await page.getByRole('heading', { name: /^Run again: / }).waitFor()
    await page.getByText('The settings are equal to the settings of the job.').waitFor()
    if (await page.getByLabel('Sampling parameters').isVisible()) throw new Error('defaults of the model are settings of the job')
    await system.fill('Be long.')
    await page.getByText('You changed: System prompt.').waitFor()
    await page.getByRole('link', { name: 'New job', exact: true }).click()
    await page.waitForURL(/jobs\/new$/)
    same([await page.getByLabel('One row per line').inputValue(), await system.inputValue()], ['my own row', ''], 'the draft')
    await page.goto(at(`jobs/${id}`))
    await again.click()
    await left.waitFor()
    same(await system.inputValue(), 'Be long.', 'the changed form')
    await check(page, 'a form with earlier changes')
    await page.getByRole('button', { name: 'Undo my changes' }).click()
    same([await system.inputValue(), await left.count()], ['Be brief.', 0], 'the form after the undo')
  })

  await step('another run of a job keeps its limit and its reuse, and counts up the name', async (page) => {
    const inputs = Array.from({ length: 9 }, (_, i) => `Lake ${i}`)
    const name = 'lakes, with a name as long as a name may be'
    const make = async (more) => (await ended((await api('POST', '/v1/batch-inference', { model, inputs, name, ...more })).results)).job_id
    const again = async (id) => {
      await page.goto(at(`jobs/${id}`))
      await page.getByRole('link', { name: 'Run again with changes' }).click()
      await page.getByText('9 stored rows').waitFor()
    }
    const all = await make({})
    await page.goto(at('jobs'))
    await logIn(page)
    await again(await make({ limit: 4, sample: 'random', name: 'some lakes (2)' }))
    same([await page.getByLabel('Rows to run').inputValue(), await page.getByLabel('Which rows').inputValue(), await page.getByLabel('Name', { exact: true }).inputValue()], ['4', 'random', 'some lakes (3)'], 'the form')
    await page.getByRole('button', { name: 'Submit 4 rows' }).click()
    const some = await ended(await jobOf(page))
    same([some.num_rows, some.input_rows, some.sample, some.name], [4, 9, 'random', 'some lakes (3)'], 'the job with a limit')
    await again(await make({ reuse: { from: all } }))
    await page.getByLabel(`Reuse the answers of ${all} to equal rows`).waitFor()
    await page.getByRole('button', { name: 'Submit 9 rows' }).click()
    const reused = await ended(await jobOf(page))
    same([reused.reuse.from, reused.rows_taken_over, reused.name], [all, 9, 'lakes, with a name as long as a name may (2)'], 'the job that reuses answers')
  })
}
