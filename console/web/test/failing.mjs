// What the console says and offers when webhooks or rows fail.
import { createServer } from 'node:http'
import { api, at, check, ended, logIn, step } from './drive.mjs'

export async function failing({ model }) {
  await step('a webhook that fails looks like it, and a delivery is sent now', async (page) => {
    const got = []
    let status = 503
    const receiver = createServer((request, response) => {
      request.resume().on('end', () => {
        got.push(request.headers['webhook-id'])
        response.writeHead(status).end('closed until noon')
      })
    }).listen(0, '127.0.0.1')
    await new Promise((listens) => receiver.once('listening', listens))
    const url = `http://127.0.0.1:${receiver.address().port}/closed`
    const { id } = await api('POST', '/v1/webhooks', { url })
    try {
      const { results: job } = await api('POST', '/v1/batch-inference', { model, inputs: ['a'], name: 'not told' })
      await ended(job)
      for (const until = Date.now() + 20_000; got.length < 2; await page.waitForTimeout(50)) // the next attempt is then minutes away
        if (Date.now() > until) throw new Error(`the receiver got ${got.length} requests`)

      await page.goto(at(''))
      await logIn(page)
      await page.getByRole('listitem').filter({ hasText: new URL(url).host }).getByText('webhook failing').waitFor()
      await page.getByRole('link', { name: /^Webhooks \d+ with a problem$/ }).click()
      const host = new URL(url).host
      const row = page.getByRole('row').filter({ hasText: url })
      await row.getByText('failing', { exact: true }).waitFor()
      await row.getByText('1 of 1').waitFor()
      await row.getByText('The receiver answered HTTP 503.').waitFor()
      await row.getByText('1 delivery waits.').waitFor()
      await check(page, 'a list with a failing webhook')
      await row.getByRole('link').click()
      const note = page.getByRole('note').filter({ hasText: 'The last delivery failed.' })
      await note.getByText('closed until noon').waitFor()
      await note.getByText(/HTTP 503/).waitFor()
      await page.getByRole('heading', { name: `Webhook: ${host}` }).waitFor()
      await page.getByText('retrying', { exact: true }).waitFor()
      if (await note.getByRole('button', { name: 'Copy' }).count()) throw new Error('a short answer has a button')
      await check(page, 'a failing webhook')
      await page.setViewportSize({ width: 390, height: 844 })
      const delivery = page.getByRole('region', { name: 'Deliveries' }).locator('tbody tr').first()
      for (const part of ['not told', 'job.succeeded', 'HTTP 503', 'again in ']) await delivery.locator('td:visible').getByText(part).filter({ visible: true }).first().waitFor()
      if ((await page.locator('.facts').boundingBox()).y < (await delivery.boundingBox()).y) throw new Error('the facts are above the deliveries')
      await page.route(`**/v1/webhooks/${id}/deliveries?*`, async (route) => {
        const answer = await (await route.fetch()).json()
        await route.fulfill({ json: { ...answer, deliveries: Array.from({ length: 12 }, (_, i) => ({ ...answer.deliveries[0], id: `msg-${i}` })) } })
      })
      await page.reload()
      await page.getByText('10 of 12 shown').waitFor()
      await check(page, 'a webhook with many deliveries on a phone')
      await page.getByRole('button', { name: 'Show more' }).click()
      await page.getByText('12 of 12 shown').waitFor()
      await page.unrouteAll({ behavior: 'wait' })
      await page.reload()
      await page.getByText('1 of 1 shown').waitFor()
      await page.setViewportSize({ width: 1280, height: 860 })

      status = 204
      await page.getByRole('button', { name: `Send now: job.succeeded of ${job}` }).click()
      await page.getByText('The service sends the event now.').waitFor()
      await page.getByText('delivered', { exact: true }).waitFor()
      await page.getByText('enabled', { exact: true }).waitFor()
      if (new Set(got).size !== 1) throw new Error(`the receiver got ${got}`)

      status = 503
      const before = got.length
      for (const input of ['b', 'c']) await ended((await api('POST', '/v1/batch-inference', { model, inputs: [input], name: `not told ${input}` })).results)
      for (const until = Date.now() + 20_000; got.length < before + 4; await page.waitForTimeout(50))
        if (Date.now() > until) throw new Error(`the receiver got ${got.length - before} requests of two events`)
      status = 204
      await page.getByRole('link', { name: 'not told c' }).waitFor()
      await page.getByRole('button', { name: 'Send all 2 now' }).click()
      await page.getByText('The service sends 2 events now.').waitFor()
      await page.getByText('delivered', { exact: true }).nth(2).waitFor()
    } finally {
      receiver.close()
      await api('DELETE', `/v1/webhooks/${id}`)
    }
  })

  await step('rows with cut answers are tested again, and retried with a larger max_tokens', async (page) => {
    const inputs = ['A row\nwith two lines.', 'b', 'c']
    const { results: job } = await api('POST', '/v1/batch-inference', {
      model, inputs, name: 'cut answers', system_prompt: 'Be brief.', sampling_params: { max_tokens: 3 },
      json_schema: { type: 'object', properties: { why: { type: 'string' } }, required: ['why'] },
    })
    await ended(job)
    const { counts } = await api('GET', `/v1/jobs/${job}/errors/counts`)
    if (counts[0]?.code !== 'output_truncated') throw new Error(`the rows failed with ${JSON.stringify(counts)}`)
    await page.goto(at(`jobs/${job}`))
    await logIn(page)
    await page.getByLabel('New max_tokens').waitFor()
    await check(page, 'failures with cut answers')
    const whole = await ended(job)
    if (whole.status === 'failed') await page.locator('.problem').getByRole('button', { name: /^Retry \d failed rows?( and run \d more)? with max_tokens 256$/ }).waitFor()
    await page.setViewportSize({ width: 320, height: 640 })
    await check(page, 'failures with cut answers, 320 pixels wide')
    await page.setViewportSize({ width: 1280, height: 860 })
    await page.getByRole('link', { name: 'Test these rows: output_truncated' }).click()
    await page.getByRole('button', { name: /^Submit \d rows$/ }).waitFor()
    const lines = (await page.getByLabel('One row per line').inputValue()).split('\n').map((l) => JSON.parse(l))
    const failed = (await api('GET', `/v1/jobs/${job}/errors?not_run=false`)).errors.map((e) => inputs[e.row])
    if (JSON.stringify(lines) !== JSON.stringify(failed)) throw new Error(`the form has the rows ${JSON.stringify(lines)}, want ${JSON.stringify(failed)}`)
    if ((await page.getByLabel('System prompt').inputValue()) !== 'Be brief.' || !(await page.getByLabel('JSON Schema of the answers').inputValue()).includes('why'))
      throw new Error('the form lacks settings of the job')
    if (!(await page.getByLabel('Sampling parameters').inputValue()).includes('"max_tokens": 256')) throw new Error('the form has the limit that cut the answers')
    await page.getByRole('button', { name: 'Test 5 rows' }).click()
    await page.getByRole('status').filter({ hasText: 'tokens in' }).waitFor()
    const answers = page.getByRole('region', { name: 'Answers of the test run' })
    await answers.waitFor()
    if (await answers.getByText('output_truncated').count()) throw new Error('the test run has the limit that cut the answers')

    await page.goto(at(`jobs/${job}`))
    await page.getByLabel('New max_tokens').fill('300')
    await page.getByRole('button', { name: /^Retry .* with this limit$/ }).click()
    await page.waitForURL((url) => /jobs\/job-/.test(url.href) && !url.href.includes(job))
    const again = await ended(page.url().match(/job-[0-9a-f-]+/)[0])
    if (again.status !== 'succeeded' || again.failed_rows || again.sampling_params.max_tokens !== 300 || again.continues !== job)
      throw new Error(`the retry is ${JSON.stringify(again)}`)
  })
}
