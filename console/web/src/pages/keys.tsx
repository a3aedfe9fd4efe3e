import { useState } from 'react'
import { useQueries } from '@tanstack/react-query'
import { Link, useSearchParams } from 'wouter'
import { Button, Modal, NativeSelect, TextInput } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { get, query, send } from '../api/client'
import { useAct, useCan, useMe, usePages } from '../api/hooks'
import type { Key, Usage, UsageLine } from '../api/types'
import { plural, day, none, number, time, until, usd } from '../lib/format'
import { Ago } from '../parts/ago'
import { Confirm } from '../parts/confirm'
import { Status } from '../parts/job'
import { Secret } from '../parts/secret'
import { Empty, Load, Problem } from '../parts/load'
import { More, Page, Table } from '../parts/page'

type Made = Key & { key: string }

const monthDays = 30

// useMonth returns the usage of keys in the last 30 days, UTC, with today: by account,
// then by the id of the key, empty for no key. Accounts whose usage is not loaded yet
// are missing.
function useMonth(accounts: string[]) {
  const day = (back: number) => new Date(Date.now() - back * 86_400_000).toISOString().slice(0, 10)
  const days = { from: day(monthDays - 1), to: day(0) }
  const path = (account: string) => `/v1/usage${query({ account, ...days, group_by: 'key' })}`
  const used = useQueries({
    queries: accounts.map((account) => ({ queryKey: [path(account)], queryFn: ({ signal }: { signal: AbortSignal }) => get<Usage>(path(account), signal), staleTime: 60_000 })),
    combine: (answers) => ({
      of: new Map(answers.flatMap(({ data }) => (data ? [[data.account, new Map(data.usage.map((l) => [l.key_id ?? '', l]))]] : []))),
      error: answers.find((a) => a.error)?.error,
      again: () => answers.forEach((a) => a.error && void a.refetch()),
    }),
  })
  return { ...used, days }
}

export default function Keys() {
  const { data: me } = useMe()
  const [search, setSearch] = useSearchParams()
  const account = search.get('account') ?? '' // of the keys that the page shows; empty for all
  const pages = usePages<{ keys: Key[]; next_cursor: string | null }>(`/v1/keys${query({ limit: 100, account })}`, (p) => p.next_cursor)
  const keys = pages.data?.pages.flatMap((p) => p.keys) ?? []
  const [made, setMade] = useState<Made>()
  const month = useMonth(pages.data && me ? [...new Set([me.account, ...keys.map((k) => k.account)])] : [])
  const keyless = me && (!account || account === me.account) && month.of.get(me.account)?.get('')
  const rotate = useAct((id: string) => send<Made>('POST', `/v1/keys/${id}/rotate`), { paths: ['/v1/keys'] })
  const revoke = useAct((id: string) => send('DELETE', `/v1/keys/${id}`), { done: () => 'The key is revoked.', paths: ['/v1/keys'] })
  return (
    <Page title="API keys" lead="Programs and people send a key with each request. Give each of them a key of its own. Then you see the usage of each key, and can revoke one key alone." actions={<Create made={setMade} />}>
      {account && (
        <div className="actions">
          <span>Only the keys of the account <code>{account}</code></span>
          <Button size="xs" variant="default" onClick={() => setSearch({}, { replace: true })}>Show all keys</Button>
        </div>
      )}
      <Load query={pages}>
        {() =>
          keys.length === 0 && account ? (
            <Empty>This account has no keys.</Empty>
          ) : keys.length === 0 ? (
            <Empty next={<Create made={setMade} />}>No keys yet. Only the key of the configuration exists.</Empty>
          ) : (
            <div className="stack">
              {month.error && <Problem error={month.error} again={month.again} />}
              <Table label="API keys" heads={['Name', 'Account', 'Role', 'Created', 'Used', `Last ${monthDays} days`, 'Expires', 'Actions']} less={['Role', 'Created', 'Used', `Last ${monthDays} days`, 'Expires']}>
                {keys.map((k) => (
                  <tr key={k.id}>
                    <td>
                      {k.name || none}
                      {k.id === me?.key_id && <span className="tag">yours</span>}
                      {k.dialect && <span className="tag">{k.dialect}</span>}
                      <span className="id">{k.id}</span>
                    </td>
                    <td>{k.account}</td>
                    <td>{k.role}</td>
                    <td className="number" title={time(k.created_at)}>{day(k.created_at)}</td>
                    <td className="number">{k.last_used_at ? <Ago t={k.last_used_at} /> : 'never'}</td>
                    <td className="number">
                      {month.of.has(k.account) ? (
                        <Spent line={month.of.get(k.account)!.get(k.id)} href={`/usage${query({ key: k.id, ...month.days, account: k.account === me?.account ? undefined : k.account })}`} />
                      ) : none}
                    </td>
                    <td className="number" title={k.expires_at ? time(k.expires_at) : undefined}>{k.expires_at ? <Expiry at={k.expires_at} /> : 'never'}</td>
                    <td className="acts">
                      <Confirm quiet size="compact-sm" button="Rotate" color="cyan.9" title="Rotate the key" act={() => rotate.mutate(k.id, { onSuccess: setMade })}>
                        {k.name || k.id} gets a new secret. The old secret stops working within 5 seconds{k.id === me?.key_id && ', and you are logged out'}.
                      </Confirm>
                      <Confirm quiet size="compact-sm" button="Revoke" title="Revoke the key" act={() => revoke.mutate(k.id)}>
                        The key {k.name || k.id} stops working within 5 seconds. This cannot be undone. Jobs that were submitted with it go on.
                      </Confirm>
                    </td>
                  </tr>
                ))}
              </Table>
              {keyless && (
                <p className="small">
                  {usd(keyless.cost_usd)} and {plural(keyless.rows, 'row')} of these days belong to the key of the configuration, or to old jobs without a recorded key.
                </p>
              )}
              <More of={pages} count={`${number(keys.length)} of ${pages.hasNextPage ? 'more' : number(keys.length)} shown`} />
            </div>
          )
        }
      </Load>
      {made && <Secret what="key" secret={made.key} close={() => setMade(undefined)} />}
    </Page>
  )
}

const soon = 7 * 86_400_000 // ms

// Expiry marks a key that expires soon.
const Expiry = ({ at }: { at: string }) => (Date.parse(at) - Date.now() < soon ? <Status is="starting">{`expires ${until(at)}`}</Status> : <>{day(at)}</>)

// Spent shows the usage of a key.
const Spent = ({ line, href }: { line?: UsageLine; href: string }) => (line ? <Link href={href}>{`${usd(line.cost_usd)}, ${plural(line.rows, 'row')}`}</Link> : <>nothing</>)

function Create({ made }: { made: (k: Made) => void }) {
  const can = useCan()
  const [open, { open: ask, close }] = useDisclosure()
  const [form, setForm] = useState({ name: '', role: 'user', account: '', days: '' })
  const create = useAct(
    () =>
      send<Made>('POST', '/v1/keys', {
        name: form.name,
        role: form.role,
        ...(form.account ? { account: form.account } : {}),
        ...(form.days ? { expires_at: new Date(Date.now() + Number(form.days) * 86_400_000).toISOString() } : {}),
      }),
    { paths: ['/v1/keys'] },
  )
  return (
    <>
      <Button onClick={ask}>Create a key</Button>
      <Modal opened={open} onClose={close} title="Create a key">
        <form
          className="stack"
          onSubmit={(e) => {
            e.preventDefault()
            create.mutate(undefined, {
              onSuccess: (k) => {
                close()
                made(k)
              },
            })
          }}
        >
          <TextInput label="Name" data-autofocus maxLength={64} value={form.name} onChange={(e) => setForm({ ...form, name: e.currentTarget.value })} />
          <NativeSelect
            label="Role"
            value={form.role}
            onChange={(e) => setForm({ ...form, role: e.currentTarget.value })}
            data={[
              { value: 'reader', label: 'reader: can see, but not change' },
              { value: 'user', label: 'user: can also submit jobs' },
              { value: 'admin', label: 'admin: can also manage keys, quotas and Functions' },
            ]}
          />
          {can.operate && (
            <TextInput label="Account" placeholder="your own" description="A new name makes a new account." maxLength={128} value={form.account} onChange={(e) => setForm({ ...form, account: e.currentTarget.value })} />
          )}
          <TextInput label="Days until the key expires" placeholder="never" type="number" min={1} value={form.days} onChange={(e) => setForm({ ...form, days: e.currentTarget.value })} />
          <Button type="submit" loading={create.isPending}>Create it</Button>
        </form>
      </Modal>
    </>
  )
}
