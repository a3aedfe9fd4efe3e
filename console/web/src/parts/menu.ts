import { useCan, useGet } from '../api/hooks'
import type { Engines, Webhook } from '../api/types'
import { useEvery } from '../live'
import { useServers } from './servers'
import { isBroken } from './webhook'

// MenuEntry is a page in the menu. trouble counts its entries that need a person.
export type MenuEntry = { to: string; name: string; trouble?: number }

// useMenu returns the pages that the caller may open, in groups.
export function useMenu(): [string, MenuEntry[]][] {
  const can = useCan()
  const every = useEvery(60_000)
  const engines = useGet<Engines>('/v1/engines', { enabled: can.operate, fresh: 30_000, every: (data) => !!data && every }).data
  const servers = useServers(every)
  const webhooks = useGet<{ webhooks: Webhook[] }>('/v1/webhooks', { enabled: can.administer, fresh: 60_000, every: (data) => !!data && every })
  const groups: [string, (MenuEntry | false)[]][] = [
    ['Work', [
      { to: '/', name: 'Overview' },
      { to: '/jobs', name: 'Jobs' },
      can.act && { to: '/jobs/new', name: 'New job' },
      { to: '/functions', name: 'Functions' },
      { to: '/files', name: 'Files' },
      { to: '/batches', name: 'Batches' },
    ]],
    ['Service', can.operate ? [
      { to: '/engines', name: 'Engines', trouble: engines && engines.engines.filter((e) => e.state === 'down').length + servers.filter((s) => s.error).length },
      { to: '/nodes', name: 'Nodes', trouble: engines?.missing_nodes.length },
      { to: '/actors', name: 'Actors' },
    ] : []],
    ['Account', [
      { to: '/usage', name: 'Usage' },
      { to: '/quotas', name: 'Quotas' },
      can.administer && { to: '/keys', name: 'API keys' },
      can.administer && !!webhooks.data && { to: '/webhooks', name: 'Webhooks', trouble: webhooks.data.webhooks.filter(isBroken).length },
      { to: '/settings', name: 'Retention' },
      can.administer && { to: '/audit', name: 'Audit' },
      { to: '/about', name: 'About' },
    ]],
  ]
  return groups.map(([name, entries]) => [name, entries.filter((e) => e !== false)] as [string, MenuEntry[]]).filter(([, entries]) => entries.length > 0)
}
