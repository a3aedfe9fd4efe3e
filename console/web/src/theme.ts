import { createTheme, type CSSVariablesResolver, Notification, Modal } from '@mantine/core'

const sans = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif'

export const theme = createTheme({
  primaryColor: 'cyan',
  primaryShade: 9,
  autoContrast: true,
  colors: { dark: ['#cdd3d9', '#b6bec6', '#8b959f', '#59636d', '#3d4750', '#323a42', '#242b31', '#1c2126', '#14181c', '#0f1215'] },
  defaultRadius: 'md',
  fontFamily: sans,
  fontFamilyMonospace: 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace',
  headings: { fontFamily: sans, fontWeight: '650', sizes: { h1: { fontSize: '1.5rem' }, h2: { fontSize: '1.1rem' }, h3: { fontSize: '1rem' } } },
  respectReducedMotion: true,
  components: {
    Notification: Notification.extend({ defaultProps: { closeButtonProps: { 'aria-label': 'Close' } } }),
    Modal: Modal.extend({ defaultProps: { closeButtonProps: { 'aria-label': 'Close' }, centered: true } }),
  },
})

// Mantine's own greys are too pale for small text, and so are its colours for a button
// under the pointer.
export const variables: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    '--mantine-color-cyan-filled-hover': '#095d6d',
    '--mantine-color-cyan-light-hover': 'var(--mantine-color-cyan-1)',
    '--mantine-color-red-light-hover': 'var(--mantine-color-red-1)',
    '--mantine-color-dimmed': '#535c66',
    '--mantine-color-placeholder': '#626b75',
    '--mantine-color-error': '#c92a2a',
    '--page': '#f6f8f9',
    '--card': '#ffffff',
    '--line': '#dde3e8',
    '--good': '#1b7a43',
    '--busy': '#0b6e83',
    '--bad': '#c2255c',
    '--wait': '#8a5a00',
    '--quiet': '#535c66',
  },
  dark: {
    '--mantine-color-cyan-filled-hover': '#095d6d',
    '--mantine-color-dimmed': '#a6b0ba',
    '--mantine-color-placeholder': '#98a2ad',
    '--mantine-color-body': '#14181c',
    '--page': '#14181c',
    '--card': '#1c2126',
    '--line': '#323a42',
    '--good': '#5fd38d',
    '--busy': '#58cbe0',
    '--bad': '#ff8fab',
    '--wait': '#f2bf5e',
    '--quiet': '#a6b0ba',
  },
})
