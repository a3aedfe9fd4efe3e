import { Link } from 'wouter'
import { useCan, useGet } from '../api/hooks'
import type { Fn } from '../api/types'
import { time } from '../lib/format'
import { Ago } from '../parts/ago'
import { Empty, Load } from '../parts/load'
import { LinkButton, Page, Table } from '../parts/page'

export default function Functions() {
  const can = useCan()
  const functions = useGet<{ functions: Fn[] }>('/v1/functions')
  const publish = can.administer && <LinkButton href="/functions/new">Publish a Function</LinkButton>
  return (
    <Page title="Functions" lead="A Function is a saved prompt with fields to fill in, a model, a schema and parameters." actions={publish}>
      <Load query={functions}>
        {({ functions }) =>
          functions.length === 0 ? (
            <Empty next={publish}>No Functions yet. Publish a prompt once, and use it in jobs and programs by its name.</Empty>
          ) : (
            <Table label="Functions" heads={['Name', 'Description', 'Model', 'Fields', 'Revision', 'Published']} less={['Model', 'Fields', 'Revision', 'Published']}>
              {functions.map((f) => (
                <tr key={f.name}>
                  <td>
                    <Link href={`/functions/${f.name}`}>{f.name}</Link>
                  </td>
                  <td className="wide">{f.description}</td>
                  <td>{f.model}</td>
                  <td>{f.inputs.map((i) => i.name).join(', ')}</td>
                  <td className="number">{f.revision}</td>
                  <td className="number" title={time(f.published_at)}><Ago t={f.published_at} /></td>
                </tr>
              ))}
            </Table>
          )
        }
      </Load>
    </Page>
  )
}
