package shard

import (
	"bufio"
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
)

// RunItem is an item of sorted runs. Items are compared as bytes.
type RunItem [16]byte

const (
	runsMagic = "rowmill runs 1\n\x00" // the first 16 bytes of the object
	// runLength is the number of items in each run but the last. The writer holds one run, 8 MiB.
	runLength = 1 << 19
	// growsTo is the number of items up to which a run grows in small steps: most jobs are small.
	growsTo = 1 << 14
	// maxRunBuffer limits the buffer of one run, so that a request to a bucket is neither small nor
	// large.
	maxRunBuffer = 1 << 20
)

// A RunsWriter writes items as sorted runs: it sorts each runLength items in memory. MergeRuns
// reads all items in order.
type RunsWriter struct {
	out  io.Writer
	run  []RunItem
	full int // number of items in a full run
	err  error
}

// NewRunsWriter returns a RunsWriter that writes to out.
func NewRunsWriter(out io.Writer) *RunsWriter {
	_, err := io.WriteString(out, runsMagic)
	return &RunsWriter{out: out, full: runLength, err: err}
}

// Add adds an item.
func (w *RunsWriter) Add(item RunItem) error {
	if len(w.run) == growsTo {
		w.run = slices.Grow(w.run, w.full-growsTo)
	}
	w.run = append(w.run, item)
	if len(w.run) == w.full {
		w.flush()
	}
	return w.err
}

// Close writes the last run. It does not close the underlying writer.
func (w *RunsWriter) Close() error {
	w.flush()
	return w.err
}

func (w *RunsWriter) flush() {
	slices.SortFunc(w.run, func(a, b RunItem) int { return bytes.Compare(a[:], b[:]) })
	for _, item := range w.run {
		if w.err == nil {
			_, w.err = w.out.Write(item[:])
		}
	}
	w.run = w.run[:0]
}

// Runs are the items that a RunsWriter wrote.
type Runs struct {
	Source io.ReaderAt
	Size   int64 // bytes
}

// MergeRuns returns all items of several sources, ordered by their first key bytes. Among items with
// equal keys, items of earlier sources come first. memory limits the sum of the read buffers in
// bytes. The number is the index of the item's source. The sequence ends after an error.
func MergeRuns(memory, key int, sources ...Runs) iter.Seq2[SourcedItem, error] {
	return func(yield func(SourcedItem, error) bool) {
		if err := mergeRuns(memory, key, runLength, sources, func(item SourcedItem) bool { return yield(item, nil) }); err != nil {
			yield(SourcedItem{}, err)
		}
	}
}

// A SourcedItem is an item with the index of its source.
type SourcedItem struct {
	RunItem
	Source int
}

// mergeRuns calls yield with each item until yield returns false. full is the number of items in a
// full run.
func mergeRuns(memory, key, full int, sources []Runs, yield func(SourcedItem) bool) error {
	h := runHeap{key: key}
	bytesOfRun := int64(full * len(RunItem{}))
	runs := 0
	for _, s := range sources {
		runs += int((s.Size-int64(len(runsMagic)))/bytesOfRun) + 1
	}
	buffer := max(min(memory/max(runs, 1), maxRunBuffer), 4<<10)
	for i, s := range sources {
		magic := make([]byte, len(runsMagic))
		if _, err := s.Source.ReadAt(magic, 0); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read sorted runs: %w", err)
		}
		if string(magic) != runsMagic || s.Size%int64(len(RunItem{})) != 0 {
			return fmt.Errorf("%w: the object has no sorted runs", ErrCorrupt)
		}
		for at := int64(len(runsMagic)); at < s.Size; at += bytesOfRun {
			part := io.NewSectionReader(s.Source, at, min(bytesOfRun, s.Size-at))
			run := &runCursor{in: bufio.NewReaderSize(part, int(min(int64(buffer), part.Size())))}
			run.Source = i
			if more, err := run.next(); err != nil {
				return err
			} else if more {
				h.runs = append(h.runs, run)
			}
		}
	}
	heap.Init(&h)
	for len(h.runs) > 0 {
		first := h.runs[0]
		if !yield(first.SourcedItem) {
			return nil
		}
		more, err := first.next()
		switch {
		case err != nil:
			return err
		case more:
			heap.Fix(&h, 0)
		default:
			heap.Pop(&h)
		}
	}
	return nil
}

// A runCursor is the position in a run.
type runCursor struct {
	SourcedItem // the item at the position
	in          *bufio.Reader
}

// next reads the next item. more is false at the end of the run.
func (c *runCursor) next() (more bool, err error) {
	_, err = io.ReadFull(c.in, c.RunItem[:])
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read a sorted run: %w", err)
	}
	return true, nil
}

// runHeap has the runs with further items; the run with the least item is the first.
type runHeap struct {
	key  int
	runs []*runCursor
}

func (h *runHeap) Len() int      { return len(h.runs) }
func (h *runHeap) Swap(i, j int) { h.runs[i], h.runs[j] = h.runs[j], h.runs[i] }
func (h *runHeap) Push(any)      {} // no run is added after Init

func (h *runHeap) Less(i, j int) bool {
	a, b := h.runs[i], h.runs[j]
	if c := bytes.Compare(a.RunItem[:h.key], b.RunItem[:h.key]); c != 0 {
		return c < 0
	}
	if a.Source != b.Source {
		return a.Source < b.Source
	}
	return bytes.Compare(a.RunItem[h.key:], b.RunItem[h.key:]) < 0
}

func (h *runHeap) Pop() any {
	last := len(h.runs) - 1
	run := h.runs[last]
	h.runs = h.runs[:last]
	return run
}
