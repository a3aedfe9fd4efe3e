import { useQuery } from '@tanstack/react-query'
import { apiURL } from '../api/client'
import { useCan, useGet, useMe } from '../api/hooks'
import type { Diagnosis, Engine, Me, Node } from '../api/types'
import { plural, number, time } from '../lib/format'
import { keyName } from '../parts/account'
import { Copy } from '../parts/copy'
import { Load } from '../parts/load'
import { Card, Facts, Page } from '../parts/page'

type Version = { version: string; commit: string; built: string; go: string }
type Fact = [string, string]

const docs = 'https://github.com/rowmill/rowmill/blob/main/docs/'

// links are the pages of the documentation that readers of this page need, with their addresses
// and contents.
const links: [string, string, string][] = [
  ['First job', docs + 'first-job.md', 'submit rows, follow the job, download the answers'],
  ['API', docs + 'api.md', 'requests, fields and error codes'],
  ['OpenAPI description', apiURL('/openapi.json'), 'describes the API of this version for tools that generate clients'],
  ['Configuration', docs + 'configuration.md', 'each setting and its default'],
  ['Operations', docs + 'operations.md', 'backup, upgrade, alerts'],
  ['Questions and answers', docs + 'faq.md', 'common problems'],
]

export default function About() {
  const me = useMe()
  return (
    <Page title="About" lead="Version and setup of this service. Copy them when you report a problem.">
      <Load query={me}>{(me) => <Service me={me} />}</Load>
      <Card title="Documentation">
        <ul className="list">
          {links.map(([name, href, content]) => (
            <li key={href}>
              <a className="job" href={href} target="_blank" rel="noreferrer">{name}</a>
              <span className="small">{content}</span>
            </li>
          ))}
        </ul>
      </Card>
      <Licences />
    </Page>
  )
}

function Service({ me }: { me: Me }) {
  const version = useGet<Version>('/version', { fresh: Infinity })
  const setup = useSetup()
  const v = version.data
  const groups: [string, Fact[]][] = [
    ['Program', [
      ['Version', me.version],
      ['Commit', v?.commit.slice(0, 12) || 'unknown'],
      ['Built', /^\d{4}-/.test(v?.built ?? '') ? time(v!.built) : 'unknown'],
      ['Go', v?.go ?? ''],
    ]],
    ['Service', [
      ...setup.facts,
      ['Answers', me.simulated ? 'simulated: no real model gave them' : 'from real engines'],
    ]],
    ['Storage', setup.places],
    ['Your session', [
      ['Node', me.node],
      ['Account', me.account],
      ['Role', me.operator ? 'operator' : me.role],
      ['Key', keyName(me)],
    ]],
    ['Limits', setup.limits],
  ]
  const report = [...groups.flatMap(([, facts]) => facts), ['Browser', navigator.userAgent]].filter(([, text]) => text)
  return (
    <Card title="This service" actions={<Copy label="Copy for a bug report" text={report.map(([name, text]) => `${name}: ${text}`).join('\n')} />}>
      <p className="small">The copied text contains no keys, no prompts and no answers.</p>
      {groups.map(([name, facts]) => facts.some(([, text]) => text) && (
        <section key={name} aria-label={name}>
          <h3>{name}</h3>
          <Facts facts={facts.filter(([, text]) => text).map(([n, text]) => (name === 'Storage' ? [n, text, 'long'] : [n, text]))} />
        </section>
      ))}
      {setup.isReading && <p className="small" role="status">Reading the setup of the nodes…</p>}
    </Card>
  )
}

// settings are the limits that users and operators ask for most, with their names in the
// configuration.
const settings: Fact[] = [
  ['Rows of a job', 'inputs.max_rows'],
  ['Largest input', 'inputs.max_bytes'],
  ['Size of a row', 'inputs.max_row_bytes'],
  ['Attempts at a row', 'jobs.max_attempts'],
  ['Running jobs of a node', 'jobs.max_active'],
  ['Wait for an engine', 'jobs.wait_for_engine'],
]

// useSetup returns, for operators, the size of the cluster, where records and objects are, and
// the limits.
function useSetup(): { facts: Fact[]; places: Fact[]; limits: Fact[]; isReading: boolean } {
  const { operate: enabled } = useCan()
  const nodes = useGet<{ nodes: Node[] }>('/v1/nodes', { enabled }).data?.nodes
  const engines = useGet<{ engines: Engine[] }>('/v1/engines', { enabled }).data?.engines
  const diagnosis = useGet<{ nodes: Diagnosis[] }>('/v1/diagnosis', { enabled, fresh: Infinity })
  const own = diagnosis.data?.nodes.map((n) => n.facts).find((f) => f !== null)
  const place = (check: string) => own?.findings.filter((f) => f.check === check).map((f) => / at (\S+)$/.exec(f.text)?.[1] ?? f.text).join('; ') ?? ''
  const kinds = [...new Set(engines?.map((e) => e.kind).filter((k) => k !== null))]
  return {
    facts: [
      ['Nodes', nodes ? plural(nodes.length, 'node') : ''],
      ['Engines', engines ? `${number(engines.filter((e) => e.state === 'up').length)} of ${number(engines.length)} up${kinds.length ? ` (${kinds.join(', ')})` : ''}` : ''],
    ],
    places: [
      ['Records', place('records')],
      ['Objects', place('bucket')],
    ],
    limits: settings.flatMap(([name, key]): Fact[] => (own?.settings[key] ? [[name, readable(own.settings[key])]] : [])),
    isReading: diagnosis.isFetching,
  }
}

// readable formats a value of the settings: 100000000 as 100,000,000 and 30m0s as 30 min.
const readable = (value: string) => (/^\d+$/.test(value) ? number(Number(value)) : value.replace(/(\d[hm])0s$/, '$1').replace(/(\dh)0m$/, '$1').replace(/(\d)h/, '$1 h ').replace(/(\d)m$/, '$1 min').trim().replace(/(\d)([KMGT]iB)$/, '$1 $2'))

function Licences() {
  const licences = useQuery({
    queryKey: ['licences'],
    staleTime: Infinity,
    queryFn: async ({ signal }) => {
      const answer = await fetch(new URL('licenses.md', document.baseURI), { signal })
      if (!answer.ok) throw new Error('The console cannot read the licences.')
      return answer.text()
    },
  })
  return (
    <Card title="Licences">
      <p className="small">Rowmill has the Apache License 2.0. The console contains other packages.</p>
      {licences.data && (
        <details>
          <summary>Licences of these packages</summary>
          <pre className="wrap licences" tabIndex={0} role="region" aria-label="Licences of packages">
            {licences.data}
          </pre>
        </details>
      )}
    </Card>
  )
}
