package results

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

// The pages together must have all failures, for any page size.
func TestFailuresByPages(t *testing.T) {
	t.Parallel()
	s := schemas()["string/generation"]
	all := sampleEntries(s, 0, 3000)
	part := writePart(t, s, all)
	want := failuresOf(all)
	for _, limit := range []int{1, 2, 7, 100, len(want), len(want) + 1} {
		var got []FailedRow
		for after, pages := int64(-1), 0; ; pages++ {
			page, next, err := ListFailures(context.Background(), part, after, limit)
			must.Succeed(t, err)
			if len(page) > limit || pages > len(want) {
				t.Fatalf("limit %d: page %d has %d failures", limit, pages, len(page))
			}
			got = append(got, page...)
			if next < 0 {
				break
			}
			after = next
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("limit %d (-want +got):\n%s", limit, diff)
		}
	}
	if got, _, err := ListFailures(context.Background(), part, -1, 1000); err != nil || !cmp.Equal(got, want) {
		t.Fatalf("part: %v", err)
	}
	if _, _, err := ListFailures(context.Background(), part, -1, 0); err == nil {
		t.Error("a limit of 0: no error")
	}
	none := writePart(t, s, sampleEntries(s, 0, 3))
	if got, next, err := ListFailures(context.Background(), none, -1, 10); err != nil || next != -1 || len(got) != 0 {
		t.Errorf("no failures: %v, %d, %v", got, next, err)
	}
}

// A part has only some of a shard's rows.
func TestFindRow(t *testing.T) {
	t.Parallel()
	for name, s := range schemas() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var some []entry
			for _, e := range sampleEntries(s, 1000, 4000) {
				if e.row.Index%3 == 1 {
					some = append(some, e)
				}
			}
			part := writePart(t, s, some)
			for _, i := range []int{0, 1, 131, 777, len(some) / 2, len(some) - 2, len(some) - 1} {
				view := must.Get(FindRow(part, some[i].row.Index))(t)
				sameView(t, view, some[i])
			}
			for _, n := range []int64{-1, 0, 999, 1001, 2000, 5000, 1 << 40} {
				if n%3 == 1 && n >= 1000 && n < 5000 {
					continue
				}
				if _, err := FindRow(part, n); !errors.Is(err, rowmill.ErrNotFound) {
					t.Errorf("row %d: error %v, want ErrNotFound", n, err)
				}
			}
		})
	}
}

func TestReadRowBeyondTheEnd(t *testing.T) {
	t.Parallel()
	s := schemas()["none/generation"]
	part := writePart(t, s, sampleEntries(s, 0, 10))
	for _, n := range []int64{-1, 10, 1 << 40} {
		if _, err := ReadRow(part, part, n); !errors.Is(err, rowmill.ErrNotFound) {
			t.Errorf("row %d: error %v, want ErrNotFound", n, err)
		}
	}
	short := writePart(t, s, sampleEntries(s, 0, 9))
	if _, err := ReadRow(part, short, 3); err == nil {
		t.Error("files of different length: no error")
	}
}

// Reading a file that was cut or changed must return an error or the correct
// rows. It must never panic.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"string/generation", "bool/embedding"} {
		s := schemas()[name]
		all := triedEntries(s, 60)
		good := contents(t, writePart(t, s, all))
		for cut := 0; cut < len(good); cut += 5 {
			if _, err := readEntries(s, bytes.NewReader(good[:cut])); err == nil {
				t.Fatalf("%s: cut after %d of %d bytes: no error", name, cut, len(good))
			}
		}
		for at := 0; at < len(good); at += 17 { // FuzzDamaged changes every byte
			bad := bytes.Clone(good)
			bad[at] ^= 1 << (at % 8)
			checkDamaged(t, s, all, bad)
		}
	}
}

// checkDamaged reads a damaged part in every way.
func checkDamaged(t *testing.T, s Schema, all []entry, bad []byte) {
	t.Helper()
	ctx, src := context.Background(), bytes.NewReader(bad)
	if got, err := readEntries(s, src); err == nil {
		sameEntries(t, "damaged part", got, all)
	}
	var out bytes.Buffer
	if _, err := MergeParts(ctx, &out, s, []PartSource{{Source: src}, {Source: writePart(t, s, sampleEntries(s, 60, 1))}}); err == nil {
		got := must.Get(readEntries(s, bytes.NewReader(out.Bytes())))(t)
		sameEntries(t, "merge of a damaged part", got[:60], all)
	}
	if got, _, err := ListFailures(ctx, src, -1, 1000); err == nil && !cmp.Equal(got, failuresOf(all), cmpopts.EquateEmpty()) {
		t.Fatal("failures of a damaged part are wrong")
	}
	if view, err := FindRow(src, 59); err == nil {
		sameView(t, view, all[59])
	}
	// These copy bytes or read them as above. They must not panic.
	_, _ = ConcatParts(ctx, &out, s, []Source{src}, Full)
	_ = WriteSubset(ctx, &out, src, s, FileVariant{})
	_ = WriteJSON(ctx, &out, src, s, Full)
	_ = WriteCSVZip(ctx, &out, src, s, Full)
	_, _ = ReadSchema(src)
}

// triedEntries returns sampleEntries with attempts.
func triedEntries(s Schema, n int) []entry {
	all := sampleEntries(s, 0, n)
	for i := range all {
		all[i].out.Tries = sampleTries(int64(i), 0)
	}
	return all
}

func FuzzDamaged(f *testing.F) {
	s := schemas()["int/embedding"]
	all := triedEntries(s, 60)
	good := contents(f, writePart(f, s, all))
	f.Add(0, byte(0), len(good))
	f.Add(len(good)-9, byte(0xFF), len(good))
	f.Add(len(good)/2, byte(0x80), len(good))
	f.Fuzz(func(t *testing.T, at int, flip byte, length int) {
		bad := bytes.Clone(good[:max(0, min(length, len(good)))])
		if at >= 0 && at < len(bad) {
			bad[at] ^= flip
		}
		checkDamaged(t, s, all, bad)
	})
}

// A preview must have the wanted rows of a part, and the same rows of a result.
func TestPreviews(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, s := range schemas() {
		all := sampleEntries(s, 0, 3000)
		part := writePart(t, s, all)
		wanted := []int64{0, 3, 4, 1500, 2998, 2999}
		some := must.Get(PreviewPart(ctx, part, wanted))(t)
		every := must.Get(PreviewResults(ctx, part, part, 0, 5000))(t)
		if len(some) != len(wanted) || len(every) != len(all) {
			t.Fatalf("%s: %d and %d rows", name, len(some), len(every))
		}
		for i, n := range wanted {
			out := all[n].out
			want := PreviewRow{
				Row: n, ID: s.IDText(all[n].row.ID), Input: all[n].row.Text,
				Finish: out.Finish, InputTokens: out.InputTokens, OutputTokens: out.OutputTokens, Seconds: out.Seconds,
			}
			switch e := all[n].out; {
			case e.Failed():
				want.Code = e.Err.Code
			case s.Embedding:
				want.Output = e.Embedding
			default:
				want.Output = e.Text
			}
			for _, got := range []PreviewRow{some[i], every[n]} {
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: row %d (-want +got):\n%s", name, n, diff)
				}
			}
		}
	}
}
