import { useEffect, useState } from 'react'
import { rate } from '../lib/format'

type Point = { at: number; value: number }

const [width, height] = [160, 32]
const mostPoints = 900 // half an hour of answers every 2 s

// Curve draws a rate that the page reads again and again. at is the time of the answer, in ms. The
// service stores no earlier rates of a job, so the curve begins when the page is opened.
export function Curve({ value, at }: { value?: number | null; at: number }) {
  const [points, setPoints] = useState<Point[]>([])
  useEffect(() => {
    if (value != null) setPoints((before) => [...before, { at, value }].slice(-mostPoints))
  }, [value, at])
  const [first, last] = [points[0], points.at(-1)]
  if (!first || !last || first.at === last.at) return null
  const top = Math.max(...points.map((p) => p.value)) || 1
  const x = (p: Point) => ((p.at - first.at) / (last.at - first.at)) * width
  const y = (p: Point) => (1 - p.value / top) * height
  const line = points.map((p) => `${x(p)},${y(p)}`).join(' ')
  const label = `Rows a second since this page was opened: ${rate(last.value, '')} now, ${rate(top, '')} at most`
  return (
    <>
      <svg className="curve" role="img" aria-label={label} viewBox={`0 -1 ${width} ${height + 2}`} preserveAspectRatio="none">
        <polygon points={`0,${height} ${line} ${width},${height}`} />
        <polyline points={line} />
      </svg>
      <span className="range">since this page was opened</span>
    </>
  )
}
