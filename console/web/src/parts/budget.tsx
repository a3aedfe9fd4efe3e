import { query } from '../api/client'
import { useGet } from '../api/hooks'
import type { Accounts, Usage } from '../api/types'
import { number, percent, until, usd, usdOf, utcDay } from '../lib/format'
import { allAccounts } from './account'
import { Problem } from './load'
import { Meter, nearLimit } from './meter'

// usedShare formats the used share of a budget. It can be more than 100 %.
export const usedShare = (used: number, limit: number) => (used > limit ? `${number(Math.round((used / limit) * 100))} %` : percent(used, limit))

// useSpending reads the accounts with their budgets, and the cost of each account this month, for an operator.
export function useSpending(enabled = true) {
  const accounts = useGet<Accounts>('/v1/accounts', { enabled, fresh: 60_000 })
  const usage = useGet<Usage>(`/v1/usage${query({ account: allAccounts, group_by: 'model' })}`, { enabled, fresh: 60_000 })
  const used = new Map<string, number>()
  for (const l of usage.data?.usage ?? []) if (l.account) used.set(l.account, (used.get(l.account) ?? 0) + l.cost_usd)
  return { accounts, usage, used }
}

// Budget shows the cost of this month and its limit, of an account or, without account, of the own one.
// The limit is null if there is none, and undefined if the user may not see it.
export function Budget({ limit, account }: { limit?: number | null; account?: string }) {
  const usage = useGet<Usage>(`/v1/usage${query({ account })}`, { fresh: 60_000 })
  const used = usage.data?.total.cost_usd
  const now = new Date()
  const reset = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1))
  return (
    <>
      {usage.error && <Problem error={usage.error} again={() => void usage.refetch()} />}
      {used != null && limit != null && <Meter isLimit name="Used" value={limit ? used / limit : 1} text={limit ? `${usdOf(used, limit)}, ${usedShare(used, limit)}` : usd(used)} />}
      {used != null && limit == null && <p>Used this month: <strong>{usd(used)}</strong></p>}
      {used != null && !!limit && used >= limit * nearLimit && (
        <p className={used >= limit ? 'problem' : 'warning'} role="note">
          {used >= limit ? 'The budget is used up. New jobs fail until the next month, or until an administrator raises the budget.' : 'More than 80 % of the budget is used. When it is used up, new jobs fail.'}
        </p>
      )}
      <p className="small">
        {limit === 0 ? 'Only jobs without cost can run. ' : ''}The count starts at $0 again on {utcDay(reset)}, 00:00 UTC ({until(reset.toISOString())}).
      </p>
    </>
  )
}
