package results

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

func TestAddRefuses(t *testing.T) {
	t.Parallel()
	s := schemas()["int/generation"]
	answer := rowmill.RowOutput{Text: "yes"}
	tests := map[string]struct {
		schema Schema
		row    rowmill.Row
		out    rowmill.RowOutput
		want   string
	}{
		"same row":                {s, rowmill.Row{Index: 4}, answer, "rows must ascend"},
		"earlier row":             {s, rowmill.Row{Index: 3}, answer, "rows must ascend"},
		"other ID":                {s, rowmill.Row{Index: 5, ID: rowmill.ID{Kind: rowmill.IDString}}, answer, "ID has kind"},
		"ID without an ID column": {schemas()["none/generation"], rowmill.Row{Index: 5, ID: rowmill.ID{Kind: rowmill.IDInt}}, answer, "ID has kind"},
		"text":                    {s, rowmill.Row{Index: 5, Text: "a\xffb"}, answer, "not UTF-8"},
		"ID text":                 {schemas()["string/generation"], rowmill.Row{Index: 5, ID: rowmill.ID{Kind: rowmill.IDString, Text: "\xff"}}, answer, "not UTF-8"},
		"embedding":               {s, rowmill.Row{Index: 5}, rowmill.RowOutput{Embedding: []float32{1}}, "outputs are texts"},
		"no embedding":            {schemas()["int/embedding"], rowmill.Row{Index: 5}, answer, "outputs are embeddings"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := must.Get(NewPartWriter(&bytes.Buffer{}, test.schema))(t)
			first := rowmill.RowOutput{Err: &rowmill.RowError{Code: "c"}}
			must.Succeed(t, w.Add(&rowmill.Row{Index: 4}, &first))
			if err := w.Add(&test.row, &test.out); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestSchemaValidate(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]Schema{
		"no job":            {},
		"reserved job":      {JobID: "RESERVED_row"},
		"ID is inputs":      {JobID: "job-1", IDColumn: "inputs", IDType: rowmill.IDType{IDKind: rowmill.IDInt}},
		"ID is the job":     {JobID: "job-1", IDColumn: "job-1", IDType: rowmill.IDType{IDKind: rowmill.IDInt}},
		"ID is reserved":    {JobID: "job-1", IDColumn: "RESERVED_x", IDType: rowmill.IDType{IDKind: rowmill.IDInt}},
		"output is inputs":  {JobID: "job-1", Output: "inputs"},
		"output is the ID":  {JobID: "job-1", Output: "id", IDColumn: "id", IDType: rowmill.IDType{IDKind: rowmill.IDInt}},
		"output is a field": {JobID: "job-1", Output: "a", Fields: []string{"a"}},
		"ID of no kind":     {JobID: "job-1", IDColumn: "id"},
		"kind of no ID":     {JobID: "job-1", IDType: rowmill.IDType{IDKind: rowmill.IDInt}},
	} {
		if _, err := NewPartWriter(&bytes.Buffer{}, s); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The text may be in a buffer that the caller reuses. Broken UTF-8 in an
// engine's answer must not fail the row.
func TestAddKeepsNothing(t *testing.T) {
	t.Parallel()
	s := Schema{JobID: testJob}
	var file bytes.Buffer
	w := must.Get(NewPartWriter(&file, s))(t)
	var want []entry
	buffer := make([]byte, 8)
	for i := range 100 {
		for j := range buffer {
			buffer[j] = byte('a' + i%26)
		}
		row := rowmill.Row{Index: int64(i), Text: string(buffer)}
		want = append(want, entry{row, rowmill.RowOutput{Text: "a\uFFFDb"}})
		must.Succeed(t, w.Add(&row, &rowmill.RowOutput{Text: "a\xffb"}))
	}
	must.Succeed(t, w.Close())
	got := must.Get(readEntries(s, bytes.NewReader(file.Bytes())))(t)
	sameEntries(t, "part", got, want)
}

// failingWriter fails after n bytes, like a full disk.
type failingWriter struct{ n int }

var errDiskFull = errors.New("disk full")

func (w *failingWriter) Write(b []byte) (int, error) {
	if w.n -= len(b); w.n < 0 {
		return 0, errDiskFull
	}
	return len(b), nil
}

func TestDiskFull(t *testing.T) {
	t.Parallel()
	s := schemas()["float/generation"]
	entries := sampleEntries(s, 0, 50)
	whole := writePart(t, s, entries).Size()
	for room := int64(0); room < whole; room += 97 {
		w, err := NewPartWriter(&failingWriter{int(room)}, s)
		for i := 0; err == nil && i < len(entries); i++ {
			err = w.Add(&entries[i].row, &entries[i].out)
		}
		if err == nil {
			err = w.Close()
		}
		if !errors.Is(err, errDiskFull) {
			t.Fatalf("room for %d bytes of %d: error %v", room, whole, err)
		}
	}
}

func TestFloatBoundsOfNaN(t *testing.T) {
	t.Parallel()
	s := schemas()["float/generation"]
	var entries []entry
	for i, v := range []float64{math.NaN(), math.Inf(1), math.Copysign(0, -1), math.NaN()} {
		entries = append(entries, entry{
			rowmill.Row{Index: int64(i), ID: rowmill.ID{Kind: rowmill.IDFloat, Real: v}},
			rowmill.RowOutput{Text: "x"},
		})
	}
	got := must.Get(readEntries(s, writePart(t, s, entries)))(t)
	sameEntries(t, "part", got, entries)
	must.Get(readEntries(s, writePart(t, s, entries[:1])))(t)
}
