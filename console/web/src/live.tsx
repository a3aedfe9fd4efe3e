import { createContext, useContext, useEffect, useState, type ReactNode } from 'react'
import { useDocumentVisibility, useLocalStorage } from '@mantine/hooks'
import { skipToken, useQuery, useQueryClient, type InfiniteData, type QueryClient } from '@tanstack/react-query'
import { useRoute, useSearch } from 'wouter'
import { apiURL, lastAnswer, shareFor, signOut } from './api/client'
import { poll, refresh } from './api/hooks'
import type { Job, JobPage } from './api/types'
import { over } from './parts/job'

// on: events arrive. polling: the stream is down, so pages ask every 5 s. off: switched
// off, or the tab is hidden. silentSince is the time of the node's last answer, if the node
// does not answer.
type State = 'on' | 'polling' | 'off'
type Live = { state: State; silentSince?: number; wanted: boolean; want: (on: boolean) => void }

const Context = createContext<Live>({ state: 'off', wanted: false, want: () => {} })

export const useLive = () => useContext(Context)

// useEvery returns how often to repeat a query without events.
export const useEvery = (ms: number) => useContext(Context).state !== 'off' && ms

const pollEvery = 5_000
const connectAgain = 60_000

// LiveProvider holds the only stream of this tab. Browsers allow six connections to an
// origin, so the stream is closed while the tab is hidden.
export function LiveProvider({ children }: { children: ReactNode }) {
  const client = useQueryClient()
  const visible = useDocumentVisibility() !== 'hidden'
  const [wanted, want] = useLocalStorage({ key: 'rowmill-live', defaultValue: true, getInitialValueInEffect: false })
  const [open, setOpen] = useState(false)
  const [attempt, setAttempt] = useState(0)
  const [, params] = useRoute('/jobs/:id/*?')
  const other = new URLSearchParams(useSearch()).has('account') // there are no events of other accounts
  const onPage = params?.id?.startsWith('job-') && !other ? params.id : undefined
  // The page asks for the job. A stream with a job that does not exist would be refused.
  const found = useQuery({ queryKey: [`/v1/jobs/${onPage}`], queryFn: skipToken, select: () => true }).data
  const job = found ? onPage : undefined
  const active = wanted && visible

  useEffect(() => {
    if (!active) return
    const stream = new EventSource(apiURL(`/v1/events?topics=jobs${job ? `,job:${job}` : ''}`))
    const paths = new Set<string>()
    const read = debounced((last) => {
      void refresh(client, ...paths)
      if (last) paths.clear()
    }, shareFor) // the answer is then newer than the event
    const counts = debounced(() => void refresh(client, '/v1/jobs/counts'), 2_500) // a node counts every 2 s
    const moved = (path: string) => {
      paths.add(path)
      read.run()
      counts.run()
    }
    let again: ReturnType<typeof setTimeout> | undefined
    stream.addEventListener('job', (e) => take(client, JSON.parse((e as MessageEvent).data), moved))
    stream.addEventListener('ready', () => setOpen(true))
    stream.addEventListener('resync', () => void refresh(client, '/v1/'))
    stream.addEventListener('expired', signOut)
    stream.onerror = () => {
      setOpen(false)
      if (stream.readyState === EventSource.CLOSED) again = setTimeout(() => setAttempt((n) => n + 1), connectAgain)
    }
    return () => {
      stream.close()
      read.stop()
      counts.stop()
      clearTimeout(again)
      setOpen(false)
    }
  }, [active, job, client, attempt])

  useEffect(() => {
    if (!active || open) return
    const ask = setInterval(() => void poll(client, '/v1/list-jobs', '/v1/jobs/', '/v1/nodes'), pollEvery)
    return () => clearInterval(ask)
  }, [active, open, client])

  const silentSince = useSilence(client, active)
  return <Context.Provider value={{ state: active ? (open ? 'on' : 'polling') : 'off', silentSince, wanted, want }}>{children}</Context.Provider>
}

// A node that hangs keeps its connections open and sends nothing. So the page asks it for
// something small, and reports silence after two requests without an answer.
const askEvery = 4_000
const silentAfter = 2 * askEvery + 1_000

function useSilence(client: QueryClient, active: boolean) {
  const [since, setSince] = useState<number>()
  useEffect(() => {
    if (!active) return
    const start = Date.now() // requests before it were of a page that had stopped
    const ask = setInterval(() => void poll(client, '/v1/me'), askEvery)
    const look = setInterval(() => {
      const last = Math.max(start, lastAnswer())
      setSince(Date.now() - last > silentAfter ? last : undefined)
    }, 1_000)
    return () => {
      clearInterval(ask)
      clearInterval(look)
      setSince(undefined)
    }
  }, [client, active])
  return since
}

// take puts a job into every cached answer that contains it. If the job's status has
// changed, or the job has ended, it reads the job's other data again: a request may have read the new
// status before the event. It reads lists again if the job is new
// to them or may have moved.
function take(client: QueryClient, job: Job, read: (path: string) => void) {
  const path = `/v1/jobs/${job.job_id}`
  const before = client.getQueryData<{ job: Job }>([path])?.job
  if (before) client.setQueryData([path], { job })
  if (before && (before.status !== job.status || over(job.status))) read(`${path}/`)
  let known = false
  const put = <P extends JobPage>(page: P): P => {
    const at = page.jobs.findIndex((j) => j.job_id === job.job_id)
    if (at < 0) return page
    known ||= page.jobs[at]!.status === job.status && page.jobs[at]!.paused === job.paused
    return { ...page, jobs: page.jobs.with(at, { ...job, account: page.jobs[at]!.account }) }
  }
  client.setQueriesData<InfiniteData<JobPage> | JobPage>({ predicate: (q) => String(q.queryKey[0]).startsWith('/v1/list-jobs') }, (list) => {
    if (!list) return list
    return 'pages' in list ? { ...list, pages: list.pages.map(put) } : put(list)
  })
  if (!known) read('/v1/list-jobs')
}

// debounced calls f once, ms after run. A run in this time causes another call, ms after the first,
// because an answer that pages share may be older than that run. last is false if a call follows.
function debounced(f: (last: boolean) => void, ms: number) {
  let timer: ReturnType<typeof setTimeout> | undefined
  let isLate = false
  const start = () => {
    timer = setTimeout(() => {
      timer = undefined
      const last = !isLate
      isLate = false
      f(last)
      if (!last) start()
    }, ms)
  }
  return {
    run: () => {
      if (timer) isLate = true
      else start()
    },
    stop: () => clearTimeout(timer),
  }
}
