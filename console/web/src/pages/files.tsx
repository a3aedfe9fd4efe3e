import { apiURL, send } from '../api/client'
import { useAct, useCan, usePages } from '../api/hooks'
import type { StoredFile } from '../api/types'
import { bytes, number, time } from '../lib/format'
import { Confirm } from '../parts/confirm'
import { Empty, Load } from '../parts/load'
import { LinkButton, More, Page, Table } from '../parts/page'
import { Link } from 'wouter'

type List = { data: StoredFile[]; has_more: boolean; last_id: string }

export default function Files() {
  const can = useCan()
  const pages = usePages<List>('/v1/files?limit=100', (p) => (p.has_more ? p.last_id : null), 'after')
  const files = pages.data?.pages.flatMap((p) => p.data) ?? []
  const remove = useAct((id: string) => send('DELETE', `/v1/files/${id}`), { done: () => 'The file is deleted.', paths: ['/v1/files'] })
  return (
    <Page title="Files" lead="Uploaded inputs, and outputs of batches.">
      <Load query={pages}>
        {() =>
          files.length === 0 ? (
            <Empty next={can.act && <LinkButton href="/jobs/new" variant="default">Upload one for a new job</LinkButton>}>No files yet.</Empty>
          ) : (
            <>
              <Table label="Files" heads={['Name', 'Id', 'Purpose', 'Size', 'Created', 'Expires', ...(can.act ? ['Actions'] : [])]}>
                {files.map((f) => (
                  <tr key={f.id}>
                    <td>
                      <a href={apiURL(`/v1/files/${f.id}/content`)} download={f.filename}>{f.filename}</a>
                    </td>
                    <td><code>{f.id.slice(0, 13)}…</code></td>
                    <td>{f.purpose}</td>
                    <td className="number">{bytes(f.bytes)}</td>
                    <td className="number">{time(f.created_at)}</td>
                    <td className="number">{time(f.expires_at)}</td>
                    {can.act && (
                      <td className="acts">
                        {f.purpose === 'user_data' && <Link href={`/jobs/new?file=${f.id}`}>New job</Link>}
                        <Confirm quiet size="compact-sm" button="Delete" title="Delete the file" act={() => remove.mutate(f.id)}>
                          {f.filename} is deleted for ever. Jobs and batches of it have a copy and go on.
                        </Confirm>
                      </td>
                    )}
                  </tr>
                ))}
              </Table>
              <More of={pages} count={`${number(files.length)} of ${pages.hasNextPage ? 'more' : number(files.length)} shown`} />
            </>
          )
        }
      </Load>
    </Page>
  )
}
