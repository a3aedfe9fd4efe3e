// What a file says of itself in its first 256 KiB, without uploading it: its
// columns, the values of its first rows in them, and, where that is all of the
// file, how many rows it has.
export type Peek = { format: 'CSV' | 'JSON Lines' | 'Parquet'; columns: string[]; first: string[][]; rows?: number }

const headSize = 256 << 10
const firstRows = 3

export async function peek(file: File): Promise<Peek> {
  let head = new Uint8Array(await file.slice(0, headSize).arrayBuffer())
  const gzip = head[0] === 0x1f && head[1] === 0x8b
  const whole = file.size <= headSize && !gzip
  if (gzip) head = await gunzip(head)
  if (new TextDecoder().decode(head.slice(0, 4)) === 'PAR1') return { format: 'Parquet', columns: [], first: [] }
  const start = new TextDecoder().decode(head).trimStart()
  if (start.startsWith('{')) return { format: 'JSON Lines', ...members(start, whole) }
  const [columns = [], ...rows] = records(start)
  if (!whole) rows.pop() // it may be cut
  return { format: 'CSV', columns, first: rows.slice(0, firstRows), rows: whole ? rows.length : undefined }
}

// likelyPrompts is the column whose first values have most text.
export function likelyPrompts({ columns, first }: Peek): string {
  const text = columns.map((_, i) => first.reduce((sum, row) => sum + (row[i]?.length ?? 0), 0))
  return columns[text.indexOf(Math.max(...text))] ?? ''
}

// gunzip decodes as far as the bytes go: a cut stream ends in an error.
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
    // what came before is enough
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

// records are those of a CSV by RFC 4180; empty lines are none.
export function records(s: string): string[][] {
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
    } else if (c === '"') quoted = true
    else if (c === ',') {
      record.push(field)
      field = ''
    } else if (c === '\n' || c === '\r') end()
    else field += c
  }
  end()
  return all
}
