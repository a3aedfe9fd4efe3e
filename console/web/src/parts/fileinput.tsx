import { useState } from 'react'
import { Button } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import { bytes } from '../lib/format'
import { peek, type Peek } from '../lib/peek'
import { upload } from '../lib/upload'
import { Problem } from './load'

// FileInput uploads the chosen file and shows its columns.
export function FileInput({ fileID, uploaded, peeked }: { fileID: string; uploaded: (id: string) => void; peeked: (p: Peek, name: string) => void }) {
  const [file, setFile] = useState<File>()
  const [sent, setSent] = useState(0)
  const [format, setFormat] = useState('')
  const [stop, setStop] = useState<AbortController>()
  const run = useMutation({
    mutationFn: async (f: File) => {
      const abort = new AbortController()
      setStop(abort)
      const p = await peek(f)
      setFormat(p.format)
      peeked(p, f.name)
      return upload(f, setSent, abort.signal)
    },
    onSuccess: uploaded,
  })
  const take = (f: File | null | undefined) => {
    if (!f) return
    setFile(f)
    setSent(0)
    uploaded('')
    run.mutate(f)
  }
  return (
    <div
      className="drop"
      onDragOver={(e) => e.preventDefault()}
      onDrop={(e) => {
        e.preventDefault()
        take(e.dataTransfer.files[0])
      }}
    >
      <label>
        <span>Choose a file or drop it here: CSV, TSV, Parquet, JSON Lines or plain text, also with gzip</span>
        <input type="file" disabled={run.isPending} onChange={(e) => take(e.currentTarget.files?.[0])} />
      </label>
      {file && (
        <p className="small" role="status">
          {file.name}, {bytes(file.size)}
          {format && `, ${format}`}: {run.isPending ? `${bytes(sent)} sent` : run.isSuccess ? 'uploaded' : run.isError ? 'not uploaded' : ''}
        </p>
      )}
      {!file && fileID && <p className="small">The file <code>{fileID}</code> is uploaded already.</p>}
      {run.isPending && (
        <div className="actions">
          <progress aria-label="Upload" max={file?.size} value={sent} />
          <Button size="xs" variant="default" onClick={() => stop?.abort()}>
            Stop
          </Button>
        </div>
      )}
      {run.error && <Problem error={run.error} again={() => take(file)} />}
    </div>
  )
}
