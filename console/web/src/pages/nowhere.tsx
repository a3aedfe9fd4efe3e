import { Empty } from '../parts/load'
import { LinkButton, Page } from '../parts/page'

export default function Nowhere() {
  return (
    <Page title="No such page">
      <Empty next={<LinkButton href="/" variant="default">To the overview</LinkButton>}>There is none here, or your key may not see it.</Empty>
    </Page>
  )
}
