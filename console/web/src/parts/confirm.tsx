import type { ReactNode } from 'react'
import { Button, Modal } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'

const red = 'red.9'

// of names the object of the button, for screen readers, if the button is one of many.
type Props = {
  button: string
  of?: string
  title: string
  children: ReactNode
  act: () => void
  busy?: boolean
  quiet?: boolean
  size?: string
  color?: string
  variant?: string
  disabled?: boolean
  className?: string
}

// Confirm is a button for an action that cannot be undone, or that users should look at first.
export function Confirm({ button, of, title, children, act, busy, quiet, size = 'sm', color = red, ...look }: Props) {
  const [open, { open: ask, close }] = useDisclosure()
  return (
    <>
      <Button size={size} variant={quiet ? 'subtle' : 'default'} className={quiet && color === red ? 'danger' : undefined} onClick={ask} loading={busy} {...look} aria-label={of && `${button} ${of}`}>
        {button}
      </Button>
      <Ask opened={open} close={close} title={title} act={act} color={color}>{children}</Ask>
    </>
  )
}

// Ask asks before an action.
export function Ask({ opened, close, title, act, color = red, children }: Pick<Props, 'title' | 'act' | 'color' | 'children'> & { opened: boolean; close: () => void }) {
  return (
    <Modal opened={opened} onClose={close} title={title}>
      <div className="stack">
        <div>{children}</div>
        <div className="actions end">
          <Button variant="default" onClick={close}>
            Go back
          </Button>
          <Button
            color={color}
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
  )
}
