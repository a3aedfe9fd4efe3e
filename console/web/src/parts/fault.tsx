import { plain } from '../lib/fault'

// Fault shows the message of an error in plain words. If they differ, the message itself unfolds.
export function Fault({ text }: { text: string }) {
  const said = plain(text)
  if (said === text) return <>{text}</>
  return (
    <>
      {said}
      <details className="small">
        <summary>Full message</summary>
        <code>{text}</code>
      </details>
    </>
  )
}
