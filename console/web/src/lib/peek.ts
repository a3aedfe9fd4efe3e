// A Peek describes a file from its first 256 KiB, without an upload: its columns, the
// values of its first rows, and the number of rows if the file is not longer.
export type Peek = { format: 'CSV' | 'JSON Lines' | 'Parquet' | 'plain text'; columns: string[]; first: string[][]; rows?: number }

export const headSize = 256 << 10
const firstRows = 3

// peek describes a file. size is its length if file has only the beginning.
export async function peek(file: File, size = file.size): Promise<Peek> {
  let head = new Uint8Array(await file.slice(0, headSize).arrayBuffer())
  const gzip = head[0] === 0x1f && head[1] === 0x8b
  const whole = size <= headSize && !gzip
  if (gzip) head = await gunzip(head)
  if (new TextDecoder().decode(head.slice(0, 4)) === 'PAR1') return { format: 'Parquet', columns: [], first: [] }
  const start = new TextDecoder().decode(head).trimStart()
  if (start.startsWith('{')) return { format: 'JSON Lines', ...members(start, whole) }
  const name = file.name.toLowerCase().replace(/\.gz$/, '')
  const lines = () => start.split('\n').filter((l) => l.trim()).length
  if (/\.te?xt$/.test(name)) return { format: 'plain text', columns: [], first: [], rows: whole ? lines() : undefined }
  if (/\.(jsonl|ndjson|json)$/.test(name)) return { format: 'JSON Lines', columns: [], first: [], rows: whole ? lines() : undefined }
  const [columns = [], ...rows] = records(start, /\.(tsv|tab)$/.test(name) ? '\t' : separator(start))
  if (!whole) rows.pop() // the last row may be cut
  return { format: 'CSV', columns, first: rows.slice(0, firstRows), rows: whole ? rows.length : undefined }
}

// likelyPrompts returns the column whose first values have the most text.
export function likelyPrompts({ columns, first }: Peek): string {
  const text = columns.map((_, i) => first.reduce((sum, row) => sum + (row[i]?.length ?? 0), 0))
  return columns[text.indexOf(Math.max(...text))] ?? ''
}

// gunzip decodes as much as possible: a cut stream ends in an error.
async function gunzip(bytes: Uint8Array<ArrayBuffer>) {
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip')).getReader()
  const parts: Uint8Array[] = []
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) break
      parts.push(value)
    }
  } catch {
    // the decoded part is enough
  }
  return new Uint8Array(await new Blob(parts as BlobPart[]).arrayBuffer())
}

function members(s: string, whole: boolean): Omit<Peek, 'format'> {
  const lines = s.split('\n').filter((l) => l.trim())
  const objects: Record<string, unknown>[] = []
  try {
    for (const line of lines.slice(0, firstRows)) objects.push(JSON.parse(line))
  } catch {
    // the last line may be cut
  }
  const columns = Object.keys(objects[0] ?? {})
  const text = (v: unknown) => (typeof v === 'string' ? v : JSON.stringify(v) ?? '')
  return { columns, first: objects.map((o) => columns.map((c) => text(o[c]))), rows: whole ? lines.length : undefined }
}

// separator chooses the separator like the service without a column name: a comma if
// the first line has one, else the separator that gives the most columns.
function separator(s: string): string {
  const line = s.slice(0, s.indexOf('\n') + 1) || s
  const columns = (c: string) => records(line, c)[0]?.length ?? 0
  return columns(',') > 1 ? ',' : ['\t', ';', '|'].reduce((best, c) => (columns(c) > Math.max(1, columns(best)) ? c : best), ',')
}

// records returns the records of a CSV by RFC 4180. Empty lines are skipped.
function records(s: string, separator: string): string[][] {
  const all: string[][] = []
  let record: string[] = []
  let field = ''
  let quoted = false
  const end = () => {
    if (record.length > 0 || field) all.push([...record, field])
    record = []
    field = ''
  }
  for (let i = 0; i < s.length; i++) {
    const c = s[i]!
    if (quoted) {
      if (c !== '"') field += c
      else if (s[i + 1] === '"') field += s[i++]
      else quoted = false
    } else if (c === '"' && !field) quoted = true
    else if (c === separator) {
      record.push(field)
      field = ''
    } else if (c === '\n' || c === '\r') end()
    else field += c
  }
  end()
  return all
}
