// Compares the consoles of several nodes of a cluster.
//
//   node test/nodes.mjs BASE KEY OUTDIR BASE2 BASE3
//
// The test submits a job on the page of the first node and follows it to its end on all
// pages. Then all pages must show the same.
import { api, at, base, browser, fail, failures, logIn, settle, watch } from './drive.mjs'

const nodes = [base, ...process.argv.slice(5)]
const model = (await api('GET', '/v1/models')).data.find((m) => !m.problem && m.kind === 'generation').id
const pages = await Promise.all(nodes.map(async (node) => {
  const page = await (await browser.newContext({ viewport: { width: 1280, height: 860 }, reducedMotion: 'reduce' })).newPage()
  watch(page, () => node)
  await page.goto(at('', node))
  await logIn(page)
  return { node, page }
}))
const job = (await api('POST', '/v1/batch-inference', {
  model, name: 'seen from everywhere', job_priority: 1, inputs: Array.from({ length: 6000 }, (_, i) => `Describe town ${i}.`), sampling_params: { max_tokens: 50 },
})).results
await Promise.all(pages.map(({ node, page }) => page.goto(at(`jobs/${job}`, node))))

// All nodes show the same places of its rows. The counts differ, because rows move
// between two reads.
const where = ({ page }) => page.getByRole('region', { name: 'Rows by node' }).locator('tbody td:first-child').allInnerTexts()
for (let tries = 0; ; tries++) {
  const [first, ...others] = await Promise.all(pages.map(where))
  if (first.length === nodes.length && others.every((o) => o.join() === first.join())) {
    console.log(`ok the rows are on ${first.join(', ')}, as all of them say`)
    break
  }
  if (tries === 100) {
    fail(`where the rows are: ${JSON.stringify([first, ...others])}`)
    break
  }
  await new Promise((r) => setTimeout(r, 100))
}

await Promise.all(pages.map(async ({ node, page }) => {
  let loads = 0
  page.on('load', () => loads++)
  await page.locator('.now .big', { hasText: /^100 %$/ }).waitFor({ timeout: 120_000 })
  await page.locator('.now .status', { hasText: 'succeeded' }).waitFor()
  if (loads) fail(`${node}: the page was loaded again`)
}))

// Texts about the answering node, or about the time, differ.
const about = /just now|\d+ (s|min|h) ago|(up|down) for \d.*|this node/g

const show = ({ page }) => page.locator('main').innerText().then((text) => text.replaceAll(about, '').split('\n'))

for (const path of ['', 'jobs', `jobs/${job}`, `jobs/${job}/rows`, 'functions', 'quotas', 'keys', 'usage', 'nodes', 'engines']) {
  await Promise.all(pages.map(async ({ node, page }) => {
    await page.goto(at(path, node))
    await settle(page)
  }))
  let differs // nodes learn each other's states within seconds
  for (let tries = 0; tries < 30; tries++) {
    const [first, ...others] = await Promise.all(pages.map(show))
    differs = others.flatMap((o, i) => o.filter((line) => !first.includes(line)).map((line) => `${nodes[i + 1]} has "${line}"`))
    if (!differs.length) break
    await new Promise((r) => setTimeout(r, 500))
  }
  if (differs.length) fail(`/${path}: ${differs.join(', ')}, which ${nodes[0]} has not`)
  else console.log(`ok /${path} is the same on ${nodes.length} nodes`)
}
await browser.close()
process.exit(failures.length ? 1 : 0)
