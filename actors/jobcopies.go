package actors

import (
	"context"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/actors/ingest"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results/archive"
)

// This is how rows that are equal to earlier ones get their answers: no worker has
// them, the owner has them written as parts of its own.

// takeCopies takes in which rows are copies, nil for none.
func (j *job) takeCopies(copies *ingest.Copies) {
	if j.copies = copies; copies != nil {
		j.owner.Copies(copies.Copies)
	}
}

// copiesFor is what writes them; nil where there are none.
func (j *job) copiesFor(files *commit.Files) *commit.Copies {
	if j.copies == nil {
		return nil
	}
	copies, cfg, id, spec, shards := j.copies, j.cfg, j.rec.Job.ID, j.job.spec, files.Shards
	return &commit.Copies{
		Files: files, Of: copies.Copies,
		List: func(ctx context.Context) (blob.Object, error) { return copies.Open(ctx, cfg.Blob, id) },
		Input: func(ctx context.Context, n int) (*shard.Reader, error) {
			return archive.OpenShard(ctx, cfg.Blob, id, spec, n, shards[n])
		},
	}
}

// copyRows has the copies of a shard written whose originals are all done, those of
// one shard at a time.
func (j *job) copyRows(c actor.Context) {
	if j.copies == nil || j.results == nil || j.copying || j.draining || j.phase != jobRuns {
		return
	}
	if n, rows, ok := j.owner.Copyable(); ok {
		j.copying = true
		c.Send(j.results, copyRows{n, rows})
	}
}

// onRowsCopied has the part recorded as one of a worker is.
func (j *job) onRowsCopied(c actor.Context, m rowsCopied) {
	j.copying = false
	if j.phase != jobRuns { // the next owner writes them
		return
	}
	c.Send(j.results, partWritten{Proposal: j.owner.Copied(m.part), workers: j.owner.Working()})
	j.copyRows(c)
}
