// What an operator sees of other accounts.
import { api, at, base, check, logIn, step } from './drive.mjs'

export async function accounts({ model }) {
  await step('an operator sees jobs, usage and files of all accounts', async (page) => {
    const guest = await api('POST', '/v1/keys', { name: 'of a guest', role: 'user', account: 'guests' })
    try {
      const { results: job } = await api('POST', '/v1/batch-inference', { model, inputs: ['a', '[[sim:fail=500]] b'], name: 'of the guests' }, guest.key)
      const form = new FormData()
      form.set('purpose', 'user_data')
      form.set('file', new Blob(['text\nrow\n']), 'guests.csv')
      const file = await fetch(new URL('/v1/files', base), { method: 'POST', headers: { Authorization: `Key ${guest.key}` }, body: form })
      if (!file.ok) throw new Error(`upload: ${file.status}`)
      for (let status = ''; !['succeeded', 'failed'].includes(status); await page.waitForTimeout(100))
        status = (await api('GET', `/v1/jobs/${job}?account=guests`)).job.status

      await page.goto(at('jobs'))
      await logIn(page)
      const account = page.getByRole('combobox', { name: 'Account', exact: true })
      await account.selectOption('all accounts')
      const row = page.getByRole('row').filter({ has: page.locator(`a[href*="${job}"]`) })
      await row.getByRole('cell', { name: 'guests', exact: true }).waitFor()
      await check(page, 'jobs of all accounts')
      await row.getByRole('link', { name: 'of the guests' }).click()
      await page.getByText('This job belongs to the account guests.').waitFor()
      await page.getByRole('heading', { name: 'Failures' }).waitFor()
      await page.getByText('created', { exact: true }).waitFor()
      for (const name of ['More actions', 'Delete data', 'Cancel job', /^Retry/])
        if (await page.getByRole('button', { name }).count()) throw new Error(`the job of another account has the button ${name}`)
      for (const name of ['Download', 'See rows', 'JSON', 'New job like this'])
        if (await page.getByRole('link', { name, exact: true }).count()) throw new Error(`the job of another account has the link ${name}`)
      await check(page, 'a job of another account')
      await page.goto(at(`jobs/${job}?account=*`)) // as the page of actors links to it
      await page.getByText('This job belongs to the account guests.').waitFor()

      await page.goto(at('usage'))
      await account.selectOption('all accounts')
      await page.getByRole('cell', { name: 'guests', exact: true }).first().waitFor()
      await account.selectOption('guests')
      await page.waitForURL(/account=guests/)
      await page.goto(at('files'))
      await account.selectOption('guests')
      await page.getByRole('cell', { name: 'guests.csv' }).first().waitFor()
      if (await page.getByRole('link', { name: 'guests.csv' }).count()) throw new Error('a file of another account has a link')
      await check(page, 'files of another account')
      await page.goto(at('quotas'))
      await account.selectOption('guests')
      await page.waitForURL(/account=guests/)
      await page.getByLabel('Monthly budget (USD)').fill('7')
      await page.getByRole('button', { name: 'Set the budget and the quotas' }).click()
      await page.getByText(' of $7.00, ').waitFor()
      if ((await api('GET', '/v1/quotas')).cost_quota_usd !== null) throw new Error('the own account has the budget of another account')
      await check(page, 'quotas of another account')
      await account.selectOption('all accounts')
      await page.getByRole('region', { name: 'Accounts' }).getByRole('row', { name: /^guests \$7\.00 \$\S+ .+ % 1$/ }).waitFor()
      await check(page, 'the budgets of all accounts')
      const costs = { archive: 0.5, billing: 1, claims: 9, guests: 3, search: 40 }
      await page.route('**/v1/accounts', (route) => route.fulfill({ json: { accounts: Object.keys(costs), cost_quotas_usd: { billing: 100, claims: 10, guests: 2 } } }))
      await page.route('**/v1/usage?*', async (route) => {
        const answer = await (await route.fetch()).json()
        await route.fulfill({ json: { ...answer, usage: Object.entries(costs).map(([account, cost_usd]) => ({ ...answer.total, account, model, cost_usd })) } })
      })
      await page.reload()
      const names = page.getByRole('region', { name: 'Accounts' }).locator('tbody td:first-child a')
      await names.last().waitFor()
      if ((await names.allTextContents()).join() !== 'guests,claims,billing,search,archive') throw new Error(`the accounts are in the order ${await names.allTextContents()}`)
      await page.getByRole('row', { name: /^guests .* 150 % used up: new jobs fail / }).waitFor()
      await page.setViewportSize({ width: 390, height: 844 })
      await check(page, 'the budgets of all accounts on a phone')
      await page.setViewportSize({ width: 1280, height: 860 })
      await page.goto(at(''))
      const trouble = page.getByRole('region', { name: 'Needs attention' }).getByRole('listitem').filter({ hasText: 'account ' })
      await trouble.filter({ hasText: 'guests' }).getByText('budget used up').waitFor()
      await trouble.filter({ hasText: 'claims' }).getByText('budget 90.0 % used').waitFor()
      if ((await trouble.count()) !== 2) throw new Error(`the overview names the accounts ${await trouble.allTextContents()}`)
      await trouble.getByRole('link', { name: 'account claims' }).click()
      await page.waitForURL(/quotas\?account=\*$/)
      await names.last().waitFor()
      await page.unrouteAll({ behavior: 'wait' })
      await page.reload()
      await page.getByRole('row', { name: /^guests / }).getByRole('link', { name: '1', exact: true }).click()
      await page.waitForURL(/keys\?account=guests$/)
      await page.getByRole('row', { name: /of a guest/ }).waitFor()
      if ((await page.getByRole('region', { name: 'API keys' }).locator('tbody tr').count()) !== 1) throw new Error('the keys are not only of one account')
      await page.getByRole('button', { name: 'Show all keys' }).click()
      await page.getByRole('row', { name: /of the team/ }).waitFor()
      await page.goto(at('quotas?account=*'))
      await page.getByRole('link', { name: 'guests', exact: true }).click()
      await page.getByText(' of $7.00, ').waitFor()
      await page.clock.setSystemTime((await api('GET', `/v1/jobs/${job}?account=guests`)).job.datetime_created) // another part may have moved the node's clock
      await page.goto(at('keys'))
      await page.getByRole('row', { name: /of a guest/ }).getByRole('link', { name: /^\$\S+, \d rows?$/ }).click()
      await page.waitForURL(/account=guests/)
      await page.getByText(`Only the key ${guest.id}`).waitFor()
      await page.getByRole('row', { name: /^Total/ }).waitFor()
    } finally {
      await api('DELETE', `/v1/keys/${guest.id}`)
    }
  })

  await step('others have no choice of accounts', async (page) => {
    const guest = await api('POST', '/v1/keys', { name: 'of a guest', role: 'admin', account: 'guests' })
    try {
      await page.goto(at('jobs'))
      await logIn(page, guest.key)
      await page.getByRole('region', { name: 'Jobs' }).waitFor()
      if (await page.getByRole('combobox', { name: 'Account', exact: true }).count()) throw new Error('an administrator of another account can choose an account')
    } finally {
      await page.goto('about:blank') // the page asks no more with the key
      await api('DELETE', `/v1/keys/${guest.id}`)
    }
  })
}
