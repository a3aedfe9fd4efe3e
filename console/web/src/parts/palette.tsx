import { useEffect, useId, useRef, useState, type ReactNode } from 'react'
import { Button, Kbd, Modal, TextInput } from '@mantine/core'
import { useDebouncedValue, useDisclosure, useHotkeys } from '@mantine/hooks'
import { useLocation } from 'wouter'
import { query } from '../api/client'
import { useCan, useGet } from '../api/hooks'
import type { Accounts, Engines, Fn, Job, JobPage } from '../api/types'
import { ago, idEnd, plural } from '../lib/format'
import { useIsOther, useLogOut } from './account'
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

// Palette opens with Ctrl-K. It goes to a page, an engine, a Function, an account, a job by name or id, or a row: "job#47",
// and to a button of the page. It also handles the keys of lists.
export function Palette() {
  const [opened, { open: show, close }] = useDisclosure()
  const [button, setButton] = useState<HTMLElement>() // gets the focus when the palette closes
  const open = () => {
    setButton(undefined)
    show()
  }
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
      <Modal opened={opened} onClose={close} title="Go to" size="lg" centered={false} returnFocus={!button} onExitTransitionEnd={() => button && reach(button)}>
        {opened && <Finder close={close} toButton={setButton} />}
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

// reach moves the focus to a button. If the list of more actions hides it, this list opens.
function reach(button: HTMLElement) {
  const more = button.checkVisibility() ? undefined : button.closest('.more-actions')?.querySelector<HTMLElement>('button')
  more?.click()
  ;(more ?? button).focus()
}

// buttonsOfPage returns the buttons of the page for its actions.
const buttonsOfPage = () => [...document.querySelectorAll<HTMLElement>('main .actions :is(button:enabled, a[href])')].filter((b) => b.textContent && !b.ariaLabel)

// A Place is a page or a button to go to, or an action.
type Place = { group: string; name: string; to?: string; button?: HTMLElement; act?: () => void; note?: ReactNode }

function Finder({ close, toButton }: { close: () => void; toButton: (button?: HTMLElement) => void }) {
  const can = useCan()
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
    toButton(place.button)
    close()
    place.act?.()
    if (place.to) go(place.to)
  }
  return (
    <>
      <TextInput
        data-autofocus
        aria-label="Page, action, Function, job or row"
        placeholder="Page, action, Function or job"
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
      {places.length === 0 && (searching ? <p className="small">Searching…</p> : <p role="status">Nothing matches this text. You can find pages, actions,{can.operate && ' engines, accounts,'} Functions and jobs.</p>)}
      {more && <p role="status" className="small">{more}</p>}
      <p className="small"><span className="keys"><Kbd size="xs">↑</Kbd> <Kbd size="xs">↓</Kbd> choose, <Kbd size="xs">Enter</Kbd> opens, <Kbd size="xs">Esc</Kbd> closes. </span><span className="unbroken"><Kbd size="xs">name#12</Kbd> opens row 12 of the job.</span></p>
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

// useAccountPlaces finds accounts by the words of their names, and returns the pages of these accounts. Only
// operators get pages.
function useAccountPlaces(words: string[]) {
  const can = useCan()
  const isOther = useIsOther()
  const accounts = useGet<Accounts>('/v1/accounts', { enabled: can.operate, fresh: 60_000 }).data?.accounts ?? []
  return accounts.filter((name) => words.some((w) => w && name.toLowerCase().includes(w))).flatMap((name) =>
    ['Jobs', 'Usage', 'Quotas'].map((page) => ({ group: 'Accounts', to: `/${page.toLowerCase()}${query({ account: isOther(name) ? name : undefined })}`, name: `${page} of ${name}` })))
}

// The pages that have the buttons for an action on a job.
const jobActions = [
  { to: '/jobs?failed_rows=true', name: 'Retry failed rows: choose a job' },
  { to: '/jobs', name: 'Delete the data of a job: choose a job' },
  { to: `/jobs?status=${openStatuses}`, name: 'Cancel a job: choose a job' },
]

// usePlaces returns the pages, engines, Functions, accounts, actions and jobs that match a text, and how many more jobs match.
// searching means that the jobs are not known yet. Without a text the newest jobs come first. "#47" after
// a job means its row 47; without a job, it means a row of a newest job.
function usePlaces(typed: string): { places: Place[]; more?: string; searching?: boolean } {
  const [, text = '', row] = /^(.*?)(?:#(\d*))?$/.exec(typed)!
  const [wanted] = useDebouncedValue(text, 200)
  const jobs = useGet<JobPage>(`/v1/list-jobs?limit=${readJobs}&q=${encodeURIComponent(wanted)}`, { enabled: wanted.length > 1, fresh: 5_000 })
  const newest = useGet<JobPage>(`/v1/list-jobs?limit=${newestJobs}&kind=whole`, { fresh: 5_000 })
  const functions = useGet<{ functions: Fn[] }>('/v1/functions', { fresh: 60_000 }).data?.functions ?? []
  const can = useCan()
  const { mutate: logOut } = useLogOut()
  const actions: Place[] = /^log ?out/i.test(text) ? [{ group: 'Actions', name: 'Log out', act: logOut }] : [] // only for its whole name, because it needs no other click
  const words = text.toLowerCase().split(/\s+/)
  const places: Place[] = [
    ...[...useMenu().flatMap(([, entries]) => entries), ...useTasks()].map(({ to, name }) => ({ group: 'Pages', to, name })),
    ...useEngineNames().filter(() => text),
    ...functions.filter(() => text).map((f) => ({ group: 'Functions', to: `/functions/${f.name}`, name: f.name })),
    ...useAccountPlaces(words),
    ...(text ? buttonsOfPage() : []).map((button) => ({ group: 'On this page', name: button.textContent, button })),
    ...jobActions.filter(() => text && can.act).map((a) => ({ ...a, group: 'Actions' })),
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
