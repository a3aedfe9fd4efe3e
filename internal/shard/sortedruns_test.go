package shard

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// MergeRuns returns the same items as a sort of all items in memory.
func TestMergeRuns(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const full = 4
		key := rapid.IntRange(1, 16).Draw(t, "key")
		var want []SourcedItem
		sources := make([]Runs, rapid.IntRange(0, 4).Draw(t, "sources"))
		for i := range sources {
			var file bytes.Buffer
			w := NewRunsWriter(&file)
			w.full = full
			for range rapid.IntRange(0, 11).Draw(t, "items") {
				var item RunItem
				item[0], item[key-1], item[15] = rapid.Byte().Draw(t, "first")%3, rapid.Byte().Draw(t, "last of the key")%3, rapid.Byte().Draw(t, "last")%3
				want = append(want, SourcedItem{item, i})
				if err := w.Add(item); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			sources[i] = Runs{bytes.NewReader(file.Bytes()), int64(file.Len())}
		}
		slices.SortFunc(want, func(a, b SourcedItem) int {
			return cmp.Or(bytes.Compare(a.RunItem[:key], b.RunItem[:key]), cmp.Compare(a.Source, b.Source), bytes.Compare(a.RunItem[:], b.RunItem[:]))
		})
		var got []SourcedItem
		if err := mergeRuns(1, key, full, sources, func(item SourcedItem) bool {
			got = append(got, item)
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

func TestRunsThatAreNone(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"empty": "", "other magic": "rowmill runs 2\n\x00", "half an item": runsMagic + "12345678"} {
		for _, err := range MergeRuns(1<<20, 16, Runs{bytes.NewReader([]byte(text)), int64(len(text))}) {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: got %v, want ErrCorrupt", name, err)
			}
		}
	}
}
