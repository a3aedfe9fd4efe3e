// Search over all pages, and buttons that copy code. sections.js has the sections of all pages, each with title, heading, path
// and text. It is a script, because a page on a disk cannot fetch a file.
const root = document.querySelector('link[rel="index"]').href
const field = document.querySelector('#search input')
const list = document.querySelector('#search ol')

// words returns the words to search for: without words that are in most sections, if others are left.
function words(query) {
  const all = query.toLowerCase().split(/[^\p{L}\p{N}_.-]+/u).filter(Boolean)
  const rare = all.filter((w) => !/^(a|an|and|are|can|do|does|for|how|i|if|in|is|it|my|of|on|or|the|to|what|when|where|which|with)$/.test(w))
  return rare.length ? rare : all
}

// pattern finds a word, words that begin with it, and its other forms, such as retries for retry.
function pattern(word) {
  const stem = word.length > 3 ? word.replace(/(ies|es|ed|ing|s|e|y)$/, '') : word
  const escaped = (s) => s.replace(/[^\p{L}\p{N}_]/gu, '\\$&')
  return new RegExp(`(?<![\\p{L}\\p{N}])(?:${escaped(word)}|${escaped(stem)}(?:ies|es|ed|ing|s|e|y|ion)?(?![\\p{L}\\p{N}]))`, 'u')
}

// find returns the sections that fit a query best, the best first. A heading counts more than a text, most
// if it has all words of the query and no others, and a rare word more than a frequent one. Pages about the design, records of
// decisions, measurements and the changelog come after pages with instructions.
function find(sections, query) {
  const phrase = query.trim().toLowerCase(), wanted = words(query)
  const counts = wanted.map((word) => sections.map((s) => {
    const count = (text) => text.toLowerCase().split(pattern(word)).length - 1
    return (count(s.heading) ? 10 : 0) + (count(s.title) ? 4 : 0) + Math.min(count(s.text), 4)
  }))
  const weights = counts.map((of) => Math.log(1 + sections.length / of.filter(Boolean).length))
  const score = (s, i) => {
    const there = counts.filter((of) => of[i]).length / wanted.length
    const heading = words(s.heading), first = s.heading.toLowerCase()
    const both = wanted.filter((w) => pattern(w).test(first)).length * heading.filter((h) => wanted.some((w) => pattern(w).test(h))).length / wanted.length / heading.length
    const sum = counts.reduce((sum, of, w) => sum + weights[w] * of[i], 0) + 40 * both + (first === phrase || (wanted.length > 1 && s.text.toLowerCase().includes(phrase)) ? 20 : 0)
    return (sum || 0) * there ** 3 * (/^(docs\/(adr\/|architecture|contract)|bench\/|CHANGELOG)/.test(s.path) ? 0.2 : 1)
  }
  return sections.map((s, i) => [wanted.length ? score(s, i) : 0, s]).filter(([n]) => n > 0).sort((a, b) => b[0] - a[0]).slice(0, 12).map(([, s]) => s)
}

// excerpt returns the text around a word. It begins and ends with whole words.
function excerpt(text, word) {
  const at = Math.max(0, text.toLowerCase().search(pattern(word)))
  const before = text.slice(Math.max(0, at - 40), at), after = text.slice(at, at + 140)
  return (at > 40 ? '…' + before.replace(/^\S*\s+/, '') : before) + (at + 140 < text.length ? after.replace(/\s+\S*$/, '') + '…' : after)
}

function show() {
  const found = find(sections, field.value)
  list.replaceChildren(...found.map((s) => {
    const entry = document.createElement('li'), link = document.createElement('a'), text = document.createElement('span')
    link.href = new URL(s.path, root)
    link.textContent = s.heading === s.title ? s.title : s.title + ': ' + s.heading
    text.textContent = excerpt(s.text, words(field.value)[0])
    entry.append(link, text)
    return entry
  }))
  if (field.value.trim() && found.length === 0) list.textContent = 'Nothing found.'
}
field.addEventListener('input', show)
field.addEventListener('focus', show)
// The list covers the page. It closes at a click outside, and when a link opens in this tab, because the link may lead to the same page.
document.addEventListener('click', (e) => {
  const opens = e.target.closest('#search a') && !e.ctrlKey && !e.metaKey && !e.shiftKey
  if (opens || !e.target.closest('#search')) list.replaceChildren()
})
document.querySelector('#search').hidden = false
document.addEventListener('keydown', (e) => {
  if (e.key === '/' && !/INPUT|TEXTAREA/.test(document.activeElement.tagName)) {
    e.preventDefault()
    field.focus()
  }
})

if (navigator.clipboard) {
  for (const code of document.querySelectorAll('pre code:not(.language-text)')) { // pictures and outputs are not copied
    const button = document.createElement('button')
    button.textContent = 'Copy'
    button.addEventListener('click', () => navigator.clipboard.writeText(code.textContent).then(() => { button.textContent = 'Copied' }))
    code.before(button)
  }
}
