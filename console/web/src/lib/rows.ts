// rowsOf returns a row for each line. If all lines are JSON strings, the rows are their
// values, which may have line breaks. Rows of a Function may be objects. It returns null if a
// line begins like an object but is not valid JSON.
export function rowsOf(s: string, objects: boolean): unknown[] | null {
  const lines = s.split('\n').map((l) => l.replace(/\r$/, '')).filter((l) => l.trim())
  const strings = jsonStrings(lines)
  if (strings || !objects) return strings ?? lines
  try {
    return lines.map((l) => (l.trimStart().startsWith('{') ? JSON.parse(l) : l))
  } catch {
    return null
  }
}

// linesOf returns a text from which rowsOf makes these rows.
export const linesOf = (rows: string[]) =>
  (rows.some((r) => /[\r\n]/.test(r)) || jsonStrings(rows) ? rows.map((r) => JSON.stringify(r)) : rows).join('\n')

function jsonStrings(lines: string[]): string[] | undefined {
  if (lines.length === 0 || !lines.every((l) => l.trimStart().startsWith('"'))) return undefined
  try {
    return lines.map((l) => JSON.parse(l))
  } catch {
    return undefined
  }
}

// isChat reports whether a row is a list of messages, as JSON.
export function isChat(row: string): boolean {
  if (!row.startsWith('[')) return false
  try {
    return JSON.parse(row).every((m: { role?: unknown }) => typeof m?.role === 'string')
  } catch {
    return false
  }
}
