import { useState } from 'react'
import { Button, PasswordInput } from '@mantine/core'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useLocation, useSearchParams } from 'wouter'
import { ApiError, send } from '../api/client'

export function Login() {
  const [key, setKey] = useState('')
  const [search] = useSearchParams()
  const [, go] = useLocation()
  const client = useQueryClient()
  const logIn = useMutation({
    mutationFn: () => send('POST', '/console/session', { key: key.trim() }),
    onSuccess: () => {
      client.clear()
      const to = search.get('to') ?? '/'
      go(to.startsWith('/') && !to.startsWith('//') ? to : '/', { replace: true })
    },
  })
  return (
    <main className="login">
      <form
        className="card"
        onSubmit={(e) => {
          e.preventDefault()
          logIn.mutate()
        }}
      >
        <h1 className="brand">
          <span className="mark" aria-hidden="true" />
          Rowmill
        </h1>
        <PasswordInput
          label="API key"
          description="The key is checked by this node and not kept in the browser. You stay logged in for 12 hours after the last request."
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
  if (e.status === 401) return 'This API key is not valid here.'
  if (e.status === 429) return 'Too many attempts from this address. Try again in a minute.'
  return e.message
}
