package shard_test

import (
	"testing"

	"github.com/rowmill/rowmill/internal/shard"
)

func TestASampleIsTheFirstRows(t *testing.T) {
	t.Parallel()
	m := shard.Manifest{Rows: 250, Shards: []shard.ManifestEntry{{First: 0, Rows: 100, Bytes: 1000}, {First: 100, Rows: 100, Bytes: 1000}, {First: 200, Rows: 50, Bytes: 500}}}
	got := m.FirstRows(120)
	if got.Rows != 120 || len(got.Shards) != 2 || got.Shards[1] != (shard.ManifestEntry{First: 100, Rows: 20, Bytes: 200}) {
		t.Errorf("first 120 rows = %+v", got)
	}
	if whole := m.FirstRows(250); whole.Rows != 250 || len(whole.Shards) != 3 {
		t.Errorf("all rows = %+v", whole)
	}
}
