// Answers what ECMA-262 says. Input: a line of JSON for each question, [pattern, text].
// Output: a line for each, [with the flag u, without flags], each "match", "none" or
// "refused".
const lines = require('fs').readFileSync(0, 'utf8').split('\n').filter(Boolean)
function answer(pattern, text, flags) {
  try {
    return new RegExp(pattern, flags).test(text) ? 'match' : 'none'
  } catch {
    return 'refused'
  }
}
console.log(lines.map(line => {
  const [pattern, text] = JSON.parse(line)
  return JSON.stringify([answer(pattern, text, 'u'), answer(pattern, text, '')])
}).join('\n'))
