import { useEffect, useId, useRef, useState, type ReactNode } from 'react'
import { Button, Kbd, Modal, TextInput } from '@mantine/core'
import { useDebouncedValue, useDisclosure, useHotkeys } from '@mantine/hooks'
import { useLocation } from 'wouter'
import { useCan, useGet } from '../api/hooks'
import type { Engines, Fn, Job, JobPage } from '../api/types'
import { ago, idEnd, plural } from '../lib/format'
import { useLogOut } from './account'
import { openStatuses, State, titleOf } from './job'
import { useMenu } from './menu'
import { outputHref, useServers } from './servers'

const keys: [string, string][] = [
  ['Ctrl K', 'Go to a page, a Function, a job or a row'],
  ['/', 'Search on this page'],
  ['j and k', 'Next and previous entry of a list'],
  ['← and →', 'Previous and next row, in an open row'],
  ['?', 'Show the keys'],
]

const shownJobs = 8
const newestJobs = 5 // the jobs before a text is typed
const readJobs = 50 // the newest jobs that match, of which the best are shown

// Palette opens with Ctrl-K. It goes to a page, an engine, a Function, a job by name or id, or a row: "job#47". It
// also handles the keys of lists.
export function Palette() {
  const [opened, { open, close }] = useDisclosure()
  const [help, { open: showHelp, close: hideHelp }] = useDisclosure()
  useHotkeys([['mod+K', open]], []) // in fields, too
  useHotkeys([
    ['/', () => document.querySelector<HTMLInputElement>('main input[type="search"]')?.focus()],
    ['j', () => step(1)],
    ['k', () => step(-1)],
    ['shift+?', showHelp],
    ['?', showHelp],
  ])
  return (
    <>
      <Button className="go" size="xs" variant="default" onClick={open} rightSection={<Kbd size="xs">Ctrl K</Kbd>}>
        Go to
      </Button>
      <Modal opened={opened} onClose={close} title="Go to" size="lg" centered={false}>
        {opened && <Finder close={close} />}
      </Modal>
      <Modal opened={help} onClose={hideHelp} title="Keys">
        <dl className="facts">
          {keys.map(([key, use]) => (
            <div key={key}>
              <dt><Kbd>{key}</Kbd></dt>
              <dd>{use}</dd>
            </div>
          ))}
        </dl>
      </Modal>
    </>
  )
}

// step moves the focus to the next (1) or previous (-1) entry of the lists of a page.
function step(by: number) {
  const entries = [...document.querySelectorAll<HTMLElement>('main .rows [role="listitem"] button:enabled, main tbody tr > td:first-child :is(a, button), main tbody tr > td:nth-child(2) :is(a, button):only-of-type')]
  const at = entries.indexOf(document.activeElement as HTMLElement)
  entries[at < 0 ? 0 : Math.max(0, Math.min(entries.length - 1, at + by))]?.focus()
}

// A Place is a page to go to, or an action.
type Place = { group: string; name: string; to?: string; act?: () => void; note?: ReactNode }

function Finder({ close }: { close: () => void }) {
  const [typed, setTyped] = useState('')
  const [at, setAt] = useState(0)
  const [, go] = useLocation()
  const id = useId()
  const { places, more, searching } = usePlaces(typed.trim())
  const list = useRef<HTMLDivElement>(null)
  useEffect(() => setAt(0), [typed])
  useEffect(() => void list.current?.querySelector(at ? '[aria-selected=true]' : '.group')?.scrollIntoView({ block: 'nearest' }), [at])
  const chosen = places[Math.min(at, places.length - 1)]
  const visit = (place?: Place) => {
    if (!place) return
    close()
    place.act?.()
    if (place.to) go(place.to)
  }
  return (
    <>
      <TextInput
        data-autofocus
        aria-label="Page, engine, Function, job or row"
        placeholder="Page, engine, Function or job"
        value={typed}
        onChange={(e) => setTyped(e.currentTarget.value)}
        role="combobox"
        aria-expanded
        aria-controls={id}
        aria-activedescendant={chosen && `${id}-${places.indexOf(chosen)}`}
        onKeyDown={(e) => {
          if (e.key === 'ArrowDown') setAt(Math.min(at + 1, places.length - 1))
          else if (e.key === 'ArrowUp') setAt(Math.max(at - 1, 0))
          else if (e.key === 'Enter') visit(chosen)
          else return
          e.preventDefault()
        }}
      />
      <div id={id} role="listbox" aria-label="Places" className="places" ref={list}>
        {Object.entries(Object.groupBy(places, (p) => p.group)).map(([group, of]) => (
          <ul key={group} role="group" aria-label={group}>
            <li className="group" aria-hidden="true">{group}</li>
            {of!.map((place) => (
              <li key={`${place.name} ${place.to}`} id={`${id}-${places.indexOf(place)}`} role="option" aria-selected={place === chosen} onClick={() => visit(place)}>
                <span className="place">{place.name}</span> {place.note}
              </li>
            ))}
          </ul>
        ))}
      </div>
      {places.length === 0 && (searching ? <p className="small">Searching…</p> : <p role="status">Nothing matches this text.</p>)}
      {more && <p role="status" className="small">{more}</p>}
      <p className="small keys"><Kbd size="xs">↑</Kbd> <Kbd size="xs">↓</Kbd> choose, <Kbd size="xs">Enter</Kbd> opens, <Kbd size="xs">Esc</Kbd> closes. <span className="unbroken"><Kbd size="xs">name#12</Kbd> opens row 12 of the job.</span></p>
    </>
  )
}

// useTasks returns places where the user may begin something, and lists of jobs.
function useTasks(): { to: string; name: string }[] {
  const can = useCan()
  const [path] = useLocation()
  const job = /^\/jobs\/job-[^/]+/.exec(path)?.[0]
  return [
    ...(job ? [{ to: `${job}/rows?failed=1`, name: 'Failed rows of this job' }] : []),
    { to: '/jobs?status=failed', name: 'Failed jobs' },
    { to: `/jobs?status=${openStatuses}`, name: 'Running and waiting jobs' },
    ...(can.act ? [{ to: '/jobs/new?file', name: 'New job from a file' }, { to: '/jobs/new?sample', name: 'New job from an example' }] : []),
    ...(can.administer ? [{ to: '/functions/new', name: 'New Function' }] : []),
  ]
}

// useEngineNames returns the names of engines and servers, for operators. A server that failed leads to its output.
function useEngineNames() {
  const can = useCan()
  const engines = useGet<Engines>('/v1/engines', { enabled: can.operate, fresh: 30_000 }).data?.engines ?? []
  const names = new Map(engines.map((e) => [e.name, '/engines']))
  for (const s of useServers(false)) names.set(s.name, s.error ? outputHref(s) : '/engines')
  return [...names].map(([name, to]) => ({ group: 'Engines', to, name }))
}

// usePlaces returns the pages, engines, Functions and jobs that match a text, and how many more jobs match.
// searching means that the jobs are not known yet. Without a text the newest jobs come first. "#47" after
// a job means its row 47; without a job, it means a row of a newest job.
function usePlaces(typed: string): { places: Place[]; more?: string; searching?: boolean } {
  const [, text = '', row] = /^(.*?)(?:#(\d*))?$/.exec(typed)!
  const [wanted] = useDebouncedValue(text, 200)
  const jobs = useGet<JobPage>(`/v1/list-jobs?limit=${readJobs}&q=${encodeURIComponent(wanted)}`, { enabled: wanted.length > 1, fresh: 5_000 })
  const newest = useGet<JobPage>(`/v1/list-jobs?limit=${newestJobs}`, { fresh: 5_000 })
  const functions = useGet<{ functions: Fn[] }>('/v1/functions', { fresh: 60_000 }).data?.functions ?? []
  const { mutate: logOut } = useLogOut()
  const actions: Place[] = /^log ?out/i.test(text) ? [{ group: 'Actions', name: 'Log out', act: logOut }] : [] // only for its whole name, because it needs no other click
  const words = text.toLowerCase().split(/\s+/)
  const places: Place[] = [
    ...[...useMenu().flatMap(([, entries]) => entries), ...useTasks()].map(({ to, name }) => ({ group: 'Pages', to, name })),
    ...useEngineNames().filter(() => text),
    ...functions.filter(() => text).map((f) => ({ group: 'Functions', to: `/functions/${f.name}`, name: f.name })),
  ].filter((p) => row === undefined && words.every((w) => p.name.toLowerCase().includes(w)))
  const found = wanted.length > 1 && wanted === text ? (jobs.data?.jobs ?? []) : []
  // distance orders jobs: names that begin with the text come first, then the shortest names.
  const distance = (j: Job) => titleOf(j).length + (titleOf(j).toLowerCase().startsWith(text.toLowerCase()) ? 0 : 1_000)
  const place = (group: string) => (j: Job): Place => ({
    group,
    to: row === undefined ? `/jobs/${j.job_id}` : `/jobs/${j.job_id}/rows${row && `?row=${row}&open=${row}`}`,
    name: `${titleOf(j)}${row === undefined ? '' : `, row ${row}`}`,
    note: <><State job={j} /> <span className="small">{ago(j.datetime_created)}</span> <span className="id">{idEnd(j.job_id)}</span></>,
  })
  if (text === '') return { places: [...(newest.data?.jobs ?? []).map(place('Newest jobs')), ...places], searching: newest.isPending }
  const hidden = found.length - shownJobs
  return {
    places: [...places, ...found.toSorted((a, b) => distance(a) - distance(b)).slice(0, shownJobs).map(place('Jobs')), ...actions],
    more: hidden > 0 ? `${jobs.data?.next_cursor ? 'At least ' : ''}${plural(hidden, 'more job')} ${hidden === 1 ? 'matches' : 'match'}. Type more of the name.` : undefined,
    searching: text.length > 1 && (wanted !== text || jobs.isPending),
  }
}
