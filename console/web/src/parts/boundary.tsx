import { Component, type ReactNode } from 'react'
import { Problem } from './load'

// Boundary shows an error in place of a page that cannot be drawn. Mostly a file of the
// page is missing, because the node was down or has another version now. Then loading
// the page again helps. A change of the path retries without a reload.
export class Boundary extends Component<{ path: string; children: ReactNode }, { error?: Error; path: string }> {
  override state: { error?: Error; path: string } = { path: this.props.path }

  static getDerivedStateFromError(error: Error) {
    return { error }
  }

  static getDerivedStateFromProps(props: { path: string }, state: { path: string }) {
    return props.path === state.path ? null : { error: undefined, path: props.path }
  }

  override render() {
    if (!this.state.error) return this.props.children
    return <Problem error={new Error(`The console cannot show this page: ${this.state.error.message}`)} again={() => location.reload()} />
  }
}
