import { useEffect, useRef, type ReactNode } from 'react'
import { AppShell, Burger, Button, NativeSelect, Switch, useMantineColorScheme, VisuallyHidden, type MantineColorScheme } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { Link, useLocation } from 'wouter'
import { send, signOut } from './api/client'
import { useAct, useCan, useGet, useMe } from './api/hooks'
import type { Webhook } from './api/types'
import { dropDrafts } from './lib/draft'
import { useEvery, useLive } from './live'
import { isBroken } from './parts/webhook'

// trouble counts what a page shows that needs a person.
type Entry = { to: string; name: string; trouble?: number }

export function Shell({ children }: { children: ReactNode }) {
  const [open, { toggle, close }] = useDisclosure()
  const [path] = useLocation()
  const main = useRef<HTMLElement>(null)
  useEffect(close, [path, close])
  return (
    <AppShell
      header={{ height: 52, collapsed: false }}
      navbar={{ width: 224, breakpoint: 'md', collapsed: { mobile: !open } }}
      padding="md"
    >
      <a
        className="skip"
        href="#main"
        onClick={(e) => {
          e.preventDefault()
          main.current?.focus()
        }}
      >
        Skip to the content
      </a>
      <AppShell.Header className="top">
        <Burger opened={open} onClick={toggle} hiddenFrom="md" size="sm" aria-label="Navigation" aria-expanded={open} />
        <Link href="/" className="brand">
          <span className="mark" aria-hidden="true" />
          Rowmill
        </Link>
        <LiveSwitch />
      </AppShell.Header>
      <AppShell.Navbar className="nav" component="div">
        <Navigation />
        <Account />
      </AppShell.Navbar>
      <AppShell.Main ref={main} tabIndex={-1}>
        <Simulated />
        <div className="page">{children}</div>
      </AppShell.Main>
    </AppShell>
  )
}

function Navigation() {
  const can = useCan()
  const every = useEvery(60_000)
  const webhooks = useGet<{ webhooks: Webhook[] }>('/v1/webhooks', { enabled: can.administer, fresh: 60_000, every: (data) => !!data && every })
  const groups: [string, (Entry | false)[]][] = [
    ['Work', [
      { to: '/', name: 'Overview' },
      { to: '/jobs', name: 'Jobs' },
      can.act && { to: '/jobs/new', name: 'New job' },
      { to: '/functions', name: 'Functions' },
      { to: '/files', name: 'Files' },
      { to: '/batches', name: 'Batches' },
    ]],
    ['Service', can.operate ? [
      { to: '/engines', name: 'Engines' },
      { to: '/nodes', name: 'Nodes' },
      { to: '/actors', name: 'Actors' },
    ] : []],
    ['Account', [
      { to: '/usage', name: 'Usage' },
      { to: '/quotas', name: 'Quotas' },
      can.administer && { to: '/keys', name: 'API keys' },
      can.administer && !!webhooks.data && { to: '/webhooks', name: 'Webhooks', trouble: webhooks.data.webhooks.filter(isBroken).length },
      { to: '/settings', name: 'Settings' },
      can.administer && { to: '/audit', name: 'Audit' },
      { to: '/about', name: 'About' },
    ]],
  ]
  return (
    <nav className="links" aria-label="Pages">
      {groups.map(([name, entries]) => entries.length > 0 && (
        <div key={name}>
          <p className="group">{name}</p>
          <ul>{entries.map((e) => e && <NavEntry key={e.to} {...e} />)}</ul>
        </div>
      ))}
    </nav>
  )
}

function NavEntry({ to, name, trouble }: Entry) {
  const [path] = useLocation()
  const inside = to === '/jobs' ? path.startsWith('/jobs/job-') : to !== '/' && to !== '/jobs/new' && path.startsWith(`${to}/`)
  return (
    <li>
      <Link href={to} aria-current={path === to ? 'page' : inside ? 'true' : undefined}>
        {name}
        {!!trouble && <span className="trouble"> {trouble}<VisuallyHidden> with a problem</VisuallyHidden></span>}
      </Link>
    </li>
  )
}

function Account() {
  const { data: me } = useMe()
  const { colorScheme, setColorScheme } = useMantineColorScheme()
  const logOut = useAct(async () => {
    await send('DELETE', '/console/session')
    dropDrafts() // another user may log in next
    signOut()
  })
  return (
    <section className="account" aria-label="Account">
      <p>
        <strong>{me?.account}</strong>
        <span>{me?.operator ? 'operator' : me?.role}{me?.key_name && ` · ${me.key_name}`}</span>
      </p>
      <NativeSelect
        size="xs"
        aria-label="Theme"
        value={colorScheme}
        onChange={(e) => setColorScheme(e.currentTarget.value as MantineColorScheme)}
        data={[{ value: 'auto', label: 'System' }, { value: 'light', label: 'Light' }, { value: 'dark', label: 'Dark' }]}
      />
      <Button size="xs" variant="default" onClick={() => logOut.mutate()} loading={logOut.isPending}>
        Log out
      </Button>
    </section>
  )
}

const states = { on: 'Live', polling: 'Every 5 s', off: 'Paused' }

function LiveSwitch() {
  const { state, wanted, want } = useLive()
  return (
    <div className="live" data-state={state}>
      <Switch
        size="sm"
        label={states[state]}
        aria-label="Live updates"
        checked={wanted}
        onChange={(e) => want(e.currentTarget.checked)}
      />
    </div>
  )
}

function Simulated() {
  const { data: me } = useMe()
  if (!me?.simulated) return null
  return (
    <p className="simulated" role="note">
      <strong>Simulated answers:</strong> an engine of this service is not a real model.
    </p>
  )
}
