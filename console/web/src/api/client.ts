const root = new URL('../', document.baseURI)

export const apiURL = (path: string) => new URL(path.slice(1), root).href

export type FieldError = { field: string; message: string }

// An ApiError is an answer that reports an error. code is empty if the node did not
// answer.
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly code = '',
    readonly requestID: string | null = null,
    readonly fields: FieldError[] = [],
  ) {
    super(message)
  }
}

const signedOut = new EventTarget()

export const onSignedOut = (f: () => void) => {
  signedOut.addEventListener('out', f)
  return () => signedOut.removeEventListener('out', f)
}

export const signOut = () => signedOut.dispatchEvent(new Event('out'))

// shareFor is the largest age of an answer that several open pages may share, so that
// many pages cost the node no more than one. After its own changes, a page reads again.
export const shareFor = 1_000

let changed = 0

let answered = Date.now()

// lastAnswer returns when the node last answered a request.
export const lastAnswer = () => answered

type Options = { method?: string; body?: unknown; headers?: Record<string, string>; signal?: AbortSignal }

export async function request(path: string, options: Options = {}): Promise<Response> {
  const { body, headers, ...rest } = options
  const form = body instanceof FormData
  let answer: Response
  try {
    answer = await fetch(apiURL(path), {
      ...rest,
      credentials: 'same-origin',
      headers: { Accept: 'application/json', ...(body && !form ? { 'Content-Type': 'application/json' } : {}), ...headers },
      body: body === undefined ? undefined : form ? body : JSON.stringify(body),
    })
  } catch (e) {
    if (options.signal?.aborted) throw e
    throw new ApiError(0, 'The node cannot be reached.')
  }
  answered = Date.now()
  if (rest.method && rest.method !== 'GET') changed = Date.now()
  if (answer.ok) return answer
  if (answer.status === 401 && path !== '/console/session') signOut()
  throw await errorOf(answer)
}

// Routes for other dialects wrap their errors in an object.
async function errorOf(answer: Response) {
  const body = await answer.json().catch(() => ({}))
  const e = typeof body.error === 'object' && body.error ? body.error : body
  return new ApiError(
    answer.status,
    e.message || `${answer.status} ${answer.statusText}`,
    e.code ?? '',
    body.request_id ?? answer.headers.get('X-Request-Id'),
    e.errors ?? [],
  )
}

// patience is how long a page waits for an answer before it reports that none came.
const patience = 20_000

export async function get<T>(path: string, signal: AbortSignal): Promise<T> {
  const late = AbortSignal.timeout(patience)
  const headers = Date.now() - changed > shareFor ? { 'Cache-Control': `max-age=${shareFor / 1_000}` } : undefined
  try {
    return await (await request(path, { signal: AbortSignal.any([signal, late]), headers })).json()
  } catch (e) {
    if (late.aborted && !signal.aborted) throw new ApiError(408, `The node has not answered for ${patience / 1_000} s.`)
    throw e
  }
}

export const send = async <T>(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<T> =>
  (await request(path, { method, body, headers })).json()

export const query = (params: Record<string, string | number | boolean | null | undefined>) => {
  const q = new URLSearchParams()
  for (const [k, v] of Object.entries(params)) if (v !== undefined && v !== null && v !== '') q.set(k, String(v))
  const s = q.toString()
  return s && `?${s}`
}
