import { apiURL, ApiError, send } from '../api/client'
import type { Upload, UploadPart } from '../api/types'

const partSize = 16 << 20

// upload sends a file in parts and returns its id. An aborted upload is also cancelled
// at the node.
export async function upload(file: File, progress: (sent: number) => void, signal: AbortSignal): Promise<string> {
  const { id } = await send<Upload>('POST', '/v1/uploads', { bytes: file.size, filename: file.name, purpose: 'user_data' })
  try {
    const parts: string[] = []
    for (let at = 0; at < file.size; at += partSize) {
      const part = await sendPart(id, file.slice(at, at + partSize), (n) => progress(at + n), signal)
      parts.push(part.id)
    }
    const whole = await send<Upload>('POST', `/v1/uploads/${id}/complete`, { part_ids: parts })
    return whole.file!.id
  } catch (e) {
    void send('POST', `/v1/uploads/${id}/cancel`).catch(() => {})
    throw e
  }
}

// Only XMLHttpRequest reports how much of a body is sent.
function sendPart(id: string, part: Blob, progress: (sent: number) => void, signal: AbortSignal) {
  return new Promise<UploadPart>((done, fail) => {
    const form = new FormData()
    form.append('data', part)
    const r = new XMLHttpRequest()
    r.open('POST', apiURL(`/v1/uploads/${id}/parts`))
    r.responseType = 'json'
    r.upload.onprogress = (e) => progress(Math.min(e.loaded, part.size))
    r.onload = () =>
      r.status === 200
        ? done(r.response)
        : fail(new ApiError(r.status, r.response?.error?.message ?? r.response?.message ?? `${r.status}`, r.response?.error?.code ?? r.response?.code))
    r.onerror = () => fail(new ApiError(0, 'The node cannot be reached.'))
    r.onabort = () => fail(new Error('You have cancelled the upload.'))
    signal.addEventListener('abort', () => r.abort())
    r.send(form)
  })
}
