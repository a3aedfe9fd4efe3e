import type { ReactNode } from 'react'
import { Button, Modal } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'

type Props = {
  button: string
  title: string
  children: ReactNode
  act: () => void
  busy?: boolean
  quiet?: boolean
  size?: string
}

// Confirm is a button for an action that cannot be undone.
export function Confirm({ button, title, children, act, busy, quiet, size = 'sm' }: Props) {
  const [open, { open: ask, close }] = useDisclosure()
  return (
    <>
      <Button size={size} variant={quiet ? 'subtle' : 'default'} onClick={ask} loading={busy}>
        {button}
      </Button>
      <Modal opened={open} onClose={close} title={title}>
        <div className="stack">
          <div>{children}</div>
          <div className="actions end">
            <Button variant="default" onClick={close}>
              Go back
            </Button>
            <Button
              color="red.9"
              data-autofocus
              onClick={() => {
                close()
                act()
              }}
            >
              {title}
            </Button>
          </div>
        </div>
      </Modal>
    </>
  )
}
