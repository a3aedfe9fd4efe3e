export type Line = { sign: ' ' | '-' | '+'; text: string }

// diff compares by the longest common subsequence of lines.
export function diff(before: string, after: string): Line[] {
  const a = before.split('\n')
  const b = after.split('\n')
  const common = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1))
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      common[i]![j] = a[i] === b[j] ? common[i + 1]![j + 1]! + 1 : Math.max(common[i + 1]![j]!, common[i]![j + 1]!)
  const lines: Line[] = []
  let i = 0
  let j = 0
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ sign: ' ', text: a[i++]! })
      j++
    } else if (j >= b.length || (i < a.length && common[i + 1]![j]! >= common[i]![j + 1]!)) lines.push({ sign: '-', text: a[i++]! })
    else lines.push({ sign: '+', text: b[j++]! })
  }
  return lines
}
