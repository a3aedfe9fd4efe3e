// The pages of operators, and the keys of all pages.
import { api, at, check, logIn, step } from './drive.mjs'

export async function service({ job, failed }) {
  await step('the tile of a GPU says what its node does, and why the GPU is idle', async (page) => {
    const gpu = (index, utilization) => ({
      index, name: 'NVIDIA H100', uuid: `GPU-${index}`, memory_total_bytes: 80 * 2 ** 30, memory_used_bytes: 60 * 2 ** 30, utilization, power_watts: 300, temperature_celsius: 60,
    })
    let gpus = []
    await page.route('**/v1/gpus', (route) => route.fulfill({ json: { nodes: gpus } }))
    await page.route('**/v1/engines', async (route) => {
      const answer = await (await route.fetch()).json()
      const [first] = answer.engines
      gpus = [{ node: first.node, problem: null, gpus: [gpu(0, 0.9), gpu(1, 0)] }, { node: 'node-9', problem: 'nvidia-smi cannot be read: exit status 9: NVIDIA-SMI has failed', gpus: [gpu(2, 0)] }]
      const down = { ...first, node: 'node-9', name: 'vllm', state: 'down', last_error: 'Get "http://127.0.0.1:1/v1/models": dial tcp 127.0.0.1:1: connect: connection refused' }
      await route.fulfill({ json: { ...answer, engines: [{ ...first, in_flight: 0 }, down] } })
    })
    await page.goto(at('engines'))
    await logIn(page)
    const tiles = page.getByRole('list', { name: 'GPUs' }).getByRole('listitem')
    await tiles.filter({ hasText: 'GPU 0' }).getByText('90 %').waitFor()
    await tiles.filter({ hasText: 'GPU 1' }).getByText(/^Idle: no (job runs or waits|rows wait for its models)\.$/).waitFor()
    await tiles.filter({ hasText: 'GPU 2' }).getByText('vllm is down. Connection refused by 127.0.0.1:1. Is the server running?').waitFor()
    const problem = page.locator('.warning', { hasText: 'node-9: nvidia-smi cannot be read.' })
    if (await problem.getByText('exit status 9').isVisible()) throw new Error('the cause is shown before a click')
    await problem.getByText('Full message').click()
    await problem.getByText('nvidia-smi cannot be read: exit status 9: NVIDIA-SMI has failed').waitFor()
    if (await tiles.filter({ hasText: 'GPU 0' }).getByText('Idle:').count()) throw new Error('a busy GPU is idle')
    await check(page, 'GPUs')
    await page.unrouteAll({ behavior: 'wait' })
  })

  await step('Ctrl-K goes to pages, jobs and rows', async (page) => {
    await page.goto(at(''))
    await logIn(page)
    const find = async (text) => {
      await page.keyboard.press('Control+k')
      await page.getByRole('combobox', { name: 'Page, action, Function, job or row' }).fill(text)
    }
    await find('quo')
    await page.getByRole('listbox', { name: 'Places' }).getByRole('option', { name: 'Quotas' }).waitFor()
    await check(page, 'Go to')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Quotas' }).first().waitFor()
    await find('new f')
    await page.getByRole('option', { name: 'New Function' }).waitFor()
    await page.keyboard.press('Escape')
    await find('grad')
    await page.getByRole('option', { name: 'grade', exact: true }).waitFor()
    await page.keyboard.press('Enter')
    await page.waitForURL((url) => url.pathname.endsWith('/functions/grade'))
    await find(job)
    await page.getByRole('option', { name: new RegExp(`^towns succeeded (just now|.* ago) …${job.slice(-12)}$`) }).waitFor()
    await page.keyboard.press('Enter')
    await page.waitForURL((url) => url.pathname.endsWith(`/jobs/${job}`))
    await find(`${job}#47`)
    await page.getByRole('option', { name: /row 47/ }).click()
    await page.getByRole('dialog', { name: 'Row 47' }).waitFor()
    await page.keyboard.press('Escape')
    await find('no such place')
    await page.getByText('Nothing matches this text.').waitFor()
    await page.keyboard.press('Escape')
    const places = page.getByRole('listbox', { name: 'Places' }).getByRole('option')
    for (const [text, name] of [['failed jobs', 'Failed jobs'], ['waiting', 'Running and waiting jobs'], ['this job', 'Failed rows of this job'], ['log out', 'Log out']]) {
      await find(text)
      await page.getByRole('option', { name, exact: true }).waitFor()
      await page.keyboard.press('Escape')
    }
    await find('delete')
    await page.getByRole('option', { name: 'Delete the data of a job: choose a job' }).waitFor()
    await page.getByRole('option', { name: 'Delete data', exact: true }).click()
    await page.waitForFunction(() => document.activeElement.textContent === 'Delete data')
    await find('retry')
    await page.getByRole('option', { name: 'Retry failed rows: choose a job' }).waitFor()
    await page.keyboard.press('Escape')
    await find('quotas of newc')
    await page.getByRole('option', { name: 'Quotas of newcomer' }).click()
    await page.waitForURL(/quotas\?account=newcomer$/)
    const { jobs: [newest] } = await api('GET', '/v1/list-jobs?limit=1')
    await find('')
    await places.first().filter({ hasText: newest.job_id.slice(-12) }).waitFor()
    for (let i = 0; i < 14; i++) await page.keyboard.press('ArrowDown')
    const isVisible = () => page.locator('.places').evaluate((list) => {
      const [box, option] = [list, list.querySelector('[aria-selected=true]')].map((e) => e.getBoundingClientRect())
      return option.top >= box.top && option.bottom <= box.bottom
    })
    if (!(await isVisible())) throw new Error('the selected place is outside the visible part of the list')
    await page.keyboard.press('Escape')
    let answerSearch
    await page.route('**/v1/list-jobs?limit=50&q=slow%20search', (route) => { answerSearch = () => route.fulfill({ json: { jobs: [], next_cursor: null, scanned_all: true } }) })
    await find('slow search')
    await page.getByText('Searching…').waitFor()
    if (await page.getByText('Nothing matches this text.').count()) throw new Error('the palette says that nothing matches while it searches')
    for (let i = 0; i < 100 && !answerSearch; i++) await page.waitForTimeout(100)
    if (await page.getByText('Nothing matches this text.').count()) throw new Error('the palette says that nothing matches before the answer')
    await answerSearch()
    await page.getByText('Nothing matches this text.').waitFor()
    await page.keyboard.press('Escape')
    await page.route('**/v1/list-jobs?limit=50&q=many', async (route) => {
      const { job: one } = await api('GET', `/v1/jobs/${job}`)
      const jobs = Array.from({ length: 11 }, (_, i) => ({ ...one, name: `many ${i}`, job_id: `${one.job_id.slice(0, -2)}${10 + i}` }))
      await route.fulfill({ json: { jobs, next_cursor: null, scanned_all: true } })
    })
    await find('many')
    await page.getByText('3 more jobs match. Type more of the name.').waitFor()
    if ((await places.count()) !== 8) throw new Error('the palette shows more than 8 jobs')
    await page.unrouteAll({ behavior: 'wait' })
    await page.keyboard.press('Escape')
    await page.keyboard.press('?')
    await page.getByRole('dialog', { name: 'Keys' }).waitFor()
    await page.keyboard.press('Escape')
  })

  await step('/, j and k reach the search and the entries of a list', async (page) => {
    await page.goto(at(`jobs/${failed}/rows`))
    await logIn(page)
    const list = page.getByRole('region', { name: 'Rows' })
    await list.getByRole('button', { disabled: false }).nth(2).waitFor() // a row is disabled until it is loaded
    const focused = () => page.evaluate(() => document.activeElement.textContent)
    await page.keyboard.press('j')
    await page.keyboard.press('j')
    if (!(await focused()).startsWith('1')) throw new Error(`after j, j the focus is on ${await focused()}`)
    await page.keyboard.press('k')
    if (!(await focused()).startsWith('0')) throw new Error(`after k the focus is on ${await focused()}`)
    await page.keyboard.press('/')
    await page.keyboard.type('jk')
    if ((await page.getByLabel('Search in inputs and answers').inputValue()) !== 'jk') throw new Error('keys in a field move the focus')
    await page.goto(at('jobs'))
    await page.getByRole('row', { name: /towns/ }).first().waitFor()
    await page.keyboard.press('j')
    await page.keyboard.press('Enter')
    await page.waitForURL(/\/jobs\/job-/)
  })
}
