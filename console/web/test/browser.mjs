// Drives the console of a running node in a browser.
//
//   node test/browser.mjs BASE KEY OUTDIR [states|operators|newjob|rows|scenarios]
//
// BASE is the node's address, KEY an administrator's key of the account default, OUTDIR
// the folder for a picture of each page. The node should be simulated and new. Without
// a browser the program prints a message and succeeds, unless CONSOLE_BROWSER=required.
import { accounts } from './accounts.mjs'
import { runAgain } from './again.mjs'
import { api, browser, failures } from './drive.mjs'
import { comparison } from './compare.mjs'
import { failing } from './failing.mjs'
import { jobPages } from './jobs.mjs'
import { newJob } from './newjob.mjs'
import { operators } from './operators.mjs'
import { rowList } from './rows.mjs'
import { everyPageInEveryState, theLogin } from './states.mjs'
import { service } from './service.mjs'
import { scenarios } from './scenarios.mjs'
import { prepare } from './things.mjs'

const things = await prepare()
const runs = (part) => !process.argv[5] || process.argv[5] === part
if (runs('states')) {
  await theLogin()
  await everyPageInEveryState(things)
}
if (runs('operators')) {
  await service(things)
  await operators(things)
}
if (runs('newjob')) {
  await newJob(things)
  await runAgain(things)
}
if (runs('rows')) {
  await rowList(things)
  await jobPages(things)
  await comparison(things)
}
if (runs('scenarios')) {
  await scenarios(things)
  await failing(things)
  await accounts(things)
}

await browser.close()
for (const { id } of [things.reader, things.team]) await api('DELETE', `/v1/keys/${id}`)
console.log(failures.length ? `${failures.length} failures` : 'all passed')
process.exit(failures.length ? 1 : 0)
