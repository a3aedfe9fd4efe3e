import { useEffect, useRef } from 'react'
import { useComputedColorScheme } from '@mantine/core'
import uPlot from 'uplot'
import { compact } from '../lib/format'
import 'uplot/dist/uPlot.min.css'

type Line = { name: string; values: (number | null)[]; color: string; bars?: boolean }

const format = (o: Intl.DateTimeFormatOptions) => new Intl.DateTimeFormat('en-GB', o)
const day = format({ day: 'numeric', month: 'short', timeZone: 'UTC' })
const minute = format({ hour: '2-digit', minute: '2-digit' })
const second = format({ hour: '2-digit', minute: '2-digit', second: '2-digit' })

const tick = (t: number, step: number) => (step >= 86_400 ? day : step >= 60 ? minute : second).format(t * 1000)

// Chart draws lines over time; label describes them in words.
export function Chart({ label, times, lines, height = 180 }: { label: string; times: number[]; lines: Line[]; height?: number }) {
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot>(null)
  const scheme = useComputedColorScheme('light')
  const shape = lines.map((l) => l.name + l.color).join()

  useEffect(() => {
    const at = box.current!
    const css = getComputedStyle(at)
    const ink = css.getPropertyValue('--quiet')
    const grid = { stroke: css.getPropertyValue('--line'), width: 1 }
    const axis = { stroke: ink, grid, ticks: grid, font: '12px system-ui' }
    const clock = { ...axis, space: 90, values: (_: uPlot, at: number[], __: number, ___: number, step: number) => at.map((t) => tick(t, step)) }
    const scale = { ...axis, size: 56, values: (_: uPlot, at: number[]) => at.map((n) => (n < 10 ? String(Number(n.toPrecision(3))) : compact(n))) }
    const u = new uPlot(
      {
        width: at.clientWidth,
        height,
        padding: [null, 36, null, null], // the last time is wider than its place
        legend: { live: false },
        cursor: { y: false },
        scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
        axes: [clock, scale],
        series: [
          {},
          ...lines.map((l) => {
            const color = css.getPropertyValue(l.color)
            return {
              label: l.name,
              stroke: color,
              width: 1.5,
              points: { show: false },
              ...(l.bars ? { fill: color, paths: uPlot.paths.bars!({ size: [0.6, 40] }) } : {}),
            }
          }),
        ],
      },
      [times, ...lines.map((l) => l.values)],
      at,
    )
    plot.current = u
    const resized = new ResizeObserver(() => u.setSize({ width: at.clientWidth, height }))
    resized.observe(at)
    return () => {
      resized.disconnect()
      u.destroy()
    }
  }, [scheme, shape, height])

  useEffect(() => {
    plot.current?.setData([times, ...lines.map((l) => l.values)])
  }, [times, lines])

  return <div ref={box} className="chart" role="img" aria-label={label} />
}
