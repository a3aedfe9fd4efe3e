// splitAnswer splits an output of a reasoning model into its reasoning and its answer. Other
// outputs are answers.
export function splitAnswer(output: string): { reasoning?: string; answer: string } {
  const value = parseObject(output)
  if (value && typeof value.reasoning_content === 'string' && typeof value.content === 'string') return { reasoning: value.reasoning_content, answer: value.content }
  return { answer: output }
}

// indent indents a JSON object.
export function indent(answer: string): string {
  const value = parseObject(answer)
  return value ? JSON.stringify(value, null, 2) : answer
}

// isSimulated reports whether a simulated engine gave an output.
export const isSimulated = (output: unknown) => typeof output === 'string' && Object.values(splitAnswer(output)).some((part) => part.startsWith('[simulated]'))

// parseObject parses a text as a JSON object. It returns undefined for other texts, and if a
// number is too long for JavaScript.
export function parseObject(s: string): Record<string, unknown> | undefined {
  if (!s.trimStart().startsWith('{') || /\d{16}/.test(s)) return undefined
  try {
    return JSON.parse(s)
  } catch {
    return undefined // not valid JSON
  }
}
