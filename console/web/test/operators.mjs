// The pages of operators and administrators: what they say, and their actions.
import { api, at, check, logIn, settle, step } from './drive.mjs'

const ago = (seconds) => new Date(Date.now() - seconds * 1000).toISOString()

// phone is the width of a small phone, in pixels.
const phone = 390

// overlaps fails if the text of a cell or an entry is wider than its place.
async function overlaps(page, name) {
  const over = await page.locator('main :is(td, th, li, dd)').evaluateAll((all) => all.filter((e) => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflow === 'visible').map((e) => e.innerText))
  if (over.length) throw new Error(`${name}: texts overlap: ${over.slice(0, 3)}`)
}

export async function operators({ model, team, ofTeam }) {
  await step('a Function is published, rolled back and taken back', async (page) => {
    await page.goto(at('functions/new'))
    await logIn(page)
    await page.getByLabel('Name', { exact: true }).fill('shorten')
    await page.getByLabel('Model').selectOption(model)
    await page.getByLabel('Prompt', { exact: true }).fill('Shorten this: {{text}}')
    await page.getByRole('button', { name: 'Publish' }).click()
    await page.getByRole('heading', { name: 'shorten' }).waitFor()
    await page.getByRole('link', { name: 'New revision' }).click()
    await page.getByLabel('Prompt', { exact: true }).fill('Shorten this to {{words}} words: {{text}}')
    await page.getByRole('button', { name: 'Save as a draft' }).click()
    const revision = (n) => page.getByRole('region', { name: 'Revisions' }).getByRole('row', { name: new RegExp(`^${n} `) })
    await revision(2).getByText('not published').waitFor()
    await revision(1).getByText('published', { exact: true }).waitFor()
    const publish = async (n) => {
      await page.getByRole('button', { name: `Publish revision ${n}` }).click()
      await page.getByRole('dialog').getByRole('button', { name: `Publish revision ${n}` }).click()
    }
    await publish(2)
    await page.getByText('Revision 2 is published.').waitFor()
    await revision(2).getByText('published', { exact: true }).waitFor()
    await publish(1)
    await revision(1).getByText('published', { exact: true }).waitFor()
    await page.getByRole('button', { name: 'Unpublish' }).click()
    await page.getByRole('button', { name: 'Unpublish the Function' }).click()
    await page.getByText('The Function is unpublished.').waitFor()
    await page.getByText('This Function has no published revision, so new jobs cannot use it.').waitFor()
    await check(page, 'a Function that was taken back')
    if ((await api('GET', '/v1/functions')).functions.some((f) => f.name === 'shorten')) throw new Error('it is published all the same')
  })

  await step('batches lead to their files on a phone, and nodes have each figure once', async (page) => {
    await page.setViewportSize({ width: phone, height: 844 })
    await page.goto(at('batches'))
    await logIn(page)
    await page.getByRole('region', { name: 'Batches' }).getByRole('link', { name: 'input' }).first().waitFor()
    await page.goto(at('nodes'))
    const figures = page.getByRole('region', { name: 'Nodes' }).getByText(/rows in flight/)
    await figures.first().waitFor()
    await page.setViewportSize({ width: 1280, height: 860 })
    await page.waitForTimeout(100)
    if (await figures.first().isVisible()) throw new Error('the node has its figures twice')
    await page.goto(at('engines'))
    await page.getByText('Rate, last minute').waitFor()
    if (await page.getByText(/\b0\.00 rows/).count()) throw new Error('an idle engine has a rate')
  })

  await step('quotas are set, refused and taken back', async (page) => {
    await page.goto(at('quotas'))
    await logIn(page)
    const rows = page.getByRole('region', { name: 'Quotas of a job' }).getByRole('row', { name: /^1, production/ }).getByLabel('Rows of a job, priority 1')
    const before = await rows.getAttribute('placeholder')
    await rows.fill('250000')
    await page.getByLabel('Budget a month, USD').fill('1000.5')
    await page.getByRole('button', { name: 'Set the budget and the quotas' }).click()
    await page.getByText('The quotas apply to new jobs.').waitFor()
    await page.getByText('Monthly budget: $1,000.50').waitFor()
    if ((await rows.inputValue()) !== '250,000') throw new Error(`the field has ${await rows.inputValue()}`)
    await check(page, 'quotas that were set')
    await rows.fill('')
    await page.getByLabel('Budget a month, USD').fill('')
    await page.getByRole('button', { name: 'Set the budget and the quotas' }).click()
    await page.getByText('Monthly budget: unlimited').waitFor()
    const after = await rows.getAttribute('placeholder')
    if (after !== before) throw new Error(`the limit is ${after}, and was ${before}`)
  })

  await step('the changes of a Function are shown before it is published, and kept', async (page) => {
    await page.goto(at('functions/grade'))
    await logIn(page)
    await page.getByRole('region', { name: 'Call it from a program' }).getByText('/v1/functions/grade/run').waitFor()
    await page.goto(at('functions/grade/edit'))
    const changes = page.getByRole('region', { name: /^Changes to revision/ })
    await changes.getByText('No changes yet.').waitFor()
    await page.getByLabel('Prompt', { exact: true }).fill('Grade this from 1 to 10:\n{{essay}}')
    await changes.locator('[data-sign=added]', { hasText: 'from 1 to 10' }).waitFor()
    await changes.locator('[data-sign=removed]', { hasText: 'from 1 to 6' }).waitFor()
    await check(page, 'the changes of a Function')
    await page.reload()
    await changes.locator('[data-sign=added]', { hasText: 'from 1 to 10' }).waitFor()
    await changes.getByRole('button', { name: 'Discard the changes' }).click()
    await changes.getByText('No changes yet.').waitFor()
    if (!(await page.getByRole('button', { name: 'Publish' }).isDisabled())) throw new Error('a Function without a change can be published')
  })

  await step('a new revision keeps the order of the fields', async (page) => {
    const reply = { name: 'reply', model, prompt: 'Ticket: {{ticket}}. Grade this: {{reply}}', inputs: [{ name: 'reply' }, { name: 'ticket', required: false }], json_schema: { type: 'object', properties: Object.fromEntries(Array.from({ length: 9 }, (_, i) => [`grade${i}`, { type: 'integer' }])) } }
    await api('POST', '/v1/functions', reply)
    await page.goto(at('functions/reply/edit'))
    await logIn(page)
    const changes = page.getByRole('region', { name: /^Changes to revision/ })
    await changes.getByText('No changes yet.').waitFor()
    await page.getByLabel('Prompt', { exact: true }).fill('Ticket: {{ticket}}. Grade this: {{reply}}. In {{language}}.')
    await changes.locator('[data-sign=added]', { hasText: 'fields: reply, ticket?, language' }).waitFor()
    await changes.getByText(/^… \d+ equal lines$/).waitFor()
    await check(page, 'a new revision')
    await page.getByRole('button', { name: 'Publish' }).click()
    await page.getByRole('heading', { name: 'reply', exact: true }).waitFor()
    await page.getByText('reply, ticket (optional), language').waitFor()
    await api('DELETE', '/v1/functions/reply')
  })

  await step('a budget that is nearly used, or used up, is marked, with the time when it starts again', async (page) => {
    let cost = 9
    await page.route('**/v1/quotas', async (route) => route.fulfill({ json: { ...(await (await route.fetch()).json()), cost_quota_usd: 10 } }))
    await page.route('**/v1/usage', async (route) => {
      const answer = await (await route.fetch()).json()
      await route.fulfill({ json: { ...answer, total: { ...answer.total, cost_usd: cost } } })
    })
    await page.goto(at('quotas'))
    await logIn(page)
    await page.getByText('$9.00 of $10.00, 90.0 %').waitFor()
    await page.getByText('More than 80 % of the budget is used.').waitFor()
    await page.getByText(/The count starts at \$0 again on 1 /).waitFor()
    await check(page, 'a budget that is nearly used')
    cost = 40
    await page.reload()
    await page.getByText('$40.00 of $10.00, 400 %').waitFor()
    await page.locator('.problem').getByText('The budget is used up.').waitFor()
    await check(page, 'a budget that is used up')
    await page.goto(at(''))
    const attention = page.getByRole('region', { name: 'Needs attention' })
    await attention.locator('.status[data-is=failed]', { hasText: 'budget used up' }).waitFor()
    await page.unrouteAll({ behavior: 'wait' })
  })

  await step('usage has ranges of days and a total', async (page) => {
    await page.goto(at('usage'))
    await logIn(page)
    const days = page.getByRole('group', { name: 'Days' })
    await days.getByRole('button', { name: 'This month', pressed: true }).waitFor()
    await days.getByRole('button', { name: 'Today' }).click()
    await days.getByRole('button', { name: 'Today', pressed: true }).waitFor()
    if (await days.getByRole('button', { name: 'This month', pressed: true }).count()) throw new Error('two ranges of days are pressed')
    await days.getByRole('button', { name: '7 days' }).click()
    await page.waitForURL(/from=.*to=/)
    await days.getByRole('button', { name: '7 days', pressed: true }).waitFor()
    const total = page.getByRole('row', { name: /^Total/ })
    await total.waitFor()
    const { total: want } = await api('GET', '/v1/usage')
    if (!(await total.textContent()).includes(want.rows.toLocaleString('en'))) throw new Error(`the total is ${await total.textContent()}, want ${want.rows} rows`)
    await days.getByRole('button', { name: 'Last month' }).click()
    await page.getByText('No rows ran in these days.').waitFor()
  })

  await step('the audit record has sentences and filters', async (page) => {
    await page.goto(at('audit'))
    await logIn(page)
    const rows = page.getByRole('region', { name: 'Audit record' }).locator('tbody tr')
    await rows.filter({ hasText: 'created the API key of the team' }).first().waitFor()
    await page.getByRole('combobox', { name: 'Action', exact: true }).selectOption('created the API key')
    await page.waitForURL(/action=key\.create/)
    await rows.filter({ hasText: 'published the Function' }).first().waitFor({ state: 'detached' })
    const team = rows.filter({ hasText: 'of the team' }).first()
    await team.getByText('Details').click()
    await team.getByText('key.create').waitFor()
    await team.locator('dl').first().getByText('Role', { exact: true }).waitFor()
    if (/[{_]/.test(await team.locator('dl').first().innerText())) throw new Error(`the details are raw: ${await team.locator('dl').first().innerText()}`)
    await team.getByRole('link', { name: 'of the team' }).click()
    await page.waitForURL(/\/keys$/)
    await api('DELETE', '/v1/functions/never-made').catch(() => {})
    await page.goto(at('audit?action=function.unpublish&days=1'))
    await rows.filter({ hasText: 'never-made' }).getByText('failed: unknown_function').waitFor()
    if ((await rows.filter({ hasText: 'never-made' }).count()) !== 1) throw new Error('a failed action has two entries')
    await page.getByText(/^\d+ match(es)? in the newest \d+ entries$/).waitFor()
    await page.getByRole('combobox', { name: 'Action', exact: true }).selectOption('made a backup')
    await page.getByText(/^None of the newest \d+ entries matches\.$/).waitFor()
    await check(page, 'the audit record')
  })

  await step('each choice of the retention has its own hint', async (page) => {
    await page.goto(at('settings'))
    await logIn(page)
    await page.getByRole('status', { name: 'Effect now' }).waitFor()
    const hints = await page.locator('.mantine-Radio-description').allInnerTexts()
    const sentences = hints.flatMap((h) => h.split('. '))
    if (hints.length !== 5 || new Set(sentences).size !== sentences.length) throw new Error(`hints repeat: ${hints.join(' | ')}`)
  })

  await step('about has the setup, to copy', async (page) => {
    await page.goto(at('about'))
    await logIn(page)
    const service = page.getByRole('region', { name: 'This service' })
    await service.getByText(/^go1\./).waitFor()
    await service.getByText('1 node', { exact: true }).waitFor()
    await service.getByText('Rows of a job').waitFor()
    await service.getByText(/rowmill\.db$/).waitFor()
    await service.getByRole('button', { name: 'Copy for a bug report' }).click()
    await service.getByRole('button', { name: 'Copied' }).waitFor()
    await check(page, 'about')
  })

  await step('engines that are down come first, with the reason in plain words and a badge in the menu', async (page) => {
    const raw = 'probe 127.0.0.1:1: get /v1/models: Get "http://127.0.0.1:1/v1/models": dial tcp 127.0.0.1:1: connect: connection refused'
    await page.route('**/v1/engines', async (route) => {
      const answer = await (await route.fetch()).json()
      const [first] = answer.engines
      const down = { ...first, name: 'vllm', state: 'down', in_flight: 0, window: 0, rows_per_second: null, last_error: raw }
      await route.fulfill({ json: { ...answer, engines: [{ ...first, in_flight: 1, window: 4 }, { ...first, name: 'quiet', in_flight: 0, window: 4 }, down] } })
    })
    await page.goto(at('engines'))
    await logIn(page)
    await page.getByText('2 of 3', { exact: true }).waitFor()
    await page.getByText('1 of 8', { exact: true }).waitFor()
    const tiles = page.getByRole('list', { name: 'Engines', exact: true }).getByRole('listitem')
    await tiles.nth(0).getByText('Connection refused by 127.0.0.1:1. Is the server running?').waitFor()
    if (await tiles.nth(0).getByText(raw).isVisible()) throw new Error('the full message is shown without a question')
    await tiles.nth(0).getByText('Full message').click()
    await tiles.nth(0).getByText(raw).waitFor()
    await tiles.filter({ hasText: 'quiet' }).getByText('Idle: no job runs or waits.').waitFor()
    await tiles.nth(1).getByText('1 of 4').waitFor()
    await check(page, 'engines')
    await page.getByRole('link', { name: 'Engines 1 with a problem' }).waitFor()
    await page.goto(at(''))
    await page.getByRole('link', { name: 'Engines 1 with a problem' }).waitFor()
    await page.getByRole('region', { name: 'Needs attention' }).getByText('Connection refused by 127.0.0.1:1.').waitFor()
    await page.getByRole('link', { name: '2 of 3 engines up' }).waitFor()
    await page.unrouteAll({ behavior: 'wait' })
  })

  await step('servers are started and stopped, show their output, and need attention if they ended by themselves', async (page) => {
    const error = 'the server ended with code 1'
    const server = { node_id: 'gpu1-a', node: 'gpu1', models: ['qwen-3-32b'], gpus: 2, on: [], phase: 'stopped', since: ago(90), mode: 'auto', load_seconds: 60, tokens_per_second: 1000, retry_at: null, error: null }
    const servers = [{ ...server, name: 'big', phase: 'running', on: [0, 1] }, { ...server, name: 'broken', error }, { ...server, name: 'ready' }]
    await page.route('**/v1/servers', (route) => route.fulfill({ json: { servers } }))
    await page.route('**/v1/servers/gpu1-a/*', (route) => {
      const found = servers.find((s) => route.request().url().endsWith(`/${s.name}`))
      Object.assign(found, route.request().postDataJSON())
      return route.fulfill({ json: found })
    })
    let lines = 'loading\n'
    await page.route('**/v1/servers/gpu1-a/big/log', (route) => route.fulfill({ json: { text: lines, end: lines.length } }))
    await page.goto(at(''))
    await logIn(page)
    const attention = page.getByRole('region', { name: 'Needs attention' })
    await attention.getByText(`${error}. Its output says more.`).waitFor()
    await page.getByRole('link', { name: 'Engines 1 with a problem' }).waitFor()
    if (await attention.getByText(/ready|big/).count()) throw new Error('a server that is only stopped needs attention')
    await attention.getByRole('link', { name: 'broken on gpu1' }).click()
    const row = (name) => page.getByRole('region', { name: 'Servers' }).getByRole('row').filter({ hasText: name })
    await row('big').getByText('0, 1').waitFor()
    await row('ready').getByText('needs 2').waitFor()
    await row('broken').getByText(error).waitFor()
    await check(page, 'servers')
    await page.getByRole('button', { name: 'Start ready' }).click()
    await row('ready').getByText('kept running').waitFor()
    await page.getByRole('button', { name: 'Stop big' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Stop the server' }).click()
    await row('big').getByText('kept stopped').waitFor()
    await page.getByRole('button', { name: 'Automatic big' }).click()
    await row('big').getByText('automatic', { exact: true }).waitFor()
    await page.getByRole('button', { name: 'Output big' }).click()
    const output = page.getByRole('dialog').getByRole('region', { name: 'Output of big' })
    await output.getByText('loading').waitFor()
    lines += 'ready for rows\n'
    await output.getByText('ready for rows').waitFor()
    await check(page, 'the output of a server')
    await page.keyboard.press('Escape')
    await page.setViewportSize({ width: phone, height: 844 })
    await row('broken').getByText(error).waitFor()
    await check(page, 'servers, on a phone')
    await overlaps(page, 'servers')
    await page.unrouteAll({ behavior: 'wait' })
  })

  await step('a node that hangs, and one that has vanished, have not answered for a time', async (page) => {
    let [hangs, vanished] = [false, false]
    await page.route('**/v1/nodes', async (route) => {
      const answer = await (await route.fetch()).json()
      const other = (name) => ({ ...answer.nodes[0], id: `${name}-1`, name, self: false })
      await route.fulfill({ json: { nodes: [...answer.nodes, other('node-8'), ...(vanished ? [] : [other('node-9')])] } })
    })
    await page.route('**/v1/engines', async (route) => route.fulfill({ json: { ...(await (await route.fetch()).json()), missing_nodes: hangs ? ['node-8'] : [] } }))
    await page.goto(at('nodes'))
    await logIn(page)
    const row = (name) => page.getByRole('row').filter({ hasText: name })
    await row('node-8').getByText('running', { exact: true }).waitFor()
    await row('node-9').getByText('running', { exact: true }).waitFor()
    await page.waitForResponse(/\/v1\/engines/)
    ;[hangs, vanished] = [true, true]
    await row('node-8').getByText(/^no answer for \d+ s$/).waitFor()
    await row('node-9').getByText(/^no answer for \d+ s$/).waitFor()
    await page.getByRole('link', { name: 'Nodes 1 with a problem' }).waitFor()
    if (await row('node-9').getByRole('button', { name: 'Drain' }).count()) throw new Error('a node that has vanished can be drained')
    await check(page, 'nodes that do not answer')
    await page.setViewportSize({ width: phone, height: 844 })
    await row('node-8').getByText(/ rows in flight, /).waitFor()
    await check(page, 'nodes that do not answer, on a phone')
    await page.getByRole('button', { name: 'Run the diagnosis' }).click()
    await page.getByText('Show the checks').or(page.getByText('Passed checks')).first().click()
    await page.getByRole('cell', { name: /^records: / }).first().waitFor()
    await overlaps(page, 'nodes')
    hangs = false
    await row('node-8').getByText('running', { exact: true }).waitFor()
    await page.unrouteAll({ behavior: 'wait' })
  })

  await step('the header says that the node of the page does not answer', async (page) => {
    await page.goto(at('quotas'))
    await logIn(page)
    const state = page.locator('.live')
    await state.getByText('Live', { exact: true }).waitFor()
    const held = []
    await page.route('**/v1/**', (route) => held.push(route))
    await state.getByText(/^No answer for \d+ s$/).waitFor()
    await page.setViewportSize({ width: phone, height: 800 })
    await check(page, 'a node that does not answer')
    await page.unrouteAll()
    await Promise.all(held.map((route) => route.continue().catch(() => {})))
    await state.getByText('Live', { exact: true }).waitFor()
  })

  await step('actors that need attention come first, and the others are quiet', async (page) => {
    const actor = {
      node_id: 'b', node: 'node-2', id: 'node', kind: 'node', job_id: null, engine: null, state: 'running', since: ago(5000), restarts: 0,
      mailbox_depth: 0, oldest_message_seconds: 0, tasks: 0, task: null, task_seconds: 0, last_error: null,
    }
    const stuck = { ...actor, id: 'stuck', kind: 'results', job_id: ofTeam, mailbox_depth: 9, oldest_message_seconds: 25, task: 'write a part', task_seconds: 90 }
    const nodes = [{ id: 'a', name: 'node-1', error: null, left_out: 0 }, { id: 'b', name: 'node-2', error: null, left_out: 1 }]
    await page.route('**/v1/actors*', (route) => route.fulfill({ json: { nodes, actors: [stuck, actor, { ...actor, node_id: 'a', node: 'node-1' }] } }))
    await page.goto(at('actors'))
    await logIn(page)
    const first = page.locator('main section').first()
    await first.getByRole('heading', { name: 'node-2' }).waitFor()
    await first.getByText('1 needs attention').waitFor()
    await first.getByText('A message has waited for 25 s.').waitFor()
    await first.getByText('Waiting for 1 min 30 s on: write a part.').waitFor()
    await first.getByText('1 more actor of this node is not listed.').waitFor()
    const link = await first.getByRole('link', { name: 'greetings' }).first().getAttribute('href')
    if (!decodeURIComponent(link).endsWith(`${ofTeam}?account=*`)) throw new Error(`${link} does not lead to jobs of other accounts`)
    const quiet = page.getByRole('region', { name: 'node-1', exact: true })
    await quiet.getByText('no problem').waitFor()
    await quiet.getByText('All actors').click()
    await quiet.getByText('manages its node').waitFor()
    await check(page, 'actors')
    await page.unrouteAll({ behavior: 'wait' })
  })

  await step('a batch says its state and its end in words, and links to its job and files', async (page) => {
    await page.goto(at('batches'))
    await logIn(page)
    const row = page.getByRole('region', { name: 'Batches' }).locator('tbody tr').first()
    await row.getByText('completed', { exact: true }).waitFor()
    await row.getByText('1 of 1 request', { exact: true }).waitFor()
    await row.getByRole('link', { name: 'output' }).waitFor()
    await row.getByRole('link', { name: 'greetings.jsonl' }).click()
    await page.waitForURL(/\/jobs\/job-/)
  })

  await step('tables fit a phone', async (page) => {
    await page.goto(at('about'))
    await logIn(page)
    await page.setViewportSize({ width: phone, height: 844 })
    for (const path of ['engines', 'nodes', 'actors', 'usage', `usage?by=key&key=${team.id}`, 'quotas', 'audit', 'about', 'batches', 'files', 'functions', 'functions/grade', 'keys', 'webhooks', 'settings']) {
      await page.goto(at(path))
      await settle(page)
      await check(page, `${path}, ${phone} pixels wide`)
      await overlaps(page, path)
      const cut = await page.locator('main .scroll').evaluateAll((all) => all.filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.ariaLabel))
      if (cut.length) throw new Error(`${path}: the tables ${cut} are wider than a phone`)
    }
  })
}
