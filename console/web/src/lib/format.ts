const whole = new Intl.NumberFormat('en')
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 })

export const none = '–'

export const number = (n: number | null | undefined) => (n == null ? none : whole.format(n))

// tokens formats the tokens of a row. The service has no counts of a failed row.
export const tokens = (n: number, failed: boolean) => (failed && n === 0 ? none : number(n))

// plural returns a number with its noun: 1 row, 2 rows.
export const plural = (n: number, noun: string, many = `${noun}s`) => `${whole.format(n)} ${n === 1 ? noun : many}`

export const compact = (n: number | null | undefined) => (n == null ? none : n < 10_000 ? whole.format(Math.round(n)) : short.format(n))

export const rate = (n: number | null | undefined, unit: string) =>
  !n ? none : `${n >= 100 ? compact(n) : n.toFixed(n >= 10 ? 1 : 2)} ${unit}`.trimEnd()

// percent formats a share that is at most 100 %. It is 0 % only if nothing is done, and 100 % only if all is done.
export const percent = (done: number, all: number | null | undefined) => {
  if (!all) return none
  if (done <= 0) return '0 %'
  if (done >= all) return '100 %'
  const p = (done / all) * 100
  return p < 0.1 ? '< 0.1 %' : p > 99.9 ? '> 99.9 %' : `${p.toFixed(1)} %`
}

// usd formats an amount. Small amounts have two significant digits.
export const usd = (n: number | null | undefined) =>
  n == null ? none : n === 0 ? '$0' : n < 0.000001 ? '< $0.000001' : n < 0.01 ? `$${n.toPrecision(2)}` : `$${n.toLocaleString('en', { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`

// usdLike returns a function that formats amounts with the decimals of this amount.
export const usdLike = (amount: number) => {
  const decimals = amount > 0 ? Math.min(10, Math.max(2, 1 - Math.floor(Math.log10(amount)))) : 2
  return (n: number) => `$${n.toLocaleString('en', { minimumFractionDigits: decimals, maximumFractionDigits: decimals })}`
}

// usdExact formats an amount that somebody has set, with all its decimals.
export const usdExact = (n: number) => `$${n.toLocaleString('en', { minimumFractionDigits: 2, maximumFractionDigits: 10 })}`

// usdOf formats a part of a limit, both with the same decimals: all decimals of the limit, and four digits
// of a limit below $1, so that the amounts agree with the share in per cent.
export const usdOf = (part: number, limit: number) => {
  const decimals = Math.max(usdExact(limit).split('.')[1]!.length, limit > 0 && limit < 1 ? Math.min(10, 3 - Math.floor(Math.log10(limit))) : 2)
  const write = (n: number) => `$${n.toLocaleString('en', { minimumFractionDigits: decimals, maximumFractionDigits: decimals })}`
  return `${write(part)} of ${write(limit)}`
}

// usdTogether formats an amount and the two bounds of its range, all with the same decimals.
// The bounds are undefined if they are equal.
export const usdTogether = (n: number, low: number, high: number) => {
  const decimals = n > 0 ? Math.min(10, Math.max(2, 2 - Math.floor(Math.log10(n)))) : 2
  const write = (n: number) => `$${n.toLocaleString('en', { minimumFractionDigits: decimals, maximumFractionDigits: decimals })}`
  return { amount: n === 0 ? usd(n) : write(n), range: write(low) === write(high) ? undefined : `between ${write(low)} and ${write(high)}` }
}

export const bytes = (n: number | null | undefined) => {
  if (n == null) return none
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let i = 0
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024
    i++
  }
  return `${i ? n.toFixed(1) : n} ${units[i]}`
}

export const duration = (seconds: number | null | undefined) => {
  if (seconds == null) return none
  if (seconds < 1) return 'under 1 s'
  const s = Math.round(seconds)
  if (s < 60) return `${s} s`
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`
}

// timeLeft formats an estimate: without seconds from ten minutes on, because an estimate changes all the time.
export const timeLeft = (seconds: number) => (seconds >= 600 && seconds < 3600 ? `${Math.round(seconds / 60)} min` : duration(seconds))

// took formats a duration that may be very short.
export const took = (seconds: number) =>
  seconds < 0.001 ? 'under 1 ms' : seconds < 1 ? `${Math.round(seconds * 1000)} ms` : seconds < 60 ? `${seconds.toFixed(1)} s` : duration(seconds)

// withoutRoutes drops sentences of a message that say where the API lists rows. The console has a page for it.
export const withoutRoutes = (message: string) => message.replace(/ (GET \/v1\S* lists them|The errors of the job (list them|say why))\./g, '')

const instant = (t: string | number) => new Date(typeof t === 'number' ? t * 1000 : t)

export const time = (t: string | number | null | undefined) =>
  t == null ? none : instant(t).toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'medium' })

// clock and day format the two parts of a time.
export const clock = (t: string) => instant(t).toLocaleTimeString('en-GB')

export const day = (t: string) => instant(t).toLocaleDateString('en-GB', { dateStyle: 'medium' })

// utcDay formats a day of UTC, given as a time or as YYYY-MM-DD.
export const utcDay = (t: string | Date) => new Date(t).toLocaleDateString('en-GB', { dateStyle: 'medium', timeZone: 'UTC' })

export const ago = (t: string | number | null | undefined) => {
  if (t == null) return none
  const s = (Date.now() - instant(t).getTime()) / 1000
  if (s < 5) return 'just now'
  if (s < 60) return `${Math.floor(s)} s ago`
  if (s < 3600) return `${Math.floor(s / 60)} min ago`
  if (s < 86_400) return `${Math.floor(s / 3600)} h ago`
  return `${Math.floor(s / 86_400)} d ago`
}

// until formats the time that is left before t.
export const until = (t: string | number | null | undefined) => {
  if (t == null) return none
  const s = (instant(t).getTime() - Date.now()) / 1000
  if (s <= 0) return 'now'
  if (s < 3600) return `in ${Math.ceil(s / 60)} min`
  if (s < 2 * 86_400) return `in ${Math.floor(s / 3600)} h`
  return `in ${Math.floor(s / 86_400)} d`
}

// beginning returns the beginning of a text that is longer than most characters, cut at a word.
export const beginning = (s: string, most: number) => (s.length <= most ? s : `${s.slice(0, most + 1).replace(/\s+\S*$/, '').slice(0, most)}…`)

// idEnd returns the end of an id. Ids begin with their time of creation, so the beginnings of new ids are equal.
export const idEnd = (id: string) => `…${id.slice(-12)}`

// sentence returns a message with a capital first letter.
export const sentence = (message: string) => message.charAt(0).toUpperCase() + message.slice(1)

export const text = (v: unknown) => (v == null ? '' : typeof v === 'string' ? v : JSON.stringify(v))
