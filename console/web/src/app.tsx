import { lazy, Suspense, useEffect } from 'react'
import { useIsMutating, useQueryClient } from '@tanstack/react-query'
import { Route, Switch, useLocation } from 'wouter'
import { onSignedOut } from './api/client'
import { useCan, useMe } from './api/hooks'
import { LiveProvider } from './live'
import { Login, loginLinkToken } from './pages/login'
import { logOutKey } from './parts/account'
import { Boundary } from './parts/boundary'
import { Problem, Waiting } from './parts/load'
import { Shell } from './shell'

const Overview = lazy(() => import('./pages/overview'))
const Jobs = lazy(() => import('./pages/jobs'))
const JobPage = lazy(() => import('./pages/job'))
const Compare = lazy(() => import('./pages/compare'))
const Rows = lazy(() => import('./pages/rows'))
const NewJob = lazy(() => import('./pages/newjob'))
const Functions = lazy(() => import('./pages/functions'))
const FunctionPage = lazy(() => import('./pages/function'))
const Publish = lazy(() => import('./pages/publish'))
const Files = lazy(() => import('./pages/files'))
const Batches = lazy(() => import('./pages/batches'))
const Engines = lazy(() => import('./pages/engines'))
const Nodes = lazy(() => import('./pages/nodes'))
const Actors = lazy(() => import('./pages/actors'))
const Usage = lazy(() => import('./pages/usage'))
const Quotas = lazy(() => import('./pages/quotas'))
const Keys = lazy(() => import('./pages/keys'))
const Webhooks = lazy(() => import('./pages/webhooks'))
const WebhookPage = lazy(() => import('./pages/webhook'))
const Settings = lazy(() => import('./pages/settings'))
const Audit = lazy(() => import('./pages/audit'))
const About = lazy(() => import('./pages/about'))
const Nowhere = lazy(() => import('./pages/nowhere'))

export function App() {
  const [path, go] = useLocation()
  const client = useQueryClient()
  useEffect(
    () =>
      onSignedOut(() => {
        client.clear()
        const at = location.pathname.slice(new URL(document.baseURI).pathname.length - 1)
        if (!at.startsWith('/login')) go(`/login?to=${encodeURIComponent(at + location.search)}`)
      }),
    [client, go],
  )
  return path === '/login' || loginLinkToken() ? <Login /> : <SignedIn />
}

function SignedIn() {
  const me = useMe()
  const can = useCan()
  const [path] = useLocation()
  const logsOut = useIsMutating({ mutationKey: [logOutKey] }) > 0
  if (me.isPending || logsOut) return <Waiting />
  if (!me.data) return me.error.status === 401 ? <Waiting /> : <Problem error={me.error} again={() => void me.refetch()} />
  return (
    <LiveProvider>
      <Shell>
        <Boundary path={path}>
          <Suspense fallback={<Waiting />}>
            <Switch>
              <Route path="/" component={Overview} />
              <Route path="/jobs" component={Jobs} />
              <Route path="/jobs/new" component={can.act ? NewJob : Nowhere} />
              <Route path="/jobs/compare" component={Compare} />
              <Route path="/jobs/:id" component={JobPage} />
              <Route path="/jobs/:id/rows" component={Rows} />
              <Route path="/functions" component={Functions} />
              <Route path="/functions/new" component={can.administer ? Publish : Nowhere} />
              <Route path="/functions/:name" component={FunctionPage} />
              {can.administer && <Route path="/functions/:name/edit" component={Publish} />}
              <Route path="/files" component={Files} />
              <Route path="/batches" component={Batches} />
              <Route path="/usage" component={Usage} />
              <Route path="/quotas" component={Quotas} />
              {can.administer && <Route path="/keys" component={Keys} />}
              {can.administer && <Route path="/webhooks" component={Webhooks} />}
              {can.administer && <Route path="/webhooks/:id" component={WebhookPage} />}
              <Route path="/settings" component={Settings} />
              {can.administer && <Route path="/audit" component={Audit} />}
              {can.operate && <Route path="/engines" component={Engines} />}
              {can.operate && <Route path="/nodes" component={Nodes} />}
              {can.operate && <Route path="/actors" component={Actors} />}
              <Route path="/about" component={About} />
              <Route component={Nowhere} />
            </Switch>
          </Suspense>
        </Boundary>
      </Shell>
    </LiveProvider>
  )
}
