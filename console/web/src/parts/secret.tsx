import { Button, Modal } from '@mantine/core'
import { Code } from './copy'

// Secret shows a secret that the service returns only once.
export const Secret = ({ what, secret, close }: { what: string; secret: string; close: () => void }) => (
  <Modal opened onClose={close} title={`Your new ${what}`} closeOnClickOutside={false} closeOnEscape={false} withCloseButton={false} size="lg">
    <div className="stack">
      <p>Copy it now. The service cannot show it again.</p>
      <Code label={what} text={secret} />
      <Button onClick={close}>I have copied it</Button>
    </div>
  </Modal>
)
