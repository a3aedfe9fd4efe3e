// Actions of users in the console, and events that may happen meanwhile.
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { api, at, base, check, chooseModel, ended, launch, logIn, settle, step } from './drive.mjs'

export async function scenarios({ job, model, team, ofTeam, reader }) {
  await step('a job is submitted and followed to its end without a reload', async (page) => {
    await page.goto(at('jobs/new'))
    await logIn(page)
    await page.getByLabel('One row per line').fill(Array.from({ length: 800 }, (_, i) => `Count to ${i}.`).join('\n'))
    await chooseModel(page, model)
    await page.getByLabel('Name', { exact: true }).fill('followed')
    await page.getByRole('button', { name: 'Submit 800 rows' }).click()
    await page.getByRole('heading', { name: 'followed' }).waitFor()
    let loads = 0
    page.on('load', () => loads++)
    await page.locator('.now .big', { hasText: /^100 %$/ }).waitFor({ timeout: 60_000 })
    await page.locator('.now .status', { hasText: 'succeeded' }).waitFor()
    if (loads) throw new Error('the page was loaded again')
    await page.getByRole('link', { name: 'Parquet' }).waitFor()
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name: 'JSON', exact: true }).click()])
    if (JSON.parse(readFileSync(await download.path(), 'utf8')).outputs.length !== 800) throw new Error('the download lacks rows')
    if (download.suggestedFilename() !== 'followed-results.json') throw new Error(`the file is called ${download.suggestedFilename()}`)
  })

  await step('a hostile row is text', async (page) => {
    await page.goto(at(`jobs/${job}/rows`))
    await logIn(page)
    await page.getByRole('button', { name: /onerror/ }).click()
    await page.getByRole('region', { name: 'Input' }).getByText('<img src=x').waitFor()
    await page.waitForTimeout(300)
    if (await page.evaluate(() => globalThis.hit)) throw new Error('a row was run')
    if (await page.locator('img[src=x]').count()) throw new Error('a row became an element')
  })

  await step('a row tells what became of its attempts', async (page) => {
    const { results: tried } = await api('POST', '/v1/batch-inference', {
      model, name: 'tried again', inputs: ['[[sim:fail=503 times=1]] Greet me.', 'Greet me at once.', '[[sim:fail=500]] Do not.'],
    })
    await ended(tried)
    const { attempt_log: log } = await api('GET', `/v1/jobs/${tried}/rows/0`)
    if (log.length !== 2 || log[0].status !== 503 || log[1].code !== null) throw new Error(`row 0 has ${JSON.stringify(log)}`)
    await page.goto(at(`jobs/${tried}/rows`))
    await logIn(page)
    const attempts = page.getByRole('region', { name: 'Attempts' })
    const show = async (row) => {
      await page.getByRole('button', { name: row }).click()
      await page.getByRole('region', { name: 'Input' }).waitFor()
    }
    const ends = async (...want) => {
      const got = await attempts.getByRole('row').locator('td:last-child').allTextContents()
      if (got.length !== want.length || got.some((end, i) => !want[i].test(end))) throw new Error(`the attempts ended ${JSON.stringify(got)}`)
    }
    await show(/Greet me\./)
    await ends(/HTTP 503|http_503/, /^answered$/)
    await attempts.getByRole('cell', { name: `${log[0].engine} ${log[0].node}`, exact: true }).first().waitFor()
    await check(page, 'the attempts at a row')
    await page.setViewportSize({ width: 320, height: 640 })
    await check(page, 'the attempts at a row, 320 pixels wide')
    await page.setViewportSize({ width: 1280, height: 860 })
    await page.keyboard.press('Escape')
    await show(/at once/)
    if (await attempts.count()) throw new Error('a row that was done at once has attempts to tell of')
    await page.keyboard.press('Escape')
    await show(/Do not/)
    await ends(/500/, /500/, /500/)
  })

  await step('one input of a Function is run', async (page) => {
    await page.goto(at('functions/grade'))
    await logIn(page)
    await page.getByLabel('essay').fill('It was a dark and stormy night.')
    await page.getByRole('button', { name: 'Run' }).click()
    await page.getByRole('region', { name: 'Output' }).waitFor()
  })

  await step('a draft is tried before anything of it is stored', async (page) => {
    await page.goto(at('functions/new'))
    await logIn(page)
    await page.getByLabel('Prompt', { exact: true }).fill('Name the capital of {{country}}.')
    await page.getByLabel('Model').selectOption(model)
    await page.getByLabel('Sampling parameters, as JSON').fill('{"max_tokens": ')
    await page.getByRole('textbox', { name: 'country' }).fill('Peru')
    await page.getByRole('button', { name: 'Run' }).click()
    await page.locator('.problem', { hasText: 'Sampling parameters: this text is not JSON.' }).waitFor()
    await page.getByLabel('Sampling parameters, as JSON').fill('{"max_tokens": 0}')
    await page.getByRole('button', { name: 'Run' }).click()
    await page.locator('.problem').getByText(/^definition\.sampling_params\.max_tokens: /).waitFor()
    await page.getByLabel('Sampling parameters, as JSON').fill('{"max_tokens": 20}')
    await page.getByRole('button', { name: 'Run' }).click()
    await page.getByRole('region', { name: 'Output' }).waitFor()
    await page.getByText(/tokens in, .* out, /).waitFor()
    await page.getByRole('note').filter({ hasText: 'Simulated answers:' }).waitFor()
    if (await page.getByText('Simulated answer: no real model gave it.').count()) throw new Error('the page says twice that answers are simulated')
    await check(page, 'a draft that was tried')
    const { functions } = await api('GET', '/v1/functions')
    if (functions.some((f) => f.name === 'unnamed')) throw new Error('the draft was stored')
    await page.getByRole('link', { name: 'open its job' }).click()
    await page.getByRole('heading', { name: 'draft of unnamed' }).waitFor()
  }, /\/v1\/(me|functions\/unnamed\/run)$/)

  await step('a key is made, shown once, and revoked', async (page) => {
    await page.goto(at('keys'))
    await logIn(page)
    await page.getByRole('button', { name: 'Create a key' }).click()
    await page.getByLabel('Name').fill('of the browser test')
    await page.getByRole('button', { name: 'Create it' }).click()
    const secret = await page.getByRole('region', { name: 'key', exact: true }).textContent()
    await api('GET', '/v1/auth/check', undefined, secret)
    await check(page, 'a new key')
    await page.getByRole('button', { name: 'I have copied it' }).click()
    await page.getByRole('row', { name: /of the browser test/ }).last().getByRole('button', { name: 'Revoke' }).click()
    await page.getByRole('button', { name: 'Revoke the key' }).click()
    await page.getByText('The key is revoked.').waitFor()
  })

  await step('what each key used is told with the keys, and in the usage', async (page) => {
    await page.goto(at('keys'))
    await logIn(page)
    const spent = /^\$[0-9.]+, 2 rows$/
    await page.getByRole('row', { name: /of the browser test/ }).getByText('nothing', { exact: true }).first().waitFor()
    await page.getByText(/rows of these days belong to the key of the configuration/).waitFor()
    await page.getByRole('row', { name: /of the team/ }).getByRole('link', { name: spent }).click()
    await page.getByText(`Only the key ${team.id}`).waitFor()
    await page.getByRole('row', { name: /^\d+ \w{3} / }).getByRole('cell', { name: '2', exact: true }).waitFor()
    await page.getByRole('button', { name: 'Show all keys' }).click()
    await page.getByLabel('By', { exact: true }).selectOption('API key')
    await page.getByRole('row', { name: /^not recorded: the job used the key of the configuration/ }).waitFor()
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Export as CSV' }).click()])
    const [heads, ...lines] = readFileSync(await download.path(), 'utf8').trim().split('\r\n')
    if (!heads.startsWith('key_id,key_name,rows,') || !lines.some((l) => l.startsWith(`${team.id},of the team,2,0,`))) throw new Error(`the file is ${[heads, ...lines]}`)
    await page.getByRole('row', { name: /of the team/ }).getByRole('link').click()
    await page.getByText(`Only the key ${team.id}`).waitFor()
  })

  await step('a job says which key submitted it, and its id in one line', async (page) => {
    await page.goto(at(`jobs/${ofTeam}`))
    await logIn(page)
    const id = page.locator('.facts').getByText(ofTeam, { exact: true })
    const lines = await id.evaluate((e) => e.getClientRects().length)
    if (lines !== 1) throw new Error(`the id has ${lines} lines`)
    await page.getByRole('link', { name: team.id }).click()
    await page.getByText(`Only the key ${team.id}`).waitFor()
  })

  await step('a webhook is tested, gets another secret, and a delivery again', async (page) => {
    const got = []
    const receiver = createServer((request, response) => {
      let body = ''
      request.on('data', (d) => (body += d))
      request.on('end', () => {
        got.push({ id: request.headers['webhook-id'], signatures: request.headers['webhook-signature'].split(' ').length, type: JSON.parse(body).type })
        response.end()
      })
    }).listen(0, '127.0.0.1')
    await new Promise((listens) => receiver.once('listening', listens))
    try {
      const { id } = await api('POST', '/v1/webhooks', { url: `http://127.0.0.1:${receiver.address().port}/hook`, description: 'a receiver that is there' })
      await page.goto(at(`webhooks/${id}`))
      await logIn(page)
      await page.getByRole('button', { name: 'Send a test' }).click()
      await page.getByText(/: accepted, HTTP 200/).first().waitFor()
      if (got.length !== 1 || got[0].signatures !== 1) throw new Error(`after a test the receiver got ${JSON.stringify(got)}`)

      await page.getByRole('button', { name: 'Rotate secret' }).click()
      await page.getByRole('button', { name: 'Rotate the secret' }).click()
      const secret = await page.getByRole('region', { name: 'secret', exact: true }).textContent()
      if (!secret.startsWith('whsec_')) throw new Error(`the secret is ${secret}`)
      await check(page, 'a new secret')
      await page.getByRole('button', { name: 'I have copied it' }).click()
      await page.getByText(`${secret.slice(0, 10)}`).waitFor()

      await page.getByRole('button', { name: 'Edit' }).click()
      const dialog = page.getByRole('dialog', { name: 'Edit the webhook' })
      await dialog.getByLabel('Description').fill('a receiver with another name')
      for (const event of ['job.succeeded', 'job.failed']) await dialog.getByLabel(event).check()
      await check(page, 'a webhook that is edited')
      await dialog.getByRole('button', { name: 'Save' }).click()
      await page.getByRole('heading', { name: 'Webhook: a receiver with another name' }).waitFor()
      const changed = await api('GET', `/v1/webhooks/${id}`)
      if (changed.events.join() !== 'job.succeeded,job.failed' || !changed.url.endsWith('/hook')) throw new Error(`the webhook is ${JSON.stringify(changed)}`)

      const { results } = await api('POST', '/v1/batch-inference', { model, inputs: ['a'], name: 'told' })
      await ended(results)
      const again = page.getByRole('button', { name: `Send again: job.succeeded of ${results}` })
      await again.waitFor()
      const delivered = got.at(-1)
      if (delivered.type !== 'job.succeeded' || delivered.signatures !== 2) throw new Error(`the receiver got ${JSON.stringify(got)}`)
      await again.click()
      await page.getByText('The service sends the event now.').waitFor()
      for (const until = Date.now() + 10_000; got.filter((g) => g.id === delivered.id).length < 2; await page.waitForTimeout(50))
        if (Date.now() > until) throw new Error(`it was not sent again: ${JSON.stringify(got)}`)

      await page.getByRole('button', { name: 'Delete' }).click()
      await page.getByRole('button', { name: 'Delete the webhook' }).click()
      await page.getByText('The webhook is deleted.').waitFor()
      await page.getByRole('heading', { name: 'Webhooks' }).first().waitFor()
    } finally {
      receiver.close()
    }
  })

  await step('the data of a job are deleted', async (page) => {
    const { results } = await api('POST', '/v1/batch-inference', { model, inputs: ['a', 'b'], name: 'to be deleted' })
    await ended(results)
    await page.goto(at(`jobs/${results}`))
    await logIn(page)
    await page.getByRole('link', { name: 'Parquet' }).waitFor()
    await page.getByRole('button', { name: 'Delete data' }).click()
    await page.getByRole('button', { name: 'Delete the data' }).click()
    await page.getByText('The data is deleted.').waitFor()
    await page.getByRole('listitem').getByText('data removed').waitFor()
    await settle(page)
    await check(page, 'a job without its data')
    if (await page.getByRole('link', { name: 'Parquet' }).count()) throw new Error('its results can be downloaded, which are gone')
    if (await page.getByRole('button', { name: 'Delete data' }).count()) throw new Error('its data can be deleted again')
  }, /\/v1\/(me|jobs\/[^/]+\/(preview|errors))/)

  await step('a file is uploaded on the page of files, and starts a job', async (page) => {
    await page.goto(at('files'))
    await logIn(page)
    await page.locator('input[type=file]').setInputFiles({ name: 'rivers.csv', mimeType: 'text/csv', buffer: Buffer.from('river\nRhine\n') })
    await page.getByText('The file is uploaded.').waitFor()
    await page.getByRole('row').filter({ hasText: 'rivers.csv' }).getByRole('link', { name: 'New job' }).click()
    await page.getByText('The first of its 1 row:').waitFor()
  })

  await step('jobs are cancelled by what they match, after a look', async (page) => {
    const { results: paused } = await api('POST', '/v1/batch-inference', { model, name: 'followed and paused', job_priority: 1, inputs: Array.from({ length: 900 }, (_, i) => `[[sim:delay=500ms]] Row ${i}`) })
    await api('PATCH', `/v1/jobs/${paused}`, { paused: true })
    await page.goto(at('jobs?q=followed'))
    await logIn(page)
    await page.getByRole('button', { name: 'Cancel all that match' }).click()
    await page.getByText('over already').waitFor()
    await check(page, 'bulk cancel')
    await page.getByRole('button', { name: 'Keep them running' }).click()
    await api('POST', `/v1/jobs/${paused}/cancel`)
    await page.getByRole('button', { name: 'Cancel all that match' }).waitFor({ state: 'detached' }) // all are over
    await page.getByLabel('Search').fill('nothing is called so')
    await page.getByText('No job matches.').waitFor()
    const chips = await page.getByRole('group', { name: 'States' }).innerText()
    if (/\d/.test(chips)) throw new Error(`the states of a search have counts of all jobs: ${chips}`)
    if (await page.getByRole('button', { name: 'Cancel all that match' }).count()) throw new Error('one may cancel what there is not')
  })

  await step('what cannot be read again stays, dimmed, with the reason', async (page) => {
    await page.goto(at('jobs'))
    await logIn(page)
    await page.getByRole('row', { name: /towns/ }).first().waitFor()
    await page.route('**/v1/**', (r) => r.fulfill({ status: 400, json: { message: 'not today', code: 'made_up', request_id: 'r-1' } }))
    await page.getByRole('button', { name: /^failed/ }).click()
    await page.waitForTimeout(2_000) // the list is not read again earlier
    await page.getByRole('button', { name: /^failed/ }).click()
    await page.locator('.problem', { hasText: 'not today' }).getByText('made_up').waitFor()
    await page.locator('.stale').getByRole('row', { name: /towns/ }).first().waitFor()
    await page.unroute('**/v1/**')
    await page.getByRole('button', { name: 'Try again' }).first().click()
    await page.locator('.stale').waitFor({ state: 'detached' })
  }, /\/v1\//)

  await step('the switch stops all requests', async (page) => {
    await page.goto(at(''))
    await logIn(page)
    await page.getByText('Live', { exact: true }).waitFor()
    await page.getByLabel('Live updates').uncheck({ force: true })
    await page.getByText('Paused').waitFor()
    await page.waitForTimeout(500)
    const asked = []
    page.on('request', (r) => asked.push(r.url()))
    await page.waitForTimeout(6_000)
    if (asked.length) throw new Error(`asked for ${asked}`)
  })

  await step('without the stream the page asks', async (page) => {
    await page.route('**/v1/events*', (r) => r.fulfill({ status: 404, json: {} }))
    await page.goto(at('jobs'))
    await logIn(page)
    await page.getByText('Every 5 s').waitFor()
    await page.waitForRequest(/list-jobs/, { timeout: 8_000 })
  }, /\/v1\/(events|me|webhooks)/)

  await step('on plain HTTP under a name, which is no secure context', async () => {
    const far = new URL(base)
    if (far.protocol !== 'http:') return
    far.hostname = 'lan.test'
    const browser = await launch('--host-resolver-rules=MAP lan.test 127.0.0.1')
    try {
      const page = await browser.newPage()
      await page.goto(new URL('console/jobs/new', far).href)
      await logIn(page)
      await page.getByText('Use the API').click()
      await page.getByRole('button', { name: 'Copy curl' }).click()
      await page.getByRole('button', { name: 'Copied' }).waitFor()
      await page.getByLabel('One row per line').fill('one')
      await chooseModel(page, model)
      await page.getByRole('button', { name: 'Submit' }).click()
      await page.locator('.now .status', { hasText: 'succeeded' }).waitFor()
    } finally {
      await browser.close()
    }
  })

  await step('a reader sees and does nothing', async (page) => {
    await page.goto(at(''))
    await logIn(page, reader.key)
    for (const path of ['', 'jobs', `jobs/${job}`, 'functions/grade', 'files', 'batches', 'quotas', 'settings']) {
      await page.goto(at(path))
      await settle(page)
      const acts = await page.locator('main button:not([aria-pressed])', { hasText: /cancel|delete|submit|run|publish|set|drain|resume/i }).count()
      if (acts) throw new Error(`${path} has ${acts} buttons that act`)
    }
    await page.getByText('90 days', { exact: true }).waitFor()
    await page.getByRole('status', { name: 'Effect now' }).getByText(/^Nothing is deleted now/).waitFor()
    if (await page.getByRole('radio').count()) throw new Error('the settings can be chosen')
    for (const path of ['jobs/new', 'functions/new']) {
      await page.goto(at(path))
      await page.getByRole('heading', { name: 'No such page' }).waitFor()
    }
    for (const name of ['API keys', 'Nodes', 'New job'])
      if (await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name, exact: true }).count()) throw new Error(`there is a link to ${name}`)
  })

  await step('who logs out, or loses the key, is asked for one', async (page) => {
    const lost = await api('POST', '/v1/keys', { name: 'lost', role: 'user' })
    await page.goto(at('jobs'))
    await logIn(page, lost.key)
    await api('DELETE', `/v1/keys/${lost.id}`)
    await page.getByLabel('API key', { exact: true }).waitFor()
    if (!page.url().includes('/login?to=')) throw new Error(`at ${page.url()}`)
    await logIn(page)
    await page.getByRole('button', { name: 'Log out' }).click()
    await page.getByLabel('API key', { exact: true }).waitFor()
    await page.goto(at('jobs'))
    await page.getByLabel('API key', { exact: true }).waitFor()
  }, /\/v1\//)

  if (!process.env.CONSOLE_CONTROL) {
    console.log('not tried, since nobody said how (CONSOLE_CONTROL): a killed node, an expired session')
    return
  }
  const control = async (what) => {
    const answer = await fetch(new URL(what, process.env.CONSOLE_CONTROL), { method: 'POST' })
    if (!answer.ok) throw new Error(`${what}: the node does not obey`)
    return answer.text()
  }

  await step('the login link of a terminal logs in once', async (page) => {
    await control('/kill')
    const link = await control('/start?terminal=1')
    const known = new URL(base).origin
    if (!link.startsWith(`${known}/console/#login=`)) throw new Error(`the link is ${link}`)
    await page.goto(link)
    await page.getByRole('heading', { name: 'Overview' }).waitFor()
    if (page.url() !== `${known}/console/`) throw new Error(`after the login one is at ${page.url()}`)
    const { height } = await page.getByText('operator · configuration key').boundingBox()
    if (height > 30) throw new Error('the name of the key has two lines')
    await page.getByRole('button', { name: 'Log out' }).click()
    await page.getByLabel('API key', { exact: true }).waitFor()
    await page.goto('about:blank')
    await page.goto(link)
    await page.getByText('this login link was used already').waitFor()
    if (!page.url().endsWith('/console/login')) throw new Error(`a used link leads to ${page.url()}`)
    await check(page, 'a used login link')
    await logIn(page)
  }, /\/v1\/|\/console\/session$/) // the overview may still ask after the log out

  await step('a node is killed and comes back', async (page) => {
    await page.goto(at('jobs'))
    await logIn(page)
    await page.getByText('Live', { exact: true }).waitFor()
    await page.getByRole('row', { name: /towns/ }).first().waitFor()
    let loads = 0
    page.on('load', () => loads++)
    await control('/kill')
    await page.locator('.problem', { hasText: 'The node cannot be reached.' }).first().waitFor({ timeout: 30_000 })
    await page.locator('.stale').getByRole('row', { name: /towns/ }).first().waitFor()
    await check(page, 'a killed node')
    if (await page.locator('.mantine-Notification-root').count()) throw new Error('it is told twice')
    await control('/start')
    await page.locator('.stale').waitFor({ state: 'detached', timeout: 30_000 })
    await page.getByText('Live', { exact: true }).waitFor({ timeout: 30_000 })
    if (loads) throw new Error('the page was loaded again')
  }, /./)

  await step('a node is drained and ends', async (page) => {
    await page.goto(at('nodes'))
    await logIn(page)
    await page.getByRole('button', { name: 'Drain' }).click()
    await page.getByText('It is the only node: the service stops with it.').waitFor()
    await page.getByRole('button', { name: 'Drain the node' }).click()
    await page.locator('.problem', { hasText: 'The node cannot be reached.' }).first().waitFor({ timeout: 30_000 })
    await control('/kill') // waits for the ended process
    await control('/start')
    await page.locator('.stale').waitFor({ state: 'detached', timeout: 30_000 })
    await page.getByRole('row').getByText('running', { exact: true }).waitFor()
  }, /./)

  await step('a page whose file is not there says so', async (page) => {
    await page.goto(at(''))
    await logIn(page)
    await page.route('**/assets/usage*', (r) => r.abort())
    await page.getByRole('link', { name: 'Usage' }).click()
    await page.locator('.problem', { hasText: 'The console cannot show this page' }).waitFor()
    await page.getByRole('link', { name: 'Quotas' }).click()
    await page.getByRole('heading', { name: 'Quotas' }).first().waitFor()
    await page.unrouteAll()
    await page.getByRole('link', { name: 'Usage' }).click()
    await page.getByRole('button', { name: 'Try again' }).click()
    await page.getByRole('heading', { name: 'Usage' }).first().waitFor()
  }, /./)

  await step('the tiles of the overview count the jobs of their lists', async (page) => {
    await ended((await api('POST', '/v1/batch-inference', { model, inputs: ['a', 'b'], limit: 1, name: 'only a test' })).results)
    const numJobs = async (kind) => (await api('GET', `/v1/list-jobs?limit=100&status=succeeded${kind}`)).jobs.length
    const want = await numJobs('&kind=whole')
    if (want === (await numJobs(''))) throw new Error('there is no test and no estimate to leave out')
    await page.goto(at(''))
    await logIn(page)
    const tile = page.getByRole('region', { name: 'In numbers' }).getByRole('link', { name: new RegExp(`^${want} ?succeeded$`) })
    await tile.waitFor()
    await page.getByRole('region', { name: 'Recently finished' }).getByRole('listitem').first().waitFor()
    if (await page.getByRole('region', { name: 'Recently finished' }).getByText('only a test').count()) throw new Error('a test is among the finished jobs')
    await tile.click()
    await page.waitForURL(/status=succeeded$/)
    const rows = page.getByRole('region', { name: 'Jobs' }).locator('tbody tr')
    await rows.nth(want - 1).waitFor()
    if ((await rows.count()) !== want) throw new Error(`the list has ${await rows.count()} jobs, and the tile ${want}`)
  })

  await step('the overview names troubles, failures first', async (page) => {
    await page.route('**/v1/webhooks', (r) => r.fulfill({ json: { webhooks: [] } })) // the receiver of the others does not exist
    await page.goto(at(''))
    await logIn(page)
    await settle(page)
    const attention = page.getByRole('region', { name: 'Needs attention' })
    if (await attention.isVisible()) throw new Error(`without troubles: ${await attention.textContent()}`)
    await page.route('**/v1/engines', async (route) => {
      const answer = await (await route.fetch()).json()
      Object.assign(answer.engines[0], { state: 'down', last_error: 'connection refused' })
      await route.fulfill({ json: { ...answer, missing_nodes: ['node-9'] } })
    })
    await page.route('**/v1/quotas', async (route) => route.fulfill({ json: { ...(await (await route.fetch()).json()), cost_quota_usd: 10 } }))
    await page.route('**/v1/usage', async (route) => {
      const answer = await (await route.fetch()).json()
      await route.fulfill({ json: { ...answer, total: { ...answer.total, cost_usd: 9 } } })
    })
    await page.route('**/v1/list-jobs?limit=10&status=running*', async (route) => {
      const { job: waits } = await api('GET', `/v1/jobs/${job}`)
      Object.assign(waits, { status: 'starting', name: 'in the queue', message: 'Waits for a place on a node.', datetime_created: new Date(Date.now() - 600_000).toISOString() })
      await route.fulfill({ json: { jobs: [waits], next_cursor: null, scanned_all: true } })
    })
    await page.reload()
    await attention.getByRole('link', { name: 'in the queue' }).waitFor()
    await attention.getByText('Waits for a place on a node.').waitFor()
    await attention.getByText('$9.00 of $10.00 this month').waitFor()
    await attention.getByText('engine down').waitFor()
    await attention.getByText('connection refused').waitFor()
    await attention.getByRole('link', { name: 'node node-9' }).waitFor()
    const states = await attention.locator('.status').allTextContents()
    if (states.join() !== 'engine down,no answer,job waits,budget 90.0 % used') throw new Error(`the troubles are ${states}`)
    await check(page, 'an overview with troubles')
    await page.unrouteAll({ behavior: 'wait' })
  })

  await step('a session that has expired asks for a key, and leads back', async (page) => {
    await page.goto(at(`jobs/${job}/rows?failed=1`))
    await logIn(page)
    await settle(page)
    await control('/kill')
    await control('/start?clock=13h')
    await page.getByLabel('API key', { exact: true }).waitFor({ timeout: 30_000 })
    await logIn(page)
    await page.getByRole('heading', { name: 'Rows' }).waitFor()
    if (!page.url().endsWith(`/jobs/${job}/rows?failed=1`)) throw new Error(`after the login one is at ${page.url()}`)
  }, /./)

  await step('what a retention would remove is said before it is chosen', async (page) => {
    await control('/kill')
    await control('/start?clock=48h')
    await page.goto(at('settings'))
    await logIn(page)
    const effect = page.getByRole('status', { name: 'Effect now' })
    await effect.getByText(/^Nothing is deleted now/).waitFor()
    await page.getByText(/Deletes the data of \d+ jobs now\./).waitFor()
    await page.getByLabel('Forever').check()
    await effect.getByText('Nothing would be deleted.').waitFor()
    await page.getByLabel('1 day').check()
    await effect.getByText(/The data of \d+ jobs would be deleted within minutes/).waitFor()
    await check(page, 'a retention that removes')
    await effect.getByText(/Within 1 day, the service would delete the data of all \d+ jobs that have ended\./).waitFor()
    await page.getByRole('button', { name: 'Save' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByText(/Within 1 day, the service would delete the data of all \d+ jobs/).waitFor()
    await check(page, 'a question before a shorter retention')
    await dialog.getByRole('button', { name: 'Go back' }).click()
    if ((await api('GET', '/v1/settings')).retention_days !== 90) throw new Error('the retention changed without an answer')
    await page.getByRole('button', { name: 'Save' }).click()
    await dialog.getByRole('button', { name: 'Shorten the retention' }).click()
    await page.getByText('The retention is set.').waitFor()
    await page.getByLabel('1 day (current)').waitFor()
  })
}
