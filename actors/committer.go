package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/actors/ingest"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/tracing"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// Messages a committer receives, beside steps.
type (
	partWritten struct { // job: a part object is durable
		assign.Proposal
		workers int    // number of the job's workers
		node    string // the address of the node that wrote the part, "" for this one
	}
	copyRows struct { // job: write the answers of these rows, which are copies of earlier rows
		shard int
		rows  *roaring.Bitmap
	}
	drainResults struct{} // job: no more parts will come; commit the present ones
)

// Messages a committer sends to its job.
type (
	partsCommitted struct{ parts []assign.Proposal } // the store has recorded them
	jobBroke       struct{ err error }               // the job cannot continue, or not on this node
	jobSucceeded   struct{ rec store.Record }
	rowsCopied     struct{ part assign.Part } // the part with the copies of a shard is durable
	resultsDrained struct{}                   // all parts that arrived are recorded
)

// A committer records the parts of a job: only then is a row done. It merges the
// parts of a shard while other shards still run, and makes the result when every
// shard is complete.
type committer struct {
	*deps
	job         *jobContext
	owner       *actor.PID // the job
	rows        int64      // number of rows of the whole input
	copied      int64      // number of these rows that are copies of others, which do not run
	progress    *commit.Progress
	files       *commit.Files
	copies      *commit.Copies // nil where no row is a copy
	merging     *gateWaits     // merges of the job that wait for their turn
	helpers     commit.Compactors
	compactions []compaction      // compactions that no node has started
	sizes       commit.PieceSizes // sizes of joined parts
	tasks       taskGroup
	log         *slog.Logger // has the job's ID
	timers      timers
	workers     int          // number of the job's workers
	dropping    []store.Part // replaced parts, to be deleted by onDropDue
	lastRow     time.Time    // when the last part was recorded
}

func (r *committer) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		r.lastRow = time.Now()
		r.goOn(c)
	case step:
		m(c)
	case partWritten:
		r.onPartWritten(c, m)
	case copyRows:
		r.copyRows(c, m)
	case drainResults:
		r.progress.Drain()
		r.goOn(c)
	case *actor.Stopping:
		r.timers.stop()
		r.tasks.cancel()
		if r.copies != nil {
			r.copies.Close()
		}
	default:
		unhandled(c, r.log)
	}
}

// goOn does the work that is due now.
func (r *committer) goOn(c actor.Context) {
	next := r.progress.Next()
	if next.Failed > 0 {
		c.Send(r.owner, jobBroke{rowmill.Failf(rowmill.CodeTooManyFailedRows,
			"%d of %d rows failed, more than the job may lose. GET /v1/jobs/%s/errors?not_run=false lists them.", next.Failed, r.job.manifest.Rows, r.job.id)})
	}
	if next.Record != nil {
		r.record(c, next.Record)
	}
	for _, n := range next.Merge {
		r.merge(c, n)
	}
	for _, p := range next.Join {
		r.join(c, p)
	}
	if next.Final {
		r.finalise(c)
	}
	if next.Drained {
		c.Send(r.owner, resultsDrained{})
	}
}

func (r *committer) onPartWritten(c actor.Context, m partWritten) {
	if m.Repeat {
		r.log.Debug("the part repeats rows that are done; it is dropped", "part", m.Key)
		r.drop(c, store.Part{Key: m.Key})
		return
	}
	r.workers = m.workers
	if m.Worker != "" {
		r.helpers.Wrote(m.node)
		if r.helpers.Others() {
			r.progress.Helped()
		}
	}
	r.progress.Propose(m.Proposal)
	r.goOn(c)
}

func (r *committer) record(c actor.Context, batch *commit.Batch) {
	parts := batch.Parts()
	r.tasks.run(c, "commit parts", func(ctx context.Context) step {
		span := r.job.trace.Begin("commit parts", slog.Int("rowmill.parts", len(parts)))
		err := r.storage.WaitHere(ctx, func() error { return r.cfg.Store.CommitParts(ctx, r.job.fence, parts) })
		span.End(err)
		return func(c actor.Context) {
			if err != nil {
				c.Send(r.owner, jobBroke{fmt.Errorf("commit parts: %w", err)})
				return
			}
			r.lastRow = time.Now()
			r.progress.Recorded(batch)
			for _, p := range batch.Proposals {
				r.updateMetrics(p.Record)
			}
			c.Send(r.owner, partsCommitted{batch.Proposals})
			if pause := time.Duration(r.workers) * commitPause; pause >= leastPause {
				r.progress.Rest()
				r.timers.after(c, pause, "rest", r.onRested)
			}
			r.goOn(c)
		}
	})
}

// After a commit, the committer gathers parts for commitPause times the number of the
// job's workers. Each worker writes more than one part in a second. With a thousand
// workers, a commit for each part would be most of the load of the store. The pause is
// then a fifth of a second, and a crash costs that much more work. A pause shorter than
// leastPause is left out: few workers write too few parts to gather.
const (
	commitPause = 200 * time.Microsecond
	leastPause  = 5 * time.Millisecond
)

func (r *committer) onRested(c actor.Context) {
	r.progress.Rested()
	r.goOn(c)
}

// updateMetrics counts a recorded part and its rows in the metrics.
func (r *committer) updateMetrics(p store.Part) {
	model := r.job.spec.Model.ID
	r.metrics.parts.Inc()
	r.metrics.rows.WithLabelValues(model, "done").Add(float64(p.Totals.Rows - p.Totals.Failed))
	r.metrics.rows.WithLabelValues(model, "failed").Add(float64(p.Totals.Failed))
	r.metrics.tokens.WithLabelValues(model, "input").Add(float64(p.Totals.InputTokens))
	r.metrics.tokens.WithLabelValues(model, "output").Add(float64(p.Totals.OutputTokens))
}

// merge adds a compaction that merges the parts of a shard into one part.
func (r *committer) merge(c actor.Context, n int) {
	parts := r.progress.Shard(n)
	complete := func(m *commit.Compaction, size int64) store.Part { return assign.Merged(m.Key, size, parts) }
	r.addCompaction(c, compaction{
		what:  fmt.Sprintf("merge shard %d", n),
		begin: func() *commit.Compaction { return r.files.Merge(n, parts) },
		record: func(ctx context.Context, m *commit.Compaction, size int64) error {
			return r.storage.WaitHere(ctx, func() error { return r.cfg.Store.ReplaceParts(ctx, r.job.fence, complete(m, size)) })
		},
		made: func(c actor.Context, m *commit.Compaction, size int64) {
			r.drop(c, r.progress.Merged(complete(m, size))...)
			r.goOn(c)
		},
	})
}

// join adds a compaction that joins the complete parts of consecutive shards. The store
// has no record of joined parts, so the next owner joins the parts again.
func (r *committer) join(c actor.Context, p commit.Piece) {
	var parts []store.Part
	for n := p.From; n < p.To; n++ {
		parts = append(parts, r.progress.Shard(n)...)
	}
	r.addCompaction(c, compaction{
		what:  fmt.Sprintf("join shards %d to %d", p.From, p.To-1),
		begin: func() *commit.Compaction { return r.files.Join(p, parts) },
		made: func(c actor.Context, m *commit.Compaction, size int64) {
			r.progress.Joined(p, store.Part{Key: m.Key, Shard: p.From, Rows: m.Rows, Size: size})
			r.goOn(c)
		},
	})
}

// copyRows writes the copies of a shard as a part: rows that get the answer of an
// equal row. The job then proposes the part.
func (r *committer) copyRows(c actor.Context, m copyRows) {
	parts := make(map[int][]store.Part)
	for _, n := range r.copies.Needs(m.shard) {
		parts[n] = r.progress.Shard(n)
	}
	r.tasks.run(c, "write copies of rows", func(ctx context.Context) step {
		if !r.merging.enter(ctx, r.slots.merge, r.job.spec) {
			return nil
		}
		defer r.slots.merge.Leave(r.job.spec.Account)
		var part assign.Part
		moved := false // a part is missing: perhaps a merge has replaced it
		span := r.job.trace.Begin("write copies of rows", slog.Int("rowmill.shard", m.shard))
		err := r.storage.WaitHere(ctx, func() (err error) {
			part, err = r.copies.Write(ctx, m.shard, m.rows, parts)
			moved = errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, blob.ErrLost)
			if moved {
				return nil
			}
			return archive.Explain(ctx, r.cfg.Blob, allParts(parts), err)
		})
		span.End(err)
		return func(c actor.Context) {
			switch {
			case err != nil:
				r.sendError(c, fmt.Errorf("copy rows of shard %d: %w", m.shard, err))
			case moved && !r.partsChanged(parts):
				r.checkParts(c, m, parts)
			case moved:
				r.copyRows(c, m)
			default:
				c.Send(r.owner, rowsCopied{part})
			}
		}
	})
}

// checkParts waits until the committer can read the parts that hold the answers of the
// originals, and then writes the copies. If the parts are lost, it sends the error to
// the job.
func (r *committer) checkParts(c actor.Context, m copyRows, parts map[int][]store.Part) {
	r.tasks.run(c, "check parts", func(ctx context.Context) step {
		err := r.storage.WaitHere(ctx, func() error { return archive.CheckParts(ctx, r.cfg.Blob, allParts(parts)) })
		return func(c actor.Context) {
			if err != nil && !r.partsChanged(parts) {
				r.sendError(c, fmt.Errorf("copy rows of shard %d: %w", m.shard, err))
				return
			}
			r.copyRows(c, m)
		}
	})
}

// allParts returns the parts of all shards, in the order of the shards.
func allParts(shards map[int][]store.Part) (parts []store.Part) {
	for _, n := range slices.Sorted(maps.Keys(shards)) {
		parts = append(parts, shards[n]...)
	}
	return parts
}

// partsChanged reports whether a merge has replaced any of these parts. parts has the
// parts of each shard as they were.
func (r *committer) partsChanged(parts map[int][]store.Part) bool {
	for n, had := range parts {
		if have := r.progress.Shard(n); len(have) != len(had) || have[0].Key != had[0].Key {
			return true
		}
	}
	return false
}

// dropInterval is how long the committer gathers part objects that no record names
// any more, before it deletes them. Each deletion first lists all recorded parts of the
// job: sixty thousand in a job of a thousand million rows.
const dropInterval = 10 * time.Second

// drop deletes part objects that no record names any more, after dropInterval and
// Config.Ownership.Settle. Until then, a store that loses its last writes in a crash may
// name these parts again, and so may the other side of a split store. The end of the job
// removes the rest.
func (r *committer) drop(c actor.Context, parts ...store.Part) {
	if len(r.dropping) == 0 {
		r.timers.after(c, dropInterval, "drop", r.onDropDue)
	}
	r.dropping = append(r.dropping, parts...)
}

func (r *committer) onDropDue(c actor.Context) {
	parts := r.dropping
	r.dropping = nil
	r.tasks.run(c, "drop parts later", func(ctx context.Context) step {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(r.cfg.Ownership.Settle):
		}
		named, err := r.recordedKeys(ctx)
		for _, p := range parts {
			if err == nil && !named[p.Key] {
				err = r.cfg.Blob.Delete(ctx, p.Key)
			}
		}
		if err != nil && ctx.Err() == nil {
			r.log.Warn("deleting parts failed; the end of the job deletes them", "parts", len(parts), "err", err)
		}
		return nil
	})
}

// recordedKeys returns the keys of all recorded parts, from the store that all nodes
// write to.
func (r *committer) recordedKeys(ctx context.Context) (map[string]bool, error) {
	if err := r.cfg.Store.Confirm(ctx); err != nil {
		return nil, err
	}
	named := make(map[string]bool)
	err := r.storage.Wait(ctx, func() error {
		recorded, err := r.cfg.Store.ListParts(ctx, r.job.id)
		for _, p := range recorded {
			named[p.Key] = true
		}
		return err
	})
	return named, err
}

// finalise adds the compactions that make the results. When both results are made, the
// committer records the success of the job.
func (r *committer) finalise(c actor.Context) {
	if r.job.spec.Estimate { // the job needs only the number of tokens of the answers, not the answers
		r.finishEstimate(c)
		return
	}
	parts := r.progress.Parts()
	here := r.sizes.Most == 0 // for this bucket, the length of the parts does not matter
	if !here {
		var size int64
		for _, p := range parts {
			size += p.Size
		}
		here = size < r.sizes.Least
	}
	artifacts := make(map[string]store.Artifact)
	for _, name := range []string{commit.MakeFull, commit.MakeRows} {
		r.compactions = append(r.compactions, compaction{
			what: "write artifact " + name, here: here,
			begin: func() *commit.Compaction { return r.files.Artifact(name, parts) },
			made: func(c actor.Context, m *commit.Compaction, size int64) {
				artifacts[name] = store.Artifact{Key: m.Key, Size: size}
				if artifacts[commit.MakeFull].Key != "" && artifacts[commit.MakeRows].Key != "" {
					r.succeed(c, artifacts)
				}
			},
		})
	}
	r.startCompactions(c)
}

func (r *committer) succeed(c actor.Context, artifacts map[string]store.Artifact) {
	now, lastRow := r.cfg.Clock(), r.lastRow
	r.recordEnd(c, func(ctx context.Context) (store.Record, error) {
		return recordSuccess(ctx, r.cfg.Store, r.job.fence, artifacts, now)
	}, func(span *tracing.Span) { span.Observe(r.metrics.finalise, time.Since(lastRow).Seconds()) })
}

func (r *committer) finishEstimate(c actor.Context) {
	usd, e := ingest.Sampled(r.job.spec, r.rows-r.copied, r.job.manifest.Size, r.progress.Parts())
	now := r.cfg.Clock()
	r.recordEnd(c, func(ctx context.Context) (store.Record, error) {
		return recordEstimate(ctx, r.cfg.Store, r.job.fence, r.rows, usd, e, now)
	}, func(*tracing.Span) {})
}

// recordEnd calls record, which writes the end of the job to the store, and tells the
// job.
func (r *committer) recordEnd(c actor.Context, record func(ctx context.Context) (store.Record, error), ended func(*tracing.Span)) {
	r.tasks.run(c, "record the result", func(ctx context.Context) step {
		span := r.job.trace.Begin("record the result")
		rec, err := result(r.patientHere(ctx), func() (store.Record, error) { return record(ctx) })
		span.End(err)
		return func(c actor.Context) {
			if err != nil {
				r.sendError(c, fmt.Errorf("finish job: %w", err))
				return
			}
			ended(span)
			c.Send(r.owner, jobSucceeded{rec})
		}
	})
}

// sendError sends the job an error. If this owner has recorded parts and the store's
// count of parts differs from the ledger, the store has lost its last writes; a
// store that does not flush each write loses writes in a crash. The error is then
// errForgotten.
func (r *committer) sendError(c actor.Context, err error) {
	if errors.Is(err, rowmill.ErrConflict) && r.progress.HasRecorded() {
		err = fmt.Errorf("%w: %w", errForgotten, err)
	}
	c.Send(r.owner, jobBroke{err})
}
