const cell = (v: string | number) => (/[",\n\r]/.test(String(v)) ? `"${String(v).replaceAll('"', '""')}"` : String(v))

export const csv = (rows: (string | number)[][]) => rows.map((r) => r.map(cell).join(',') + '\r\n').join('')

// save downloads texts as one file.
export function save(name: string, ...texts: string[]) {
  const a = document.createElement('a')
  a.href = URL.createObjectURL(new Blob(texts, { type: 'text/csv' }))
  a.download = name
  a.click()
  setTimeout(() => URL.revokeObjectURL(a.href), 10_000)
}
