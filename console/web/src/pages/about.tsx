import { useQuery } from '@tanstack/react-query'
import { useMe } from '../api/hooks'
import { apiURL } from '../api/client'
import { Load } from '../parts/load'
import { Card, Facts, Page } from '../parts/page'

export default function About() {
  const me = useMe()
  return (
    <Page title="About">
      <Load query={me}>
        {(me) => (
          <Card>
            <Facts
              facts={[
                ['Version', me.version],
                ['Node', me.node],
                ['Account', me.account],
                ['Role', me.operator ? 'operator' : me.role],
                ['Key', me.key_name || me.key_id || 'that of the configuration'],
                ['Answers', me.simulated ? 'simulated: no real model' : 'from real engines'],
              ]}
            />
            <p>
              Everything here is in the API, too: <a href={apiURL('/openapi.json')}>its description</a>.
            </p>
          </Card>
        )}
      </Load>
      <Licences />
    </Page>
  )
}

function Licences() {
  const licences = useQuery({
    queryKey: ['licences'],
    staleTime: Infinity,
    queryFn: async ({ signal }) => {
      const answer = await fetch(new URL('licenses.md', document.baseURI), { signal })
      if (!answer.ok) throw new Error('The licences cannot be read.')
      return answer.text()
    },
  })
  return (
    <Card title="Licences">
      <p className="small">Rowmill is under the Apache License 2.0. The console is built with these packages:</p>
      {licences.data && (
        <pre className="wrap licences" tabIndex={0} role="region" aria-label="Licences of packages">
          {licences.data}
        </pre>
      )}
    </Card>
  )
}
