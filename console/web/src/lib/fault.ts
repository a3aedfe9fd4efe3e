// Reasons of the operating system and of Go's packages, with the sentence to show. host is an
// address with its port.
const reasons: [RegExp, (host: string) => string][] = [
  [/connection refused/, (host) => `Connection refused by ${host}. Is the server running?`],
  [/no such host/, (host) => `The host name ${host.replace(/:\d+$/, '')} is not known. Is the address right?`],
  [/no route to host|network is unreachable/, (host) => `The network has no route to ${host}.`],
  [/i\/o timeout|deadline exceeded|Client\.Timeout|handshake timeout/, (host) => `${host} did not answer in time.`],
  [/HTTP response to HTTPS client|record header/, (host) => `${host} does not speak TLS. Does the address need http instead of https?`],
  [/x509: |tls: /, (host) => `This node does not trust the TLS certificate of ${host}.`],
  [/connection reset|broken pipe|EOF$/, (host) => `${host} closed the connection.`],
]

// Go puts the causes of an error in a row. This is where a row about the network begins.
const chain = /(?:probe \S+: )?(?:get \S+: )?(?:[A-Z][a-z]+ "https?:\/\/|dial tcp:? |connect to the server: )/

// noGPUs is the beginning of an error about a GPU tool that does not run.
const noGPUs = 'nvidia-smi cannot be read'

// plain replaces the technical part of an error about the network or a GPU tool by a sentence.
export function plain(text: string): string {
  if (text.startsWith(noGPUs)) return noGPUs + '.'
  const start = text.search(chain)
  if (start < 0) return text
  const technical = text.slice(start)
  const host = /[A-Z][a-z]+ "https?:\/\/([^/"]+)/.exec(technical)?.[1] ?? /dial tcp:? (?:lookup )?(\S+?)(?::? |$)/.exec(technical)?.[1]
  const reason = reasons.find(([pattern]) => pattern.test(technical))
  return host && reason ? text.slice(0, start) + reason[1](host) : text
}
