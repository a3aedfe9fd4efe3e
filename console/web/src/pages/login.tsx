import { useEffect, useState } from 'react'
import { Button, PasswordInput } from '@mantine/core'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useLocation, useSearchParams } from 'wouter'
import { ApiError, send } from '../api/client'

// loginLinkToken returns the token of the login link that the page was opened with.
export const loginLinkToken = () => new URLSearchParams(location.hash.slice(1)).get('login')

export function Login() {
  const [key, setKey] = useState('')
  const [search] = useSearchParams()
  const [, go] = useLocation()
  const client = useQueryClient()
  const logIn = useMutation({
    mutationFn: (secret: { key: string } | { login_token: string }) => send('POST', '/console/session', secret),
    onSuccess: () => {
      client.clear()
      const to = search.get('to') ?? '/'
      go(to.startsWith('/') && !to.startsWith('//') ? to : '/', { replace: true })
    },
  })
  useEffect(() => {
    const login_token = loginLinkToken()
    if (!login_token) return
    go('/login', { replace: true }) // without the token
    logIn.mutate({ login_token })
  }, [])
  return (
    <main className="login">
      <form
        className="card"
        onSubmit={(e) => {
          e.preventDefault()
          logIn.mutate({ key: key.trim() })
        }}
      >
        <h1 className="brand">
          <span className="mark" aria-hidden="true" />
          Rowmill
        </h1>
        <PasswordInput
          label="API key"
          description="The node checks the key. The browser does not keep it. You stay logged in for 12 hours after the last request."
          autoFocus
          required
          withAsterisk={false}
          autoComplete="current-password"
          value={key}
          onChange={(e) => setKey(e.currentTarget.value)}
          error={logIn.error && reason(logIn.error)}
          visibilityToggleButtonProps={{ 'aria-label': 'Show the key', tabIndex: 0 }}
        />
        <Button type="submit" loading={logIn.isPending} disabled={!key.trim()}>
          Log in
        </Button>
        <details>
          <summary>Where do I find a key?</summary>
          <p>The first start of a node prints an administrator key, once. Administrators create more keys under “API keys”, or with</p>
          <code>rowmill keys create --name me</code>
        </details>
      </form>
    </main>
  )
}

function reason(e: Error) {
  if (!(e instanceof ApiError)) return e.message
  if (e.code === 'unknown_key') return 'The service does not know this API key.'
  if (e.status === 429) return 'Too many attempts from this address. Try again in a minute.'
  return e.message
}
