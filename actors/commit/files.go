package commit

import (
	"context"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// maxOpen is the maximum number of parts that are open at a time while one object is
// made. Opening a part again costs a request to the bucket.
const maxOpen = 1024

// A RetryFunc calls do, and calls it again after each temporary error.
type RetryFunc func(ctx context.Context, do func() error) error

// CompactionPlanner has the data for the objects of a job, and returns the compactions that make
// these objects. The key of each object contains the owner's epoch and a random string.
// So making an object twice is harmless.
type CompactionPlanner struct {
	Bucket blob.Bucket
	Schema results.Schema
	Epoch  int64
	Shards []shard.ManifestEntry
}

// PlanMerge returns the compaction that merges the parts of shard n into its complete part.
func (f *CompactionPlanner) PlanMerge(n int, parts []store.Part) *Compaction {
	return &Compaction{
		Make: MakeMerge, Key: layout.NewPartKey(f.Schema.JobID, n, f.Epoch), Schema: f.Schema,
		First: f.Shards[n].First, Rows: int64(f.Shards[n].Rows), Parts: parts,
	}
}

// PlanJoin returns the compaction that joins the complete parts of consecutive shards.
func (f *CompactionPlanner) PlanJoin(p ShardRange, parts []store.Part) *Compaction {
	return &Compaction{
		Make: MakeJoin, Key: layout.NewPartKey(f.Schema.JobID, p.From, f.Epoch), Schema: f.Schema,
		First: f.Shards[p.From].First, Rows: f.rows(p), Parts: parts,
	}
}

// PlanArtifact returns the compaction that makes an artifact. name is MakeFull or MakeRows,
// and parts has all rows of the job in order.
func (f *CompactionPlanner) PlanArtifact(name string, parts []store.Part) *Compaction {
	return &Compaction{Make: name, Key: layout.NewArtifactKey(f.Schema.JobID, name, f.Epoch), Schema: f.Schema, Rows: f.rows(ShardRange{0, len(f.Shards)}), Parts: parts}
}

// rows returns the number of rows of a piece.
func (f *CompactionPlanner) rows(p ShardRange) (rows int64) {
	for _, s := range f.Shards[p.From:p.To] {
		rows += int64(s.Rows)
	}
	return rows
}
