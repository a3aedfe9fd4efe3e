import { Component, type ReactNode } from 'react'
import { Problem } from './load'

// Boundary shows why a page could not be drawn in its place. That is mostly that a
// file of it is not there: the node was away, or has another version by now, and
// loading everything anew helps. Another path is tried without.
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
    return <Problem error={new Error(`This page could not be shown: ${this.state.error.message}`)} again={() => location.reload()} />
  }
}
