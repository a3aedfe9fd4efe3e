import { useEffect, useRef, type ReactNode } from 'react'
import { AppShell, Burger, Button, NativeSelect, Switch, useMantineColorScheme, VisuallyHidden, type MantineColorScheme } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { Link, useLocation } from 'wouter'
import { useMe } from './api/hooks'
import { useLive } from './live'
import { keyName, useLogOut } from './parts/account'
import { useElapsed } from './parts/ago'
import { useMenu, type MenuEntry } from './parts/menu'
import { Palette } from './parts/palette'

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
        <Simulated />
        <Palette />
        <LiveSwitch />
      </AppShell.Header>
      <AppShell.Navbar className="nav" component="div">
        <Navigation />
        <Account />
      </AppShell.Navbar>
      <AppShell.Main ref={main} tabIndex={-1}>
        <div className="page">{children}</div>
      </AppShell.Main>
    </AppShell>
  )
}

function Navigation() {
  const groups = useMenu()
  return (
    <nav className="links" aria-label="Pages">
      {groups.map(([name, entries]) => (
        <div key={name}>
          <p className="group">{name}</p>
          <ul>{entries.map((e) => <NavEntry key={e.to} {...e} />)}</ul>
        </div>
      ))}
    </nav>
  )
}

function NavEntry({ to, name, trouble }: MenuEntry) {
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
  const logOut = useLogOut()
  return (
    <section className="account" aria-label="Account">
      <p>
        <strong>{me?.account}</strong>
        <span>{me?.operator ? 'operator' : me?.role}{me && ` · ${keyName(me)}`}</span>
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
  const { state, silentSince, wanted, want } = useLive()
  return (
    <div className="live" data-state={silentSince ? 'silent' : state}>
      <Switch
        size="sm"
        label={silentSince ? <Silence since={silentSince} /> : states[state]}
        aria-label="Live updates"
        checked={wanted}
        onChange={(e) => want(e.currentTarget.checked)}
      />
    </div>
  )
}

const Silence = ({ since }: { since: number }) => <>No answer for {useElapsed(since)}</>

function Simulated() {
  const { data: me } = useMe()
  if (!me?.simulated) return null
  return (
    <span className="tag" role="note" title="An engine of this service is not a real model.">
      Simulated<VisuallyHidden> answers: an engine of this service is not a real model.</VisuallyHidden>
    </span>
  )
}
