import { usePages } from '../api/hooks'
import type { AuditEntry } from '../api/types'
import { none, number, text, time } from '../lib/format'
import { Status } from '../parts/job'
import { Empty, Load } from '../parts/load'
import { Long, More, Page, Table } from '../parts/page'

const who = (by: AuditEntry['by']) => (by.account == null ? 'the service' : by.key_name || by.key_id || `a key of ${by.account}`)

const said = (details: Record<string, unknown>) =>
  Object.entries(details)
    .filter(([, v]) => v != null)
    .map(([k, v]) => `${k}: ${text(v)}`)
    .join(', ')

export default function Audit() {
  const pages = usePages<{ entries: AuditEntry[]; next_cursor: string | null }>('/v1/audit?limit=100', (p) => p.next_cursor)
  const entries = pages.data?.pages.flatMap((p) => p.entries) ?? []
  return (
    <Page title="Audit" lead="Admin activity, newest first. Entries never change.">
      <Load query={pages}>
        {() =>
          entries.length === 0 ? (
            <Empty>No entries yet.</Empty>
          ) : (
            <>
              <Table label="Audit record" heads={['At, request', 'Account, by', 'Action, target', 'Details', 'Outcome']}>
                {entries.map((e) => (
                  <tr key={e.id}>
                    <td className="number">
                      {time(e.at)}
                      {e.request_id && <span className="id">{e.request_id}</span>}
                    </td>
                    <td>
                      {e.account}
                      <span className="id">{who(e.by)}</span>
                    </td>
                    <td>
                      <code>{e.action}</code>
                      {e.target && <span className="id">{e.target}</span>}
                    </td>
                    <td className="wide">{e.details ? <Long text={said(e.details)} /> : none}</td>
                    <td>{e.failed ? <Status is="failed">{e.failed}</Status> : <Status is="succeeded">recorded</Status>}</td>
                  </tr>
                ))}
              </Table>
              <More of={pages} count={`${number(entries.length)} of ${pages.hasNextPage ? 'more' : number(entries.length)} entries`} />
            </>
          )
        }
      </Load>
    </Page>
  )
}
