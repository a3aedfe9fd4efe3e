import './app.css'
import { createRoot } from 'react-dom/client'
import { MantineProvider, localStorageColorSchemeManager } from '@mantine/core'
import { Notifications } from '@mantine/notifications'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { Router } from 'wouter'
import { ApiError } from './api/client'
import { App } from './app'
import { theme, variables } from './theme'

declare global {
  var __webpack_nonce__: string | undefined
}

const nonce = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? ''
globalThis.__webpack_nonce__ = nonce // the scroll lock of dialogs reads it

const client = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 2_000,
      refetchOnWindowFocus: false,
      retry: (n, e) => n < 2 && (!(e instanceof ApiError) || e.status === 0 || e.status >= 500),
    },
  },
})

createRoot(document.getElementById('root')!).render(
  <MantineProvider
    theme={theme}
    cssVariablesResolver={variables}
    defaultColorScheme="auto"
    colorSchemeManager={localStorageColorSchemeManager({ key: 'rowmill-theme' })}
    getStyleNonce={() => nonce}
  >
    <QueryClientProvider client={client}>
      <Router base={new URL(document.baseURI).pathname.replace(/\/$/, '')}>
        <App />
      </Router>
      <Notifications position="bottom-right" />
    </QueryClientProvider>
  </MantineProvider>,
)
