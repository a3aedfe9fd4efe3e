import { none, number } from '../lib/format'

// Meter shows a share from 0 to 1 as a bar, with its name before and its text after it. With
// isLimit, the bar changes its colour when 80 % are used, and again when all is used.
export function Meter({ name, value, text, isLimit }: { name: string; value: number | null; text: string; isLimit?: boolean }) {
  return (
    <div className={isLimit ? 'use long' : 'use'}>
      <span>{name}</span>
      <meter value={value ?? 0} aria-label={name} {...(isLimit ? { low: nearLimit, high: 0.9999, optimum: 0 } : {})} />
      <span className="n">{text}</span>
    </div>
  )
}

// nearLimit is the used share of a limit that needs attention.
export const nearLimit = 0.8

// InFlight shows the rows in flight of an engine or a node, and how many may be in flight.
export const InFlight = ({ name, rows, limit }: { name: string; rows: number; limit: number }) =>
  limit === 0 ? (
    <>{none}</>
  ) : (
    <>
      <meter value={rows / limit} aria-label={`Rows running on ${name}`} />
      {number(rows)} of {number(limit)}
    </>
  )
