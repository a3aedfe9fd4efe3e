package results

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

// manyPartsBound limits the memory of a merge, for any number of parts.
const manyPartsBound = 64 << 20

// memoryBucket holds parts like a bucket. Each open part uses some memory until
// it is released. It checks the heap now and then.
type memoryBucket struct {
	files [][]byte

	mu         sync.Mutex
	open, most int
	reads      int
	lookEvery  int // in reads
	heap       *heapWatch
}

// source returns file i.
func (s *memoryBucket) source(i int) (Source, func()) {
	v := &memoryObject{memoryBucket: s, stored: s.files[i]}
	return v, v.release
}

type memoryObject struct {
	*memoryBucket
	stored []byte
	buffer []byte // memory of the open part
}

func (v *memoryObject) Size() int64 { return int64(len(v.stored)) }

func (v *memoryObject) ReadAt(p []byte, off int64) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.buffer == nil {
		v.buffer = make([]byte, 8<<10)
		v.open++
		v.most = max(v.most, v.open)
	}
	if v.reads++; v.reads%v.lookEvery == 0 {
		v.heap.most = max(v.heap.most, liveHeap())
	}
	n := copy(p, v.stored[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (v *memoryObject) release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.buffer != nil {
		v.buffer = nil
		v.open--
	}
}

// splitRows writes rows into parts; partOf returns the part of each row. It
// returns the parts in another order.
func splitRows(tb testing.TB, s Schema, rows, parts int, partOf func(row int) int, output func(row int) rowmill.RowOutput) (*memoryBucket, []PartSource) {
	tb.Helper()
	of := make([][]int, parts)
	for i := range rows {
		of[partOf(i)] = append(of[partOf(i)], i)
	}
	on := &memoryBucket{lookEvery: max(1, parts/4)}
	var sources []PartSource
	for _, mine := range of {
		var file bytes.Buffer
		w := must.Get(NewPartWriter(&file, s))(tb)
		accept := roaring.New()
		for _, i := range mine {
			accept.Add(uint32(i))
			out := output(i)
			must.Succeed(tb, w.Add(&rowmill.Row{Index: int64(i), Text: fmt.Sprint("in ", i)}, &out))
		}
		must.Succeed(tb, w.Close())
		on.files = append(on.files, slices.Clone(file.Bytes()))
		source, release := on.source(len(on.files) - 1)
		sources = append(sources, PartSource{Source: source, Accept: accept, Release: release})
	}
	rng := rand.New(rand.NewPCG(7, 8))
	rng.Shuffle(len(sources), func(i, j int) { sources[i], sources[j] = sources[j], sources[i] })
	return on, sources
}

// The memory of a merge must not grow with the number of its parts, for any
// order of rows: few parts may be open at a time, and their blocks must stay
// within the limit.
func TestMergeOfManyPartsIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("writes tens of thousands of parts")
	}
	text := func(row int) rowmill.RowOutput { return rowmill.RowOutput{Text: fmt.Sprint("out ", row)} }
	noise := make([]byte, 1<<20)
	for i, rng := 0, rand.New(rand.NewPCG(5, 6)); i < len(noise); i++ {
		noise[i] = byte(' ' + rng.IntN(95))
	}
	wide := func(row int) rowmill.RowOutput { return rowmill.RowOutput{Text: fmt.Sprint(row) + string(noise[row:])} }
	vector := func(row int) rowmill.RowOutput {
		v := make([]float32, 512)
		rng := rand.New(rand.NewPCG(uint64(row), 1))
		for i := range v {
			v[i] = rng.Float32()
		}
		return rowmill.RowOutput{Embedding: v}
	}
	for _, test := range []struct {
		name        string
		embedding   bool
		rows, parts int
		deal        func(row int) int
		output      func(row int) rowmill.RowOutput
	}{
		{"a row each", false, 16_384, 16_384, func(row int) int { return row }, text},
		{"each spans the shard", false, 16_384, 2_048, func(row int) int { return row % 2_048 }, text},
		{"answers of a megabyte, each spans the shard", false, 120, 40, func(row int) int { return row % 40 }, wide},
		{"embeddings, overlapping", true, 16_384, 4_096, func(row int) int { return row/512*128 + row%128 }, vector},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := Schema{JobID: testJob, Embedding: test.embedding}
			on, sources := splitRows(t, s, test.rows, test.parts, test.deal, test.output)
			on.heap = newHeapWatch()
			merged, err := os.Create(filepath.Join(t.TempDir(), "merged"))
			must.Succeed(t, err)
			defer merged.Close()
			rows, err := MergeParts(context.Background(), merged, s, sources)
			if err != nil || rows != int64(test.rows) {
				t.Fatalf("%d rows, want %d: %v", rows, test.rows, err)
			}
			if grown := on.heap.grown(); grown > manyPartsBound {
				t.Errorf("the heap grew by %d MiB, want %d at most", grown>>20, manyPartsBound>>20)
			} else {
				t.Logf("the heap grew by %d MiB, %d parts were open at a time", grown>>20, on.most)
			}
			if most := mergeParts + openAtOnce; on.most > most || on.open != 0 {
				t.Errorf("%d of %d parts were open at a time, want %d at most; %d still are", on.most, test.parts, most, on.open)
			}
			sameRows(t, s, merged, test.rows, test.output)
		})
	}
}

// sameRows checks that a file has every row once, in order and with its output.
func sameRows(t *testing.T, s Schema, file *os.File, rows int, output func(row int) rowmill.RowOutput) {
	t.Helper()
	size, err := file.Seek(0, io.SeekCurrent)
	must.Succeed(t, err)
	got, err := readEntries(s, io.NewSectionReader(file, 0, size))
	if err != nil || len(got) != rows {
		t.Fatalf("%d rows were merged, want %d: %v", len(got), rows, err)
	}
	for i, e := range got {
		want := output(i)
		if e.row.Index != int64(i) || e.row.Text != fmt.Sprint("in ", i) || e.out.Text != want.Text || !slices.Equal(e.out.Embedding, want.Embedding) {
			t.Fatalf("row %d is %d: %.40q, %.40q", i, e.row.Index, e.row.Text, e.out.Text)
		}
	}
}
