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
)

// manyPartsBound is what a merge may hold, whatever the number of its parts.
const manyPartsBound = 64 << 20

// A shelf is parts as they lie in a bucket: one that is read is open, which
// takes some memory, until it is released. It looks at the heap now and then.
type shelf struct {
	files [][]byte

	mu         sync.Mutex
	open, most int
	reads      int
	lookEvery  int // reads
	heap       *heapWatch
}

// source is file i.
func (s *shelf) source(i int) (Source, func()) {
	v := &volume{shelf: s, stored: s.files[i]}
	return v, v.release
}

type volume struct {
	*shelf
	stored []byte
	takes  []byte // while it is open
}

func (v *volume) Size() int64 { return int64(len(v.stored)) }

func (v *volume) ReadAt(p []byte, off int64) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.takes == nil {
		v.takes = make([]byte, 8<<10)
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

func (v *volume) release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.takes != nil {
		v.takes = nil
		v.open--
	}
}

// dealt writes rows to so many parts, row i to the part that deal says, and
// returns the parts in an order of their own.
func dealt(tb testing.TB, s Schema, rows, parts int, deal func(row int) int, output func(row int) rowmill.Output) (*shelf, []PartSource) {
	tb.Helper()
	of := make([][]int, parts)
	for i := range rows {
		of[deal(i)] = append(of[deal(i)], i)
	}
	on := &shelf{lookEvery: max(1, parts/4)}
	var sources []PartSource
	for _, mine := range of {
		var file bytes.Buffer
		w, err := NewPartWriter(&file, s)
		if err != nil {
			tb.Fatal(err)
		}
		accept := roaring.New()
		for _, i := range mine {
			accept.Add(uint32(i))
			out := output(i)
			if err := w.Add(&rowmill.Row{Index: int64(i), Text: fmt.Sprint("in ", i)}, &out); err != nil {
				tb.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			tb.Fatal(err)
		}
		on.files = append(on.files, slices.Clone(file.Bytes()))
		source, release := on.source(len(on.files) - 1)
		sources = append(sources, PartSource{Source: source, Accept: accept, Release: release})
	}
	rng := rand.New(rand.NewPCG(7, 8))
	rng.Shuffle(len(sources), func(i, j int) { sources[i], sources[j] = sources[j], sources[i] })
	return on, sources
}

// What a merge holds does not grow with the number of its parts, however they
// lie: few may be open at a time, and their blocks fit the bound.
func TestMergeOfManyPartsIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("writes tens of thousands of parts")
	}
	text := func(row int) rowmill.Output { return rowmill.Output{Text: fmt.Sprint("out ", row)} }
	noise := make([]byte, 1<<20)
	for i, rng := 0, rand.New(rand.NewPCG(5, 6)); i < len(noise); i++ {
		noise[i] = byte(' ' + rng.IntN(95))
	}
	wide := func(row int) rowmill.Output { return rowmill.Output{Text: fmt.Sprint(row) + string(noise[row:])} }
	vector := func(row int) rowmill.Output {
		v := make([]float32, 512)
		rng := rand.New(rand.NewPCG(uint64(row), 1))
		for i := range v {
			v[i] = rng.Float32()
		}
		return rowmill.Output{Embedding: v}
	}
	for _, test := range []struct {
		name        string
		embedding   bool
		rows, parts int
		deal        func(row int) int
		output      func(row int) rowmill.Output
	}{
		{"a row each", false, 16_384, 16_384, func(row int) int { return row }, text},
		{"each spans the shard", false, 16_384, 2_048, func(row int) int { return row % 2_048 }, text},
		{"answers of a megabyte, each spans the shard", false, 120, 40, func(row int) int { return row % 40 }, wide},
		{"embeddings, overlapping", true, 16_384, 4_096, func(row int) int { return row/512*128 + row%128 }, vector},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := Schema{JobID: testJob, Embedding: test.embedding}
			on, sources := dealt(t, s, test.rows, test.parts, test.deal, test.output)
			on.heap = newHeapWatch()
			merged, err := os.Create(filepath.Join(t.TempDir(), "merged"))
			if err != nil {
				t.Fatal(err)
			}
			defer merged.Close()
			rows, err := Merge(context.Background(), merged, s, sources)
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

// sameRows wants every row once in a file, in order and with its output.
func sameRows(t *testing.T, s Schema, file *os.File, rows int, output func(row int) rowmill.Output) {
	t.Helper()
	size, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		t.Fatal(err)
	}
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
