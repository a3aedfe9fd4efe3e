import { useInfiniteQuery, useMutation, useQuery, useQueryClient, type Query, type QueryClient } from '@tanstack/react-query'
import { notifications } from '@mantine/notifications'
import { ApiError, get } from './client'
import type { Me, Role } from './types'

// The key of a query is its path, so that code that changes data can name the affected
// paths.
type GetOptions<T> = { enabled?: boolean; every?: number | false | ((data: T | undefined) => number | false); fresh?: number }

export const useGet = <T>(path: string, { enabled, every, fresh }: GetOptions<T> = {}) =>
  useQuery<T, ApiError>({
    queryKey: [path],
    queryFn: ({ signal }) => get<T>(path, signal),
    enabled,
    staleTime: fresh,
    refetchInterval: typeof every === 'function' ? (q) => every(q.state.data) : every,
  })

// usePages follows a cursor, sent in the parameter with this name.
export function usePages<P>(path: string, next: (page: P) => string | null | undefined, parameter = 'cursor', every: number | false = false) {
  const join = path.includes('?') ? '&' : '?'
  return useInfiniteQuery<P, ApiError, { pages: P[]; pageParams: unknown[] }, string[], string>({
    queryKey: [path, 'pages'],
    queryFn: ({ pageParam, signal }) => get<P>(pageParam ? `${path}${join}${parameter}=${encodeURIComponent(pageParam)}` : path, signal),
    refetchInterval: every,
    initialPageParam: '',
    getNextPageParam: (page) => next(page) || undefined,
  })
}

export const refresh = (client: QueryClient, ...paths: string[]) => client.invalidateQueries(below(paths))

// poll is refresh for repeated requests: it waits for a running request or retry, and
// does not cancel it.
export const poll = (client: QueryClient, ...paths: string[]) => client.invalidateQueries(below(paths), { cancelRefetch: false })

const below = (paths: string[]) => ({ predicate: (q: Query) => paths.some((p) => String(q.queryKey[0]).startsWith(p)) })

// useAct runs an action that changes data, shows the result, and reads the affected
// paths again. refused reports a result that is a failure, and quiet an error that the page shows elsewhere. key names the action for useIsMutating.
export function useAct<A = void, R = unknown>(act: (a: A) => Promise<R>, options: { done?: (r: R) => string | null; refused?: (r: R) => boolean; quiet?: (e: Error) => boolean; paths?: string[]; key?: string } = {}) {
  const client = useQueryClient()
  return useMutation<R, Error, A>({
    mutationKey: options.key ? [options.key] : undefined,
    mutationFn: act,
    onSuccess: (r) => {
      const message = options.done?.(r)
      if (message) notifications.show({ message, color: options.refused?.(r) ? 'red' : 'teal' })
      if (options.paths) void refresh(client, ...options.paths)
    },
    onError: (e) => options.quiet?.(e) || notifications.show({ title: 'The action failed', message: describe(e), color: 'red', autoClose: 12_000 }),
  })
}

export function describe(e: Error): string {
  if (!(e instanceof ApiError)) return e.message
  const fields = e.fields.map((f) => `${f.field}: ${f.message}`).join('; ')
  return [e.message, fields, e.requestID && `request ${e.requestID}`].filter(Boolean).join(' · ')
}

export const useMe = () => useGet<Me>('/v1/me', { fresh: 60_000 })

// useCan returns the rights of the signed-in key. The node checks them again.
export function useCan() {
  const { data: me } = useMe()
  const role: Role = me?.role ?? 'reader'
  return { act: role !== 'reader', administer: role === 'admin', operate: !!me?.operator }
}
