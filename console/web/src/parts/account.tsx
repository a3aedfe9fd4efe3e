import { NativeSelect } from '@mantine/core'
import { useQueryClient } from '@tanstack/react-query'
import { query, send, signOut } from '../api/client'
import { useAct, useCan, useGet, useMe } from '../api/hooks'
import { dropDrafts } from '../lib/draft'
import type { Accounts, Me } from '../api/types'

// allAccounts stands for all accounts in addresses and requests.
export const allAccounts = '*'

// useIsOther returns a function that reports whether an account, as answers name it, is another
// than the one of the signed-in key. An operator can only read such an account.
export function useIsOther() {
  const { data: me } = useMe()
  return (account?: string) => !!account && account !== me?.account
}

// keyName returns a name of the key that a user is signed in with.
export const keyName = (me: Me) => (me.key_id ? me.key_name || me.key_id : 'configuration key')

// jobHref is the address of a job's page. other is the account of the job, if it is another one.
export const jobHref = (id: string, other?: string) => `/jobs/${id}${query({ account: other })}`

// AccountSelect lets an operator choose an account, or all. The empty value is the own account.
export function AccountSelect({ value, choose }: { value: string; choose: (account: string) => void }) {
  const can = useCan()
  const { data: me } = useMe()
  const { data } = useGet<Accounts>('/v1/accounts', { enabled: can.operate, fresh: 60_000 })
  if (!data || !me || (data.accounts.length < 2 && !value)) return null
  const others = data.accounts.filter((a) => a !== me.account)
  return (
    <NativeSelect
      label="Account"
      value={value}
      onChange={(e) => choose(e.currentTarget.value)}
      data={[{ value: '', label: me.account }, { value: allAccounts, label: 'all accounts' }, ...new Set([...(value && value !== allAccounts ? [value] : []), ...others])]}
    />
  )
}

// logOutKey names the action that ends the session. Pages are not shown while it runs, because their
// requests would be refused.
export const logOutKey = 'log out'

export function useLogOut() {
  const client = useQueryClient()
  return useAct(async () => {
    await client.cancelQueries()
    await send('DELETE', '/console/session')
    dropDrafts() // another user may log in next
    signOut()
  }, { key: logOutKey })
}
