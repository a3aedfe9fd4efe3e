package ingest

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"testing"
)

// Looking for an equal row takes less than a microsecond, and remembering a row takes
// about 45 bytes.
func BenchmarkCopies(b *testing.B) {
	const rows = 2 << 20
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c := newCopyFinder(rows, nil)
	text := bytes.Repeat([]byte("x"), 100)
	row := int64(0)
	for b.Loop() {
		binary.LittleEndian.PutUint64(text, uint64(row))
		c.add(row, string(text))
		row++
	}
	b.StopTimer()
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(c.seen)), "B/row")
	runtime.KeepAlive(c)
}
