export type Piece = { sign: ' ' | '-' | '+'; text: string }

export const lines = (text: string) => text.split('\n')
export const words = (text: string) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? []

// most limits the work of a diff: the product of the numbers of pieces that remain after
// the equal beginning and end.
const most = 4_000_000

// diff compares two texts by the longest common subsequence of their pieces, such as lines
// or words. It returns undefined for texts that are too long.
export function diff(a: string[], b: string[]): Piece[] | undefined {
  let first = 0
  while (first < a.length && first < b.length && a[first] === b[first]) first++
  let last = 0
  while (last < a.length - first && last < b.length - first && a[a.length - 1 - last] === b[b.length - 1 - last]) last++
  const [n, m] = [a.length - last, b.length - last]
  if ((n - first) * (m - first) > most) return undefined
  const common = Array.from({ length: n - first + 1 }, () => new Uint32Array(m - first + 1))
  for (let i = n - 1; i >= first; i--)
    for (let j = m - 1; j >= first; j--) {
      const [row, below] = [common[i - first]!, common[i - first + 1]!]
      row[j - first] = a[i] === b[j] ? below[j - first + 1]! + 1 : Math.max(below[j - first]!, row[j - first + 1]!)
    }
  const same = (text: string): Piece => ({ sign: ' ', text })
  const pieces = a.slice(0, first).map(same)
  let [i, j] = [first, first]
  while (i < n || j < m) {
    if (i < n && j < m && a[i] === b[j]) {
      pieces.push(same(a[i++]!))
      j++
    } else if (j >= m || (i < n && common[i - first + 1]![j - first]! >= common[i - first]![j - first + 1]!)) pieces.push({ sign: '-', text: a[i++]! })
    else pieces.push({ sign: '+', text: b[j++]! })
  }
  return pieces.concat(a.slice(n).map(same))
}

// beforeDifference returns where to cut long texts so that they begin a few words before their first
// difference: 0 if that is near the beginning, or if the texts are equal.
export function beforeDifference([first = '', ...others]: string[]): number {
  let at = 0
  while (at < first.length && others.every((t) => t[at] === first[at])) at++
  if (others.every((t) => t === first)) return 0
  const start = first.lastIndexOf(' ', at - 20)
  return start < 40 ? 0 : start
}

// join joins neighbours with the same sign.
export function join(pieces: Piece[]): Piece[] {
  const joined: Piece[] = []
  for (const p of pieces) {
    const before = joined.at(-1)
    if (before?.sign === p.sign) before.text += p.text
    else joined.push({ ...p })
  }
  return joined
}
