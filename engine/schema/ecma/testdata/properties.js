// Writes properties.txt: what ECMA-262 knows and Go's package unicode lacks. Input: the
// long names of scripts, a line each.
const hex = c => c.toString(16)
function ranges(name) {
  const property = new RegExp(`^\\p{${name}}$`, 'u'), made = []
  for (let c = 0, low = -1; c <= 0x110000; c++) {
    const has = c < 0x110000 && property.test(String.fromCodePoint(c))
    if (has && low < 0) low = c
    if (!has && low >= 0) {
      made.push(c - 1 > low ? `${hex(low)}-${hex(c - 1)}` : hex(low))
      low = -1
    }
  }
  return made.join(' ')
}
console.log('# Written by: go test ./engine/schema/ecma -run Record -record')
for (const name of ['Emoji', 'Emoji_Component', 'Emoji_Modifier', 'Emoji_Modifier_Base', 'Emoji_Presentation', 'Extended_Pictographic']) {
  console.log(name, ranges(name))
}

// A short name of a script is a name of four letters with the same characters.
const first = {}
for (const long of require('fs').readFileSync(0, 'utf8').split('\n').filter(Boolean)) {
  try {
    const script = new RegExp(`\\p{sc=${long}}`, 'u')
    for (let c = 0; c < 0x110000; c++) {
      if (script.test(String.fromCodePoint(c))) {
        first[c] = long
        break
      }
    }
  } catch {}
}
const letters = 'abcdefghijklmnopqrstuvwxyz'
for (const a of letters.toUpperCase()) for (const b of letters) for (const c of letters) for (const d of letters) {
  const short = a + b + c + d
  let script
  try { script = new RegExp(`\\p{sc=${short}}`, 'u') } catch { continue }
  for (const point in first) {
    if (script.test(String.fromCodePoint(point)) && first[point] !== short) {
      console.log('Script', short, first[point])
      break
    }
  }
}
