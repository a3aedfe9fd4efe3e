package results

import (
	"bytes"
	"context"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

// memoryBound limits the memory of writing and merging, for any number of rows:
// a row group, the blocks of parts and the buffers to encode a block.
const memoryBound = 48 << 20

// heapWatch is a writer that measures the live heap every few megabytes.
type heapWatch struct {
	before, most uint64
	written      int
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (h *heapWatch) Write(b []byte) (int, error) {
	if h.written/(4<<20) != (h.written+len(b))/(4<<20) {
		h.most = max(h.most, liveHeap())
	}
	h.written += len(b)
	return len(b), nil
}

// grown returns the largest growth of the heap since newHeapWatch.
func (h *heapWatch) grown() uint64 { return h.most - min(h.most, h.before) }

func newHeapWatch() *heapWatch {
	before := liveHeap()
	return &heapWatch{before: before, most: before}
}

// bigRows calls add with n rows of incompressible embeddings of 1,024 floats,
// or of answers of 150 kB.
func bigRows(tb testing.TB, s Schema, n int, add func(row *rowmill.Row, out *rowmill.RowOutput) error) {
	rng := rand.New(rand.NewPCG(5, 6))
	vector, answer := make([]float32, 1024), make([]byte, 150_000)
	for i := range vector {
		vector[i] = float32(rng.NormFloat64())
	}
	for i := range answer {
		answer[i] = byte(' ' + rng.IntN(95))
	}
	for i := range n {
		row := rowmill.Row{Index: int64(i), Text: "a short question"}
		out := rowmill.RowOutput{Text: string(answer)}
		if s.Embedding {
			for j := range vector {
				vector[j] = rng.Float32()
			}
			out = rowmill.RowOutput{Embedding: vector}
		}
		must.Succeed(tb, add(&row, &out))
	}
}

// These tests measure the heap of the whole process, so they are not parallel.

func TestPartMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes hundreds of megabytes")
	}
	for _, s := range []Schema{{JobID: testJob, Embedding: true}, {JobID: testJob}} {
		watch := newHeapWatch()
		w := must.Get(NewPartWriter(watch, s))(t)
		rows := 500 // 75 MB
		if s.Embedding {
			rows = 18_000 // 73 MB
		}
		bigRows(t, s, rows, w.Add)
		must.Succeed(t, w.Close())
		if watch.written < 56<<20 || watch.grown() > memoryBound {
			t.Errorf("embedding %t: %d MB written with %d MB on the heap", s.Embedding, watch.written>>20, watch.grown()>>20)
		}
	}
}

func TestMergeMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes hundreds of megabytes")
	}
	for _, s := range []Schema{{JobID: testJob, Embedding: true}, {JobID: testJob}} {
		const parts = 64
		files := make([]bytes.Buffer, parts)
		var writers []*PartWriter
		for i := range files {
			w := must.Get(NewPartWriter(&files[i], s))(t)
			writers = append(writers, w)
		}
		rows := 500
		if s.Embedding {
			rows = 18_000
		}
		bigRows(t, s, rows, func(row *rowmill.Row, out *rowmill.RowOutput) error {
			return writers[row.Index%parts].Add(row, out)
		})
		var sources []PartSource
		for i, w := range writers {
			must.Succeed(t, w.Close())
			writers[i] = nil
			sources = append(sources, PartSource{Source: bytes.NewReader(files[i].Bytes())})
		}
		watch := newHeapWatch()
		must.Get(MergeParts(context.Background(), watch, s, sources))(t)
		if watch.written < 56<<20 || watch.grown() > memoryBound {
			t.Errorf("embedding %t: %d MB merged with %d MB on the heap", s.Embedding, watch.written>>20, watch.grown()>>20)
		}
	}
}
