package results

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/internal/must"
)

func TestMergeRefuses(t *testing.T) {
	t.Parallel()
	s := schemas()["int/generation"]
	other := schemas()["string/generation"]
	all := sampleEntries(s, 100, 40)
	part := func(entries ...entry) Source { return writePart(t, s, entries) }
	evenly := func(odd int) (chosen []entry) {
		for i := odd; i < len(all); i += 2 {
			chosen = append(chosen, all[i])
		}
		return chosen
	}
	tests := map[string]struct {
		parts []PartSource
		want  string
	}{
		"nothing":          {nil, "nothing to merge"},
		"missing":          {[]PartSource{{Source: part(evenly(0)...), First: 100}}, "row 101 is missing"},
		"missing first":    {[]PartSource{{Source: part(all[1:]...), First: 100}}, "row 100 is missing"},
		"twice":            {[]PartSource{{Source: part(all...), First: 100}, {Source: part(evenly(0)...), First: 100}}, "row 100 appears twice"},
		"same part":        {[]PartSource{{Source: part(all...), First: 100}, {Source: part(all...), First: 100}}, "row 100 appears twice"},
		"before shard":     {[]PartSource{{Source: part(all...), First: 101}}, "outside the shard that starts at row 101"},
		"two shards":       {[]PartSource{{Source: part(all...), First: 100}, {Source: part(all...), First: 99}}, "part 1 is of the shard"},
		"accepted missing": {[]PartSource{{Source: part(all...), First: 100, Accept: roaring.BitmapOf(0, 1, 40)}}, "only 2 of its 3 accepted rows"},
		"other columns":    {[]PartSource{{Source: writePart(t, other, sampleEntries(other, 100, 3)), First: 100}}, "columns differ"},
		"empty accepted":   {[]PartSource{{Source: part(), First: 100, Accept: roaring.BitmapOf(3)}}, "only 0 of its 1 accepted rows"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if _, err := MergeParts(context.Background(), &out, s, test.parts); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestMergeOfOnePartIsVerbatim(t *testing.T) {
	t.Parallel()
	s := schemas()["uint/embedding"]
	part := writePart(t, s, sampleEntries(s, 7, 500))
	whole := roaring.New()
	whole.AddRange(0, 500)
	for name, accept := range map[string]*roaring.Bitmap{"all": nil, "listed": whole} {
		var out bytes.Buffer
		rows, err := MergeParts(context.Background(), &out, s, []PartSource{
			{Source: part, Accept: accept, First: 7},
			{Source: part, Accept: roaring.New(), First: 7}, // a part without an accepted row
		})
		if err != nil || rows != 500 {
			t.Fatalf("%s: %d rows, %v", name, rows, err)
		}
		if !bytes.Equal(out.Bytes(), contents(t, part)) {
			t.Errorf("%s: the merge is not a copy of the part", name)
		}
	}
}

func contents(tb testing.TB, src Source) []byte {
	tb.Helper()
	b := make([]byte, src.Size())
	must.Get(src.ReadAt(b, 0))(tb)
	return b
}

// Large parts with consecutive rows must be joined by copying, in the order of
// their rows. Small parts must be written again as one row group.
func TestMergeOfRanges(t *testing.T) {
	t.Parallel()
	s := schemas()["none/generation"]
	for name, size := range map[string]int{"joined": 1 << 20, "rewritten": 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := triedEntries(s, 24)
			for i := range all {
				all[i].row.Text = strings.Repeat("x", size)
			}
			a, b, c := writePart(t, s, all[:8]), writePart(t, s, all[8:16]), writePart(t, s, all[16:])
			var out bytes.Buffer
			must.Get(MergeParts(context.Background(), &out, s, []PartSource{{Source: c}, {Source: a}, {Source: b}}))(t)
			merged := bytes.NewReader(out.Bytes())
			table := must.Get(openTable(merged))(t)
			if want := map[string]int{"joined": 3, "rewritten": 1}[name]; table.Groups() != want {
				t.Errorf("%d row groups, want %d", table.Groups(), want)
			}
			got := must.Get(readEntries(s, merged))(t)
			sameEntries(t, "merged", got, all)
		})
	}
}

// More parts than fit the memory limit must go through temporary files.
func TestMergeThroughTemporaryFiles(t *testing.T) {
	t.Parallel()
	s := schemas()["string/generation"]
	const parts = 150
	all := sampleEntries(s, 0, 3*parts)
	for i := range all {
		all[i].row.Text = strings.Repeat("some words and more ", 4500) // 90 kB
	}
	dealt := make([][]entry, parts)
	for i, e := range all {
		dealt[i%parts] = append(dealt[i%parts], e)
	}
	var sources []PartSource
	var waiting []*mergePart
	for i, entries := range dealt {
		p := PartSource{Source: writePart(t, s, entries)}
		sources = append(sources, p)
		waiting = append(waiting, newPart(i, p))
	}
	reduced, err := openOrMergeParts(context.Background(), s, waiting)
	defer closeParts(reduced)
	if err != nil || len(reduced) >= parts || reduced[0].temporary == nil {
		t.Fatalf("%d parts were reduced to %d (%v); the test is about temporary files", parts, len(reduced), err)
	}
	var out bytes.Buffer
	if rows, err := MergeParts(context.Background(), &out, s, sources); err != nil || rows != int64(len(all)) {
		t.Fatalf("%d rows, %v", rows, err)
	}
	got, err := readEntries(s, bytes.NewReader(out.Bytes()))
	must.Succeed(t, err)
	if !slices.EqualFunc(got, all, func(a, b entry) bool { return a.row == b.row && a.out.Text == b.out.Text }) {
		t.Fatal("the merge differs from what was written")
	}
}

func TestMergeStopsWithContext(t *testing.T) {
	t.Parallel()
	s := schemas()["none/generation"]
	all := sampleEntries(s, 0, 20)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, parts := range map[string][]PartSource{
		"verbatim":    {{Source: writePart(t, s, all)}},
		"interleaved": {{Source: writePart(t, s, all), Accept: roaring.BitmapOf(0, 2)}, {Source: writePart(t, s, all), Accept: roaring.BitmapOf(1)}},
	} {
		if _, err := MergeParts(ctx, &bytes.Buffer{}, s, parts); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v, want that of the context", name, err)
		}
	}
}

func TestConcatRefusesGaps(t *testing.T) {
	t.Parallel()
	s := schemas()["none/generation"]
	at := func(first int64, n int) Source { return writePart(t, s, sampleEntries(s, first, n)) }
	gap := sampleEntries(s, 0, 10)
	gap = append(gap[:4], gap[5:]...)
	for name, parts := range map[string][]Source{
		"gap between":  {at(0, 10), at(11, 10)},
		"wrong order":  {at(10, 10), at(0, 10)},
		"twice":        {at(0, 10), at(0, 10)},
		"gap within":   {writePart(t, s, gap)},
		"not from 0":   {at(1, 10)},
		"other schema": {writePart(t, schemas()["int/generation"], sampleEntries(s, 0, 3)), at(0, 2)},
	} {
		if _, err := ConcatParts(context.Background(), &bytes.Buffer{}, s, parts, Full); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if rows, err := ConcatParts(context.Background(), &bytes.Buffer{}, s, nil, Full); err != nil || rows != 0 {
		t.Errorf("no parts: %d rows, %v", rows, err)
	}
}
