import { useMe } from '../api/hooks'
import { isSimulated } from '../lib/answer'

// SimulatedAnswer marks a simulated output. It shows nothing if the service is simulated now, because
// every page then says so.
export function SimulatedAnswer({ output }: { output: unknown }) {
  const { data: me } = useMe()
  return isSimulated(output) && !me?.simulated ? <p className="simulated">Simulated answer: no real model gave it.</p> : null
}
