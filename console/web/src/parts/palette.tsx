import { useEffect, useId, useState } from 'react'
import { Button, Kbd, Modal, TextInput } from '@mantine/core'
import { useDebouncedValue, useDisclosure, useHotkeys } from '@mantine/hooks'
import { useLocation } from 'wouter'
import { useCan, useGet } from '../api/hooks'
import type { Fn, Job, JobPage } from '../api/types'
import { ago, plural } from '../lib/format'
import { titleOf } from './job'
import { useMenu } from './menu'

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

// Palette opens with Ctrl-K. It goes to a page, a Function, a job by name or id, or a row: "job#47". It
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

type Place = { to: string; name: string; note?: string }

function Finder({ close }: { close: () => void }) {
  const [typed, setTyped] = useState('')
  const [at, setAt] = useState(0)
  const [, go] = useLocation()
  const id = useId()
  const { places, more } = usePlaces(typed.trim())
  useEffect(() => setAt(0), [typed])
  const chosen = places[Math.min(at, places.length - 1)]
  const visit = (place?: Place) => {
    if (!place) return
    close()
    go(place.to)
  }
  return (
    <>
      <TextInput
        data-autofocus
        aria-label="Page, Function, job or row"
        placeholder="Page, Function or job; job#12 is its row 12"
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
      <ul id={id} role="listbox" aria-label="Places" className="places">
        {places.map((place, i) => (
          <li key={place.to} id={`${id}-${i}`} role="option" aria-selected={place === chosen} onClick={() => visit(place)}>
            {place.name} {place.note && <span className="id">{place.note}</span>}
          </li>
        ))}
      </ul>
      {places.length === 0 && <p role="status">No page, no Function and no job matches.</p>}
      {more && <p role="status" className="small">{more}</p>}
      <p className="small"><Kbd size="xs">↑</Kbd> <Kbd size="xs">↓</Kbd> choose, <Kbd size="xs">Enter</Kbd> opens, <Kbd size="xs">Esc</Kbd> closes</p>
    </>
  )
}

// useTasks returns places where the user may begin something.
function useTasks(): Place[] {
  const can = useCan()
  return [
    ...(can.act ? [{ to: '/jobs/new?file', name: 'New job from a file' }, { to: '/jobs/new?sample', name: 'New job from an example' }] : []),
    ...(can.administer ? [{ to: '/functions/new', name: 'New Function' }] : []),
  ]
}

// usePlaces returns the pages, Functions and jobs that match a text, and how many more jobs match. Without
// a text the newest jobs come first. "#47" after a job means its row 47.
function usePlaces(typed: string): { places: Place[]; more?: string } {
  const [, text = '', row] = /^(.*?)(?:#(\d*))?$/.exec(typed)!
  const [wanted] = useDebouncedValue(text, 200)
  const jobs = useGet<JobPage>(`/v1/list-jobs?limit=${readJobs}&q=${encodeURIComponent(wanted)}`, { enabled: wanted.length > 1, fresh: 5_000 })
  const newest = useGet<JobPage>(`/v1/list-jobs?limit=${newestJobs}`, { fresh: 5_000 })
  const functions = useGet<{ functions: Fn[] }>('/v1/functions', { fresh: 60_000 }).data?.functions ?? []
  const places: Place[] = [
    ...useMenu().flatMap(([, entries]) => entries).map(({ to, name }) => ({ to, name })),
    ...useTasks(),
    ...(text ? functions : []).map((f) => ({ to: `/functions/${f.name}`, name: f.name, note: 'Function' })),
  ].filter((p) => row === undefined && p.name.toLowerCase().includes(text.toLowerCase()))
  const found = wanted.length > 1 && wanted === text ? (jobs.data?.jobs ?? []) : []
  // distance orders jobs: names that begin with the text come first, then the shortest names.
  const distance = (j: Job) => titleOf(j).length + (titleOf(j).toLowerCase().startsWith(text.toLowerCase()) ? 0 : 1_000)
  const place = (j: Job): Place => ({
    to: row === undefined ? `/jobs/${j.job_id}` : `/jobs/${j.job_id}/rows${row && `?row=${row}&open=${row}`}`,
    name: titleOf(j),
    note: row === undefined ? `job, ${j.paused ? 'paused' : j.status}, ${ago(j.datetime_created)}, ${j.job_id}` : `row ${row} of ${j.job_id}`,
  })
  if (typed === '') return { places: [...(newest.data?.jobs ?? []).map(place), ...places] }
  const hidden = found.length - shownJobs
  return {
    places: [...places, ...found.toSorted((a, b) => distance(a) - distance(b)).slice(0, shownJobs).map(place)],
    more: hidden > 0 ? `${jobs.data?.next_cursor ? 'At least ' : ''}${plural(hidden, 'more job')} ${hidden === 1 ? 'matches' : 'match'}. Type more of the name.` : undefined,
  }
}
