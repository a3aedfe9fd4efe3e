package results

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
)

// benchEntries are n rows with texts of about the given sizes in bytes, in
// words that repeat about as prose does.
func benchEntries(n, in, out int) []entry {
	rng := rand.New(rand.NewPCG(1, 2))
	words := make([]string, 4000)
	for i := range words {
		word := make([]byte, 2+rng.IntN(9))
		for j := range word {
			word[j] = byte('a' + rng.IntN(26))
		}
		words[i] = string(word)
	}
	text := func(size int) string {
		var b strings.Builder
		for b.Len() < size {
			x := rng.Float64()
			b.WriteString(words[int(x*x*x*float64(len(words)))])
			b.WriteByte(' ')
		}
		return b.String()[:size]
	}
	entries := make([]entry, n)
	for i := range entries {
		entries[i].row = rowmill.Row{Index: int64(i), Text: text(in), ID: rowmill.ID{Kind: rowmill.IDInt, Int: int64(i)}}
		entries[i].out = rowmill.Output{
			Text: text(out), Score: 100 * rng.Float64(), HasScore: true, Finish: rowmill.FinishStop,
			InputTokens: int64(in/4 + rng.IntN(50)), OutputTokens: int64(out / 4), Engine: "127.0.0.1:8000", Attempts: 1,
		}
	}
	return entries
}

func benchSchema() Schema {
	return Schema{JobID: testJob, Model: "m", IDColumn: "row_id", IDKind: rowmill.IDInt}
}

// cpuTime is the time this process has used on all cores.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure runs f b.N times over rows and reports rows/s and CPU per row.
func measure(b *testing.B, rows int, f func()) {
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime()
	for range b.N {
		f()
	}
	total := float64(rows) * float64(b.N)
	b.ReportMetric(total/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64((cpuTime()-before).Nanoseconds())/total, "cpu-ns/row")
}

func BenchmarkPartWrite(b *testing.B) {
	for _, size := range [][2]int{{1000, 500}, {150, 150}} {
		b.Run(fmt.Sprintf("in=%d/out=%d", size[0], size[1]), func(b *testing.B) {
			entries := benchEntries(8000, size[0], size[1])
			measure(b, len(entries), func() {
				w, err := NewPartWriter(io.Discard, benchSchema())
				if err != nil {
					b.Fatal(err)
				}
				for i := range entries {
					if err := w.Add(&entries[i].row, &entries[i].out); err != nil {
						b.Fatal(err)
					}
				}
				if err := w.Close(); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

func BenchmarkPartWriteEmbeddings(b *testing.B) {
	s := benchSchema()
	s.Embedding = true
	rng := rand.New(rand.NewPCG(1, 2))
	vector := make([]float32, 1024)
	for i := range vector {
		vector[i] = float32(rng.NormFloat64())
	}
	entries := benchEntries(2000, 100, 0)
	for i := range entries {
		entries[i].out.Embedding = vector
	}
	measure(b, len(entries), func() {
		w, err := NewPartWriter(io.Discard, s)
		if err != nil {
			b.Fatal(err)
		}
		for i := range entries {
			vector[i%1024] += 0.25
			if err := w.Add(&entries[i].row, &entries[i].out); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	})
}

// interleavedParts deals the rows out to n parts at random.
func interleavedParts(tb testing.TB, s Schema, entries []entry, n int) []PartSource {
	rng := rand.New(rand.NewPCG(3, 4))
	dealt := make([][]entry, n)
	for _, e := range entries {
		i := rng.IntN(n)
		dealt[i] = append(dealt[i], e)
	}
	var parts []PartSource
	for _, entries := range dealt {
		parts = append(parts, PartSource{Source: writePart(tb, s, entries)})
	}
	return parts
}

func BenchmarkMergeInterleaved(b *testing.B) {
	for _, n := range []int{2, 16, 64, 300} {
		b.Run(fmt.Sprintf("parts=%d", n), func(b *testing.B) {
			entries := benchEntries(16_384, 150, 150)
			parts := interleavedParts(b, benchSchema(), entries, n)
			measure(b, len(entries), func() {
				rows, err := Merge(context.Background(), io.Discard, benchSchema(), parts)
				if err != nil || rows != int64(len(entries)) {
					b.Fatal(rows, err)
				}
			})
		})
	}
}

// shardParts are complete parts of 16,384 rows.
func shardParts(tb testing.TB, n int) []Source {
	entries := benchEntries(16_384, 150, 150)
	var parts []Source
	for i := range n {
		for j := range entries {
			entries[j].row.Index = int64(i*len(entries) + j)
		}
		parts = append(parts, writePart(tb, benchSchema(), entries))
	}
	return parts
}

func BenchmarkConcat(b *testing.B) {
	parts := shardParts(b, 16)
	for _, v := range variants() {
		b.Run(v.Name(), func(b *testing.B) {
			measure(b, 16*16_384, func() {
				if _, err := Concat(context.Background(), io.Discard, benchSchema(), parts, v); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

func BenchmarkExport(b *testing.B) {
	var full bytes.Buffer
	if _, err := Concat(context.Background(), &full, benchSchema(), shardParts(b, 4), Full); err != nil {
		b.Fatal(err)
	}
	src := bytes.NewReader(full.Bytes())
	b.Run("json", func(b *testing.B) {
		measure(b, 4*16_384, func() {
			if err := WriteJSON(context.Background(), io.Discard, src, benchSchema(), Full); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run("csv", func(b *testing.B) {
		measure(b, 4*16_384, func() {
			if err := WriteCSVZip(context.Background(), io.Discard, src, benchSchema(), Full); err != nil {
				b.Fatal(err)
			}
		})
	})
}

func BenchmarkReadRow(b *testing.B) {
	parts := shardParts(b, 16)
	var full, rows bytes.Buffer
	if _, err := Concat(context.Background(), &full, benchSchema(), parts, Full); err != nil {
		b.Fatal(err)
	}
	if _, err := ConcatRows(context.Background(), &rows, benchSchema(), parts); err != nil {
		b.Fatal(err)
	}
	f, r := bytes.NewReader(full.Bytes()), bytes.NewReader(rows.Bytes())
	n := int64(0)
	measure(b, 1, func() {
		n = (n + 7919) % (16 * 16_384)
		if _, err := ReadRow(f, r, n); err != nil {
			b.Fatal(err)
		}
	})
}
