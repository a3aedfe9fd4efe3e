package results

import (
	"bytes"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill/internal/must"
)

// TestJoin concatenates joined parts. The file must be the same as from the
// parts themselves, with the attempts at rows.
func TestJoin(t *testing.T) {
	t.Parallel()
	for name, s := range schemas() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var parts, joined []Source
			var rows int64
			seams := map[int64]bool{}
			for _, shards := range [][]int{{40, 1, 300}, {7}, {90, 90}} {
				first, own, all := rows, []Source(nil), []entry(nil)
				for _, n := range shards {
					entries := sampleEntries(s, rows, n)
					for i := range entries {
						entries[i].out.Tries = sampleTries(entries[i].row.Index, 0)
					}
					own, all = append(own, writePart(t, s, entries)), append(all, entries...)
					seams[rows] = true
					rows += int64(n)
					seams[rows-1] = true
				}
				var file bytes.Buffer
				n, err := JoinParts(t.Context(), &file, s, first, own)
				if err != nil || n != rows-first {
					t.Fatalf("%d rows, %v; want %d", n, err, rows-first)
				}
				got, err := readEntries(s, bytes.NewReader(file.Bytes()))
				must.Succeed(t, err)
				sameEntries(t, "joined", got, all)
				parts, joined = append(parts, own...), append(joined, bytes.NewReader(file.Bytes()))
			}
			made := func(from []Source) (full, reserved *bytes.Reader) {
				var a, b bytes.Buffer
				n, err := ConcatParts(t.Context(), &a, s, from, Full)
				m, rowsErr := ConcatRows(t.Context(), &b, s, from)
				if err != nil || rowsErr != nil || n != rows || m != rows {
					t.Fatalf("%d and %d rows of %d: %v, %v", n, m, rows, err, rowsErr)
				}
				return bytes.NewReader(a.Bytes()), bytes.NewReader(b.Bytes())
			}
			full, reserved := made(parts)
			again, reservedAgain := made(joined)
			want := make([]byte, full.Size())
			must.Get(full.ReadAt(want, 0))(t)
			if err := iotest.TestReader(again, want); err != nil {
				t.Errorf("the client's file is another: %v", err)
			}
			// Reading a single row reads the block that holds it.
			for n := range rows {
				if !seams[n] && n%16 != 0 {
					continue
				}
				want, err := ReadRow(full, reserved, n)
				must.Succeed(t, err)
				got, err := ReadRow(again, reservedAgain, n)
				if diff := cmp.Diff(want, got); err != nil || diff != "" {
					t.Fatalf("row %d: %v (-want +got):\n%s", n, err, diff)
				}
			}
		})
	}
}

func TestJoinRefusesGaps(t *testing.T) {
	t.Parallel()
	s := schemas()["int/generation"]
	a, b, c := writePart(t, s, sampleEntries(s, 5, 5)), writePart(t, s, sampleEntries(s, 10, 5)), writePart(t, s, sampleEntries(s, 15, 5))
	for name, parts := range map[string][]Source{"begins elsewhere": {b, c}, "gap": {a, c}, "twice": {a, a}, "order": {a, c, b}} {
		if n, err := JoinParts(t.Context(), &bytes.Buffer{}, s, 5, parts); err == nil {
			t.Errorf("%s: %d rows", name, n)
		}
	}
}
