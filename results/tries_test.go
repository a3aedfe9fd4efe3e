package results

import (
	"bytes"
	"context"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

// Files for clients must not have the attempts: they must be the same with and
// without attempts.
func TestTriesAreNotInTheColumns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, s := range schemas() {
		with, without := triedEntries(s, 60), sampleEntries(s, 0, 60)
		a, b := writePart(t, s, with), writePart(t, s, without)
		if a.Size() <= b.Size() {
			t.Fatalf("%s: %d bytes with attempts, %d without", name, a.Size(), b.Size())
		}
		for _, v := range variants() {
			var first, second bytes.Buffer
			must.Get(ConcatParts(ctx, &first, s, []Source{a}, v))(t)
			must.Get(ConcatParts(ctx, &second, s, []Source{b}, v))(t)
			if !bytes.Equal(first.Bytes(), second.Bytes()) {
				t.Errorf("%s, %s: the file of a client has the attempts", name, v.Name())
			}
		}
	}
}

// Attempts at many rows make many attachments. They must survive a join, a
// merge row by row, a concatenation, and a read for another job.
func TestTriesOfManyRows(t *testing.T) {
	t.Parallel()
	ctx, s := context.Background(), schemas()["none/generation"]
	all := triedEntries(s, 6000)
	part := writePart(t, s, all)
	table, err := openTable(part)
	must.Succeed(t, err)
	if n := len(table.Keys(triesPrefix)); n < 3 {
		t.Fatalf("%d attachments; the test is about many", n)
	}
	if n := len(table.Keys("no such key")); n != 0 {
		t.Errorf("%d attachments of nothing", n)
	}
	var halves [2][]entry
	for i, e := range all {
		halves[i%2] = append(halves[i%2], e)
	}
	var merged, rows, again bytes.Buffer
	must.Get(MergeParts(ctx, &merged, s, []PartSource{{Source: writePart(t, s, halves[1])}, {Source: writePart(t, s, halves[0])}}))(t)
	got, err := readEntries(s, bytes.NewReader(merged.Bytes()))
	must.Succeed(t, err)
	sameEntries(t, "merged", got, all)
	must.Get(ConcatRows(ctx, &rows, s, []Source{bytes.NewReader(merged.Bytes())}))(t)
	for _, n := range []int64{0, 1, 3, 2999, 3000, 5997, 5999} {
		view := must.Get(ReadRow(bytes.NewReader(merged.Bytes()), bytes.NewReader(rows.Bytes()), n))(t)
		sameView(t, view, all[n])
	}
	result, err := OpenResult(s, bytes.NewReader(merged.Bytes()), bytes.NewReader(rows.Bytes()))
	must.Succeed(t, err)
	w, err := NewPartWriter(&again, s)
	must.Succeed(t, err)
	must.Succeed(t, result.Each(ctx, 0, int64(len(all)), w.Add))
	must.Succeed(t, w.Close())
	if got, err = readEntries(s, bytes.NewReader(again.Bytes())); err != nil {
		t.Fatal(err)
	}
	sameEntries(t, "carried", got, all)
	got = nil
	err = VisitPartRows(ctx, s, []PartSource{{Source: writePart(t, s, halves[0])}, {Source: writePart(t, s, halves[1])}}, visitInto(&got))
	must.Succeed(t, err)
	sameEntries(t, "visited", got, all)
}

func visitInto(all *[]entry) RowVisitor {
	return func(row *rowmill.Row, out *rowmill.RowOutput) error {
		*all = append(*all, entry{*row, *out})
		return nil
	}
}
