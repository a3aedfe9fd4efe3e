import { useEffect, useState } from 'react'
import { Button } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import { get, request } from '../api/client'
import { bytes } from '../lib/format'
import { headSize, peek, type Peek } from '../lib/peek'
import { upload } from '../lib/upload'
import { Problem } from './load'

// FileInput uploads the chosen file and shows its columns. fileID and name are of a file that was
// uploaded before; FileInput reads its columns, unless known is true.
export function FileInput({ fileID, name, known, uploaded, peeked }: { fileID: string; name?: string; known: boolean; uploaded: (id: string) => void; peeked: (p: Peek, name: string) => void }) {
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
  const stored = useMutation({
    mutationFn: async ({ id, signal }: { id: string; signal: AbortSignal }) => {
      const { filename, bytes } = await get<{ filename: string; bytes: number }>(`/v1/files/${id}`, signal)
      const head = await request(`/v1/files/${id}/content`, { headers: { Range: `bytes=0-${headSize - 1}` }, signal })
      peeked(await peek(new File([await head.blob()], filename), bytes), filename)
    },
  })
  useEffect(() => {
    if (!fileID || file || known) return
    const abort = new AbortController()
    stored.mutate({ id: fileID, signal: abort.signal })
    return () => abort.abort()
  }, [fileID])
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
      {!file && fileID && !stored.error && <p className="small">The file <strong>{name || fileID}</strong> is uploaded already.</p>}
      {run.isPending && (
        <div className="actions">
          <progress aria-label="Upload" max={file?.size} value={sent} />
          <Button size="xs" variant="default" onClick={() => stop?.abort()}>
            Stop
          </Button>
        </div>
      )}
      {run.error && <Problem error={run.error} again={() => take(file)} />}
      {!file && stored.error && <Problem error={stored.error} />}
    </div>
  )
}
