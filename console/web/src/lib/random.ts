// randomID works without a secure context, where crypto.randomUUID is missing.
export const randomID = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, '0')).join('')
