import { useState } from 'react'
import { Button } from '@mantine/core'

// On plain HTTP, browsers offer only the old command, no clipboard.
export async function copy(text: string) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text)
  const area = document.createElement('textarea')
  area.value = text
  area.setAttribute('aria-hidden', 'true')
  area.className = 'offscreen'
  const host = document.activeElement?.closest('[role=dialog]') ?? document.body
  host.append(area)
  area.select()
  document.execCommand('copy')
  area.remove()
}

// of names the text for screen readers, if the button is one of many.
export function Copy({ text, label = 'Copy', of }: { text: string; label?: string; of?: string }) {
  const [copied, setCopied] = useState(false)
  return (
    <Button
      size="compact-xs"
      variant="default"
      aria-label={of && !copied ? `${label} ${of}` : undefined}
      onClick={() =>
        void copy(text).then(() => {
          setCopied(true)
          setTimeout(() => setCopied(false), 1500)
        })
      }
    >
      {copied ? 'Copied' : label}
    </Button>
  )
}

export function Code({ text, label, wrap = true }: { text: string; label: string; wrap?: boolean }) {
  return (
    <div className="code">
      <Copy text={text} of={label.toLowerCase()} />
      <pre dir="auto" tabIndex={0} aria-label={label} role="region" className={wrap ? 'wrap' : undefined}>
        {text}
      </pre>
    </div>
  )
}
