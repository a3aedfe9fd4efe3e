package parts

import (
	"io"
	"math/rand/v2"
	"testing"

	"github.com/rowmill/rowmill/results"
)

// These benchmarks have no contender.

func BenchmarkEmbeddings(b *testing.B) {
	s := schema()
	s.Embedding = true
	rng := rand.New(rand.NewPCG(1, 2))
	entries := makeEntries(2000, 100, 0)
	for i := range entries {
		if entries[i].out.Failed() {
			continue
		}
		for range 1024 {
			entries[i].out.Embedding = append(entries[i].out.Embedding, float32(rng.NormFloat64()))
		}
	}
	inTurns(b, len(entries), side{"own", func(w io.Writer) { ownPart(b, w, s, entries) }})
}

func BenchmarkExport(b *testing.B) {
	const n, rows = 4, 16_384
	full := fullFiles(b, completeParts(b, makeEntries(rows, 150, 150), n)).own[0]
	b.Run("json", func(b *testing.B) {
		inTurns(b, n*rows, side{"own", func(w io.Writer) {
			check(b, results.WriteJSON(b.Context(), w, full, schema(), results.Full))
		}})
	})
	b.Run("csv", func(b *testing.B) {
		inTurns(b, n*rows, side{"own", func(w io.Writer) {
			check(b, results.WriteCSVZip(b.Context(), w, full, schema(), results.Full))
		}})
	})
}

func BenchmarkReadRow(b *testing.B) {
	const n, rows = 16, 16_384
	parts := completeParts(b, makeEntries(rows, 150, 150), n)
	full := fullFiles(b, parts).own[0]
	reserved := inFile(b, func(w io.Writer) { ownJoin(b, w, parts.own, rowsColumns()) })
	at := int64(0)
	inTurns(b, 1, side{"own", func(io.Writer) {
		at = (at + 7919) % (n * rows)
		must(results.ReadRow(full, reserved, at))(b)
	}})
}
