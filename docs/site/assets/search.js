// Search over all pages. sections.js has the sections of all pages, each with title, heading, path
// and text. It is a script, because a page on a disk cannot fetch a file.
const root = document.querySelector('link[rel="index"]').href
const field = document.querySelector('#search input')
const list = document.querySelector('#search ol')

// score returns how well a section fits the words; 0 if a word is missing.
function score(section, words) {
  const title = (section.title + ' ' + section.heading).toLowerCase(), text = section.text.toLowerCase()
  let sum = 0
  for (const word of words) {
    const there = title.includes(word) ? 10 : text.includes(word) ? 1 : 0
    if (!there) return 0
    sum += there
  }
  return sum
}

function excerpt(text, word) {
  const at = Math.max(0, text.toLowerCase().indexOf(word) - 40)
  return (at > 0 ? '…' : '') + text.slice(at, at + 140) + '…'
}

function show() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean)
  const found = words.length === 0 ? [] : sections.map((s) => [score(s, words), s]).filter(([n]) => n > 0).sort((a, b) => b[0] - a[0]).slice(0, 12)
  list.replaceChildren(...found.map(([, s]) => {
    const entry = document.createElement('li'), link = document.createElement('a'), text = document.createElement('span')
    link.href = new URL(s.path, root)
    link.textContent = s.heading === s.title ? s.title : s.title + ': ' + s.heading
    text.textContent = excerpt(s.text, words[0])
    entry.append(link, text)
    return entry
  }))
  if (words.length > 0 && found.length === 0) list.textContent = 'Nothing found.'
}
field.addEventListener('input', show)
document.querySelector('#search').hidden = false
document.addEventListener('keydown', (e) => {
  if (e.key === '/' && !/INPUT|TEXTAREA/.test(document.activeElement.tagName)) {
    e.preventDefault()
    field.focus()
  }
})
