package shard_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/previous"
	"github.com/rowmill/rowmill/shard"
)

// TestShardsOfThePreviousVersion holds that shards of the version before, and
// their list, are read: whoever takes a job over goes on with them.
func TestShardsOfThePreviousVersion(t *testing.T) {
	t.Parallel()
	text := func(row int) string { return fmt.Sprintf("row %d, \"quoted\"\n漢字", row) }
	id := func(row int) rowmill.ID { return rowmill.ID{Kind: rowmill.IDInt, Int: int64(row) << 40} }
	const first, rows = 500, 300
	var file bytes.Buffer
	w := shard.NewWriter(&file, first, true)
	for row := range rows {
		if err := w.Add(text(row), id(row)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	kept := previous.File(t, "testdata/previous/shard", file.Bytes())
	s, err := shard.NewReader(bytes.NewReader(kept), int64(len(kept)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Rows() != rows || s.First() != first {
		t.Fatalf("it has %d rows from %d on, want %d from %d on", s.Rows(), s.First(), rows, first)
	}
	for row := range rows {
		block, err := s.ReadBlock(s.BlockOf(row))
		if err != nil {
			t.Fatal(err)
		}
		if got := block.Text(row); got != text(row) || block.ID(row) != id(row) {
			t.Fatalf("row %d is %q, %+v", row, got, block.ID(row))
		}
	}
	previous.Document(t, "testdata/previous/manifest.json", shard.Manifest{
		IDType: rowmill.IDType{IDKind: rowmill.IDInt}, Rows: 300, Shards: []shard.Info{{First: 1, Rows: 2, Bytes: 3}}, Size: shard.Size{Tokens: 4, SampleRows: 5, SampleTokens: 6},
	})
}
