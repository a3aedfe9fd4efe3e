package results

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/internal/must"
)

// readEntries reads the rows of a part or of merged parts.
func readEntries(s Schema, part Source) (all []entry, err error) {
	err = VisitPartRows(context.Background(), s, []PartSource{{Source: part}}, visitInto(&all))
	return all, err
}

func sameEntries(tb rapid.TB, what string, got, want []entry) {
	tb.Helper()
	if reflect.DeepEqual(want, got) { // much faster than cmp
		return
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(entry{}), cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); diff != "" {
		tb.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// drawEntries draws the rows of a shard.
func drawEntries(t *rapid.T, s Schema, first int64) []entry {
	n := rapid.IntRange(1, 60).Draw(t, "rows")
	if rapid.IntRange(0, 9).Draw(t, "many") == 0 {
		n *= 20
	}
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	entries := sampleEntries(s, first, n)
	tried := rapid.Bool().Draw(t, "tried")
	for i := range entries {
		e := &entries[i]
		if tried {
			e.out.Tries = sampleTries(e.row.Index, 0)
		}
		if rng.IntN(60) == 0 {
			e.row.Text = strings.Repeat("long ∂ text ", rng.IntN(10_000))
		}
		if rng.IntN(60) == 0 && !s.Embedding && !e.out.Failed() {
			e.out.Text = strings.Repeat(e.out.Text, rng.IntN(10_000))
		}
	}
	return entries
}

// drawParts distributes a shard's rows over parts. Some rows are in several
// parts and are accepted in one.
func drawParts(t *rapid.T, s Schema, first int64, entries []entry) []PartSource {
	n := rapid.IntRange(1, 12).Draw(t, "parts")
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "deal"), 0))
	dealt, accept := make([][]entry, n), make([]*roaring.Bitmap, n)
	for i := range accept {
		accept[i] = roaring.New()
	}
	ranges, twice := rng.IntN(3) == 0, rng.IntN(2) == 0
	for j, e := range entries {
		owner := rng.IntN(n)
		if ranges {
			owner = j * n / len(entries)
		}
		for i := range n {
			if i == owner || twice && rng.IntN(4) == 0 {
				if i != owner { // another attempt with another answer
					e.out.Engine, e.out.Tries = "the loser", sampleTries(e.row.Index, int64(i))
				} else {
					e = entries[j]
				}
				dealt[i] = append(dealt[i], e)
			}
		}
		accept[owner].Add(uint32(e.row.Index - first))
	}
	var parts []PartSource
	for i := range n {
		if len(dealt[i]) == 0 {
			continue
		}
		p := PartSource{Source: writePartT(t, s, dealt[i]), Accept: accept[i], First: first}
		if !twice && rng.IntN(2) == 0 {
			p.Accept = nil
		}
		parts = append(parts, p)
	}
	return parts
}

func writePartT(t *rapid.T, s Schema, entries []entry) *bytes.Reader {
	var file bytes.Buffer
	w := must.Get(NewPartWriter(&file, s))(t)
	for i := range entries {
		must.Succeed(t, w.Add(&entries[i].row, &entries[i].out))
	}
	must.Succeed(t, w.Close())
	return bytes.NewReader(file.Bytes())
}

// TestModel writes parts, merges, concatenates and reads, and compares the
// result with the written rows.
func TestModel(t *testing.T) {
	t.Parallel()
	all := schemas()
	names := slices.Sorted(maps.Keys(all))
	rapid.Check(t, func(t *rapid.T) { checkModel(t, all[rapid.SampledFrom(names).Draw(t, "schema")]) })
}

func checkModel(t *rapid.T, s Schema) {
	ctx := context.Background()
	var all []entry
	var complete []Source
	for range rapid.IntRange(1, 3).Draw(t, "shards") {
		first := int64(len(all))
		entries := drawEntries(t, s, first)
		parts := drawParts(t, s, first, entries)
		all = append(all, entries...)
		var merged bytes.Buffer
		rows := must.Get(MergeParts(ctx, &merged, s, parts))(t)
		if rows != int64(len(entries)) {
			t.Fatalf("merged %d rows of %d", rows, len(entries))
		}
		complete = append(complete, bytes.NewReader(merged.Bytes()))
		got := must.Get(readEntries(s, complete[len(complete)-1]))(t)
		sameEntries(t, "merged part", got, entries)
	}

	var full, rows bytes.Buffer
	if n, err := ConcatParts(ctx, &full, s, complete, Full); err != nil || n != int64(len(all)) {
		t.Fatalf("Concat = %d, %v; want %d rows", n, err, len(all))
	}
	if n, err := ConcatRows(ctx, &rows, s, complete); err != nil || n != int64(len(all)) {
		t.Fatalf("ConcatRows = %d, %v; want %d rows", n, err, len(all))
	}
	f, r := bytes.NewReader(full.Bytes()), bytes.NewReader(rows.Bytes())
	for range 5 {
		e := all[rapid.IntRange(0, len(all)-1).Draw(t, "row")]
		view := must.Get(ReadRow(f, r, e.row.Index))(t)
		sameView(t, view, e)
	}
	got, next, err := ListFailures(ctx, r, -1, len(all)+1)
	if err != nil || next != -1 {
		t.Fatalf("Failures: next = %d, %v", next, err)
	}
	if diff := cmp.Diff(failuresOf(all), got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("failures (-want +got):\n%s", diff)
	}
	for _, v := range variants() {
		var direct, subset bytes.Buffer
		must.Get(ConcatParts(ctx, &direct, s, complete, v))(t)
		must.Succeed(t, WriteSubset(ctx, &subset, f, s, v))
		if !bytes.Equal(direct.Bytes(), subset.Bytes()) {
			t.Fatalf("%s: the subset of the full file differs from the concatenation", v.Name())
		}
		if back, err := ReadSchema(bytes.NewReader(subset.Bytes())); err != nil || !reflect.DeepEqual(back, s) {
			t.Fatalf("%s: ReadSchema = %+v, %v; want %+v", v.Name(), back, err, s)
		}
	}
}

func failuresOf(entries []entry) (all []FailedRow) {
	for _, e := range entries {
		if e.out.Failed() {
			all = append(all, FailedRow{e.row.Index, RowFailure{e.out.Err.Code, e.out.Err.Message, e.out.Err.Raw}})
		}
	}
	return all
}

func sameView(tb rapid.TB, got RowView, e entry) {
	tb.Helper()
	want := RowView{
		Row: e.row.Index, Input: e.row.Text, InputTokens: e.out.InputTokens, OutputTokens: e.out.OutputTokens,
		Engine: e.out.Engine, Seconds: e.out.Seconds, Attempts: int64(e.out.Attempts), AttemptLog: []AttemptView{},
	}
	if e.out.Err != nil {
		want.Error = &RowFailure{e.out.Err.Code, e.out.Err.Message, e.out.Err.Raw}
	}
	if e.out.Tries != nil {
		want.Omitted = e.out.Tries.Omitted
		for _, a := range e.out.Tries.Attempts {
			view := AttemptView{At: a.At, Seconds: a.Took.Seconds(), Node: a.Node, Engine: a.Engine}
			if a.Status != 0 {
				view.Status = &a.Status
			}
			if a.Code != "" {
				view.Code, view.Message = &a.Code, &a.Message
			}
			want.AttemptLog = append(want.AttemptLog, view)
		}
	}
	if e.out.Finish != "" {
		want.Finish = &e.out.Finish
	}
	switch {
	case e.out.Failed():
	case e.out.Embedding != nil:
		want.Output = e.out.Embedding
	default:
		want.Output = e.out.Text
	}
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Fatalf("row %d (-want +got):\n%s", e.row.Index, diff)
	}
}
