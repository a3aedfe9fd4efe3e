// Answers which characters have a property. Input: the inside of \p{…}, a line each.
// Output: a line for each, [first, last, first, last, …], or "refused". Surrogates are
// left out, since two of them beside each other would be another character, and planes
// that hold nothing.
const names = require('fs').readFileSync(0, 'utf8').split('\n').filter(Boolean)
let all = ''
for (let c = 0; c < 0xe0200; c++) {
  if (c === 0xd800) c = 0xe000
  if (c === 0x32400) c = 0xe0000
  all += String.fromCodePoint(c)
}
console.log(names.map(name => {
  let property
  try { property = new RegExp(`\\p{${name}}+`, 'gu') } catch { return 'refused' }
  const made = []
  for (const [run] of all.matchAll(property)) {
    const last = run.charCodeAt(run.length - 1)
    made.push(run.codePointAt(0), last >= 0xdc00 && last < 0xe000 ? run.codePointAt(run.length - 2) : last)
  }
  return JSON.stringify(made)
}).join('\n'))
