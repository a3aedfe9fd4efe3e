// What a file says of itself in its first 256 KiB, without uploading it.
export type Peek = { format: 'CSV' | 'JSON Lines' | 'Parquet'; columns: string[] }

export async function peek(file: File): Promise<Peek> {
  let head = new Uint8Array(await file.slice(0, 256 << 10).arrayBuffer())
  if (head[0] === 0x1f && head[1] === 0x8b) head = await gunzip(head)
  if (new TextDecoder().decode(head.slice(0, 4)) === 'PAR1') return { format: 'Parquet', columns: [] }
  const start = new TextDecoder().decode(head).trimStart()
  if (start.startsWith('{')) return { format: 'JSON Lines', columns: members(start) }
  return { format: 'CSV', columns: header(start) }
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

function members(s: string) {
  try {
    return Object.keys(JSON.parse(s.slice(0, s.indexOf('\n') + 1 || undefined)))
  } catch {
    return []
  }
}

// header is the first record of a CSV by RFC 4180.
export function header(s: string): string[] {
  const names: string[] = []
  let name = ''
  let quoted = false
  for (let i = 0; i < s.length; i++) {
    const c = s[i]!
    if (quoted) {
      if (c !== '"') name += c
      else if (s[i + 1] === '"') name += s[i++]
      else quoted = false
    } else if (c === '"') quoted = true
    else if (c === ',') {
      names.push(name)
      name = ''
    } else if (c === '\n' || c === '\r') break
    else name += c
  }
  names.push(name)
  return names
}
