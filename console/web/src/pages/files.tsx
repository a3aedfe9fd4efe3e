import { useState } from 'react'
import { notifications } from '@mantine/notifications'
import { useQueryClient } from '@tanstack/react-query'
import { apiURL, query, send } from '../api/client'
import { refresh, useAct, useCan, usePages } from '../api/hooks'
import type { StoredFile } from '../api/types'
import { bytes, number, time, until } from '../lib/format'
import { AccountSelect, allAccounts, useIsOther } from '../parts/account'
import { Ago } from '../parts/ago'
import { Confirm } from '../parts/confirm'
import { FileInput } from '../parts/fileinput'
import { Empty, Load } from '../parts/load'
import { More, Page, Table } from '../parts/page'
import { Link, useSearchParams } from 'wouter'

type List = { data: StoredFile[]; has_more: boolean; last_id: string }

// uses says what a file is for, by its purpose in the API.
const uses: Record<string, string> = { user_data: 'input for jobs', batch: 'input for batches', batch_output: 'output of a batch' }

export default function Files() {
  const [search, setSearch] = useSearchParams()
  const account = search.get('account') ?? ''
  const isOther = useIsOther()
  const change = useCan().act && !isOther(account)
  const pages = usePages<List>(`/v1/files${query({ limit: 100, account })}`, (p) => (p.has_more ? p.last_id : null), 'after')
  const files = pages.data?.pages.flatMap((p) => p.data) ?? []
  const client = useQueryClient()
  const [sent, setSent] = useState(0)
  const remove = useAct((id: string) => send('DELETE', `/v1/files/${id}`), { done: () => 'The file is deleted.', paths: ['/v1/files'] })
  return (
    <Page title="Files" lead="Inputs of jobs and batches, and outputs of batches.">
      <div className="fields">
        <AccountSelect value={account} choose={(a) => setSearch(a ? { account: a } : {}, { replace: true })} />
      </div>
      {change && (
        <FileInput
          key={sent}
          fileID=""
          known
          peeked={() => {}}
          uploaded={(id) => {
            if (!id) return
            setSent(sent + 1)
            notifications.show({ message: 'The file is uploaded.', color: 'teal' })
            void refresh(client, '/v1/files')
          }}
        />
      )}
      <Load query={pages}>
        {() =>
          files.length === 0 ? (
            <Empty>No files yet. Upload a file once, and use it for several jobs.</Empty>
          ) : (
            <div className="stack">
              <Table label="Files" heads={[...(account === allAccounts ? ['Account'] : []), 'Name', 'Use', 'Size', 'Created', 'Expires', ...(change ? ['Actions'] : [])]} less={['Use', 'Created', 'Expires']}>
                {files.map((f) => (
                  <tr key={f.id}>
                    {account === allAccounts && <td>{f.account}</td>}
                    <td>
                      {isOther(f.account) ? f.filename : <a href={apiURL(`/v1/files/${f.id}/content`)} download={f.filename}>{f.filename}</a>}
                      <span className="id">{f.id}</span>
                    </td>
                    <td>{uses[f.purpose] ?? f.purpose}</td>
                    <td className="number">{bytes(f.bytes)}</td>
                    <td className="number" title={time(f.created_at)}><Ago t={f.created_at} /></td>
                    <td className="number" title={time(f.expires_at)}>{f.expires_at ? until(f.expires_at) : 'never'}</td>
                    {change && (
                      <td className="acts">
                        {f.purpose === 'user_data' && <Link href={`/jobs/new?file=${f.id}`}>New job</Link>}
                        <Confirm quiet size="compact-sm" button="Delete" title="Delete the file" act={() => remove.mutate(f.id)}>
                          The service deletes {f.filename} for ever. Jobs and batches that read it have a copy, and go on.
                        </Confirm>
                      </td>
                    )}
                  </tr>
                ))}
              </Table>
              <More of={pages} count={`${number(files.length)} of ${pages.hasNextPage ? 'more' : number(files.length)} shown`} />
            </div>
          )
        }
      </Load>
    </Page>
  )
}
