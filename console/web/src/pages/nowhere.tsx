import { Empty } from '../parts/load'
import { LinkButton, Page } from '../parts/page'

export default function Nowhere() {
  return (
    <Page title="No such page">
      <Empty next={<LinkButton href="/" variant="default">Go to the overview</LinkButton>}>This page does not exist, or your key cannot open it.</Empty>
    </Page>
  )
}
