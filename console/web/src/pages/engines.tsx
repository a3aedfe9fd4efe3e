import { useGet } from '../api/hooks'
import type { Engine } from '../api/types'
import { ago, none, number, rate, time } from '../lib/format'
import { useEvery } from '../live'
import { Status } from '../parts/job'
import { Empty, Load } from '../parts/load'
import { Long, Page, Table } from '../parts/page'

export default function Engines() {
  const engines = useGet<{ engines: Engine[] }>('/v1/engines', { every: useEvery(3_000) })
  return (
    <Page title="Engines" lead="The inference servers that rows run on, over all nodes.">
      <Load query={engines}>
        {({ engines }) =>
          engines.length === 0 ? (
            <Empty next={<code>rowmill serve --engine http://127.0.0.1:8000</code>}>No node knows of an inference server.</Empty>
          ) : (
            <Table label="Engines" heads={['Engine', 'Node', 'Kind', 'State', 'Since', 'Models', 'In flight', 'Rate', 'Last error']}>
              {engines.map((e) => (
                <tr key={e.node + e.name}>
                  <td>
                    {e.name}
                    {e.simulated && <span className="tag">simulated</span>}
                    {e.url && <span className="id">{e.url}</span>}
                  </td>
                  <td>{e.node}</td>
                  <td>{e.kind ?? none}</td>
                  <td><Status is={e.state === 'up' ? 'succeeded' : 'failed'}>{e.state}</Status></td>
                  <td className="number" title={time(e.since)}>{ago(e.since)}</td>
                  <td className="wide"><Long text={e.models.map((m) => m.id).join(', ')} summary={`${e.models.length} models`} /></td>
                  <td className="number">{number(e.in_flight)} of {number(e.window)}</td>
                  <td className="number">{rate(e.rows_per_second, 'rows/s')}</td>
                  <td className="wide"><Long text={e.last_error ?? none} /></td>
                </tr>
              ))}
            </Table>
          )
        }
      </Load>
    </Page>
  )
}
