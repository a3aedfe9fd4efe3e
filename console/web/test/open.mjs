// Opens a page of a node's console, by default the overview, in many windows and keeps
// them open, to measure the cost for the node.
//
//   node test/open.mjs BASE KEY OUTDIR PAGES [PATH]
//
// It prints "open" when all windows show the page, and ends when its input ends.
import { at, browser, failures, logIn, settle, watch } from './drive.mjs'

const [pages, path = ''] = [Number(process.argv[5]), process.argv[6]]
for (let i = 0; i < pages; i++) {
  const page = await (await browser.newContext({ viewport: { width: 1280, height: 860 } })).newPage()
  watch(page, () => `page ${i}`)
  await page.goto(at(path))
  await logIn(page)
  await settle(page)
  await page.getByText('Live', { exact: true }).waitFor()
}
console.log('open')
process.stdin.resume()
await new Promise((done) => process.stdin.on('end', done))
await browser.close()
process.exit(failures.length ? 1 : 0)
