import { defineConfig } from 'vite'
import react from '@vitejs/plugin-react'

const node = process.env.ROWMILL_URL ?? 'http://127.0.0.1:8088'

// Built pages resolve all addresses relative to <base>, so that a prefix before a node
// changes only one line of the index.
export default defineConfig(({ command }) => ({
  base: command === 'build' ? './' : '/console/',
  plugins: [react()],
  build: {
    outDir: process.env.CONSOLE_OUT ?? '../.build',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: 'baseline-widely-available',
    license: { fileName: 'licenses.md' },
  },
  server: {
    proxy: { '/v1': node, '/objects': node, '/version': node, '/console/session': node },
  },
}))
