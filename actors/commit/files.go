package commit

import (
	"context"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// maxOpen bounds the parts that are open for one file that is made of them. One
// that was let go of costs a request to be opened again.
const maxOpen = 1024

// A Wait repeats what may fail for a while.
type Wait func(ctx context.Context, do func() error) error

// Files say how the objects of a job are made. What is written is for the owner of
// one epoch, and writing it again is harmless.
type Files struct {
	Bucket blob.Bucket
	Schema results.Schema
	Epoch  int64
	Shards []shard.Info
}

// Merge is the errand that makes the complete part of a shard.
func (f *Files) Merge(n int, parts []store.Part) *Errand {
	return &Errand{
		Make: MakeMerge, Key: layout.Part(f.Schema.JobID, n, f.Epoch), Schema: f.Schema,
		First: f.Shards[n].First, Rows: int64(f.Shards[n].Rows), Parts: parts,
	}
}

// Join is the errand that puts the complete parts of consecutive shards together.
func (f *Files) Join(p Piece, parts []store.Part) *Errand {
	e := &Errand{
		Make: MakeJoin, Key: layout.Part(f.Schema.JobID, p.From, f.Epoch), Schema: f.Schema,
		First: f.Shards[p.From].First, Parts: parts,
	}
	for _, s := range f.Shards[p.From:p.To] {
		e.Rows += int64(s.Rows)
	}
	return e
}

// Artifact is the errand that makes an artifact, MakeFull or MakeRows, of parts that
// have all rows in order.
func (f *Files) Artifact(name string, parts []store.Part) *Errand {
	e := &Errand{Make: name, Key: layout.Artifact(f.Schema.JobID, name, f.Epoch), Schema: f.Schema, Parts: parts}
	for _, s := range f.Shards {
		e.Rows += int64(s.Rows)
	}
	return e
}
