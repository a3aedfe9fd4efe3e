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

// Messages that a committer receives, in addition to steps.
type (
	partWritten struct { // from the job: a part object is stored durably
		assign.PartProposal
		workers  int      // number of the job's workers
		node     string   // address of the node that wrote the part; "" for this node
		servers  []string // descriptions of the servers that workers have used so far
		capacity int      // see jobWorkers.countSlots
	}
	copyRows struct { // from the job: write the answers of these rows, which equal earlier rows
		shard int
		rows  *roaring.Bitmap
	}
	drainResults struct{} // from the job: no more parts will come; commit the parts that have arrived
)

// Messages that a committer sends to its job.
type (
	partsCommitted struct{ parts []assign.PartProposal } // the store has recorded these parts
	jobError       struct{ err error }                   // the job cannot continue, or cannot continue on this node
	jobSucceeded   struct{ rec store.Record }            // the store has recorded the success of the job
	rowsCopied     struct{ part assign.Part }            // the part with the copied rows of a shard is stored durably
	resultsDrained struct{}                              // the store has recorded all parts that arrived
)

// A committer is the actor that records the parts of a job; a row is done when its part
// is recorded. It merges the parts of a complete shard while other shards still run,
// and makes the results when every shard is complete.
type committer struct {
	*deps
	job         *jobContext
	owner       *actor.PID // the job actor
	progress    *commit.PartProgress
	files       *commit.CompactionPlanner
	copies      *commit.CopyWriter // nil where no row is a copy
	mergeWaits  *gateWaiters       // merges of the job that wait for their turn
	helpers     commit.CompactionNodes
	compactions []compactionTask // compactions that no node has started
	sizes       commit.JoinSizes // bounds for the sizes of joined parts
	tasks       taskGroup
	log         *slog.Logger // has the job's ID
	timers      timers
	workers     int          // number of the job's workers
	servers     []string     // descriptions of the servers that workers have used
	capacity    int          // rows that these servers can run at the same time
	dropping    []store.Part // replaced parts that onDropDue deletes
	lastRow     time.Time    // when the last part was recorded
}

func (r *committer) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		r.lastRow = time.Now()
		r.startNextSteps(c)
	case mailboxStep:
		m(c)
	case partWritten:
		r.onPartWritten(c, m)
	case copyRows:
		r.copyRows(c, m)
	case drainResults:
		r.progress.Drain()
		r.startNextSteps(c)
	case *actor.Stopping:
		r.timers.stop()
		r.tasks.cancel()
		if r.copies != nil {
			r.copies.Close()
		}
	default:
		logUnhandled(c, r.log)
	}
}

// startNextSteps starts all steps that are possible now: record, merge and join parts, and make
// the results.
func (r *committer) startNextSteps(c actor.Context) {
	next := r.progress.Next()
	if next.Failed > 0 {
		c.Send(r.owner, jobError{rowmill.Failf(rowmill.CodeTooManyFailedRows,
			"%d of %d rows failed: a job of %[2]d rows fails when %d or more of its rows fail. The errors of the job list them.", next.Failed, r.job.manifest.Rows, min(next.MayFail+1, r.job.manifest.Rows))})
	}
	if next.Record != nil {
		r.commitBatch(c, next.Record)
	}
	for _, n := range next.Merge {
		r.mergeShard(c, n)
	}
	for _, p := range next.Join {
		r.joinShards(c, p)
	}
	if next.Final {
		r.makeResults(c)
	}
	if next.Drained {
		c.Send(r.owner, resultsDrained{})
	}
}

func (r *committer) onPartWritten(c actor.Context, m partWritten) {
	if m.Repeat {
		r.log.Debug("a part is dropped because its rows are already done", "part", m.Key)
		r.dropPartsLater(c, store.Part{Key: m.Key})
		return
	}
	r.workers, r.servers, r.capacity = m.workers, appendMissing(r.servers, m.servers), m.capacity
	if m.Worker != "" {
		r.helpers.AddNode(m.node)
		if r.helpers.HasOtherNodes() {
			r.progress.EnableFinalJoins()
		}
	}
	r.progress.Propose(m.PartProposal)
	r.startNextSteps(c)
}

func (r *committer) commitBatch(c actor.Context, batch *commit.PartBatch) {
	parts := batch.Parts()
	r.tasks.run(c, "commit parts", func(ctx context.Context) mailboxStep {
		span := r.job.trace.Begin("commit parts", slog.Int("rowmill.parts", len(parts)))
		err := r.storage.RetryUnlessElsewhere(ctx, func() error { return r.cfg.Store.CommitParts(ctx, r.job.fence, parts) })
		span.End(err)
		return func(c actor.Context) {
			if err != nil {
				c.Send(r.owner, jobError{fmt.Errorf("commit parts: %w", err)})
				return
			}
			r.lastRow = time.Now()
			r.progress.MarkRecorded(batch)
			for _, p := range batch.Proposals {
				r.updateMetrics(p.Record)
			}
			c.Send(r.owner, partsCommitted{batch.Proposals})
			if pause := time.Duration(r.workers) * commitPause; pause >= leastPause {
				r.progress.HoldBatch()
				r.timers.runAfter(c, pause, "rest", r.onCommitPauseOver)
			}
			r.startNextSteps(c)
		}
	})
}

// After a commit, the committer gathers parts for commitPause times the number of the
// job's workers. Each worker writes more than one part in a second. With a thousand
// workers, a commit for each part would be most of the load of the store. The pause is
// then a fifth of a second, so a crash loses at most that much more work. A pause
// shorter than leastPause is skipped, because few workers write too few parts to
// gather.
const (
	commitPause = 200 * time.Microsecond
	leastPause  = 5 * time.Millisecond
)

func (r *committer) onCommitPauseOver(c actor.Context) {
	r.progress.ReleaseBatch()
	r.startNextSteps(c)
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

// mergeShard adds a compaction that merges the parts of a shard into one part.
func (r *committer) mergeShard(c actor.Context, n int) {
	parts := r.progress.ShardParts(n)
	complete := func(m *commit.Compaction, size int64) store.Part { return assign.NewMergedPart(m.Key, size, parts) }
	r.addCompaction(c, compactionTask{
		name:  fmt.Sprintf("merge shard %d", n),
		begin: func() *commit.Compaction { return r.files.PlanMerge(n, parts) },
		record: func(ctx context.Context, m *commit.Compaction, size int64) error {
			return r.storage.RetryUnlessElsewhere(ctx, func() error { return r.cfg.Store.ReplaceParts(ctx, r.job.fence, complete(m, size)) })
		},
		onMade: func(c actor.Context, m *commit.Compaction, size int64) {
			r.dropPartsLater(c, r.progress.MarkMerged(complete(m, size))...)
			r.startNextSteps(c)
		},
	})
}

// joinShards adds a compaction that joins the complete parts of consecutive shards. The store
// has no record of joined parts, so the next owner joins the parts again.
func (r *committer) joinShards(c actor.Context, p commit.ShardRange) {
	var parts []store.Part
	for n := p.From; n < p.To; n++ {
		parts = append(parts, r.progress.ShardParts(n)...)
	}
	r.addCompaction(c, compactionTask{
		name:  fmt.Sprintf("join shards %d to %d", p.From, p.To-1),
		begin: func() *commit.Compaction { return r.files.PlanJoin(p, parts) },
		onMade: func(c actor.Context, m *commit.Compaction, size int64) {
			r.progress.MarkJoined(p, store.Part{Key: m.Key, Shard: p.From, Rows: m.Rows, Size: size})
			r.startNextSteps(c)
		},
	})
}

// copyRows writes a part with the copies of a shard: the rows that get the answer of an
// equal row. Then the job proposes the part to the committer.
func (r *committer) copyRows(c actor.Context, m copyRows) {
	parts := make(map[int][]store.Part)
	for _, n := range r.copies.NeededShards(m.shard) {
		parts[n] = r.progress.ShardParts(n)
	}
	r.tasks.run(c, "write copies of rows", func(ctx context.Context) mailboxStep {
		if !r.mergeWaits.waitForTurn(ctx, r.slots.merge, r.job.spec) {
			return nil
		}
		defer r.slots.merge.Leave(r.job.spec.Account)
		var part assign.Part
		moved := false // a part is missing, perhaps because a merge has replaced the part
		span := r.job.trace.Begin("write copies of rows", slog.Int("rowmill.shard", m.shard))
		err := r.storage.RetryUnlessElsewhere(ctx, func() (err error) {
			part, err = r.copies.Write(ctx, m.shard, m.rows, parts)
			moved = errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, blob.ErrLost)
			if moved {
				return nil
			}
			return archive.FindCause(ctx, r.cfg.Blob, allParts(parts), err)
		})
		span.End(err)
		return func(c actor.Context) {
			switch {
			case err != nil:
				r.sendError(c, fmt.Errorf("copy rows of shard %d: %w", m.shard, err))
			case moved && !r.partsChanged(parts):
				r.recheckThenCopy(c, m, parts)
			case moved:
				r.copyRows(c, m)
			default:
				c.Send(r.owner, rowsCopied{part})
			}
		}
	})
}

// recheckThenCopy waits until the parts with the answers of the original rows can be read,
// and then writes the copies. If the parts are lost, it sends the error to the job.
func (r *committer) recheckThenCopy(c actor.Context, m copyRows, parts map[int][]store.Part) {
	r.tasks.run(c, "check parts", func(ctx context.Context) mailboxStep {
		err := r.storage.RetryUnlessElsewhere(ctx, func() error { return archive.CheckParts(ctx, r.cfg.Blob, allParts(parts)) })
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

// partsChanged reports whether a merge has replaced any of these parts. parts maps each
// shard to the parts that it had earlier.
func (r *committer) partsChanged(parts map[int][]store.Part) bool {
	for n, had := range parts {
		if have := r.progress.ShardParts(n); len(have) != len(had) || have[0].Key != had[0].Key {
			return true
		}
	}
	return false
}

// dropInterval is how long the committer collects part objects that no record names any
// more, before it deletes them together. Each deletion first lists all recorded parts
// of the job: sixty thousand in a job of a thousand million rows.
const dropInterval = 10 * time.Second

// dropPartsLater deletes part objects that no record names any more, after dropInterval and
// Config.Ownership.Settle. Until then, a store that loses its last writes in a crash
// may name these parts again, and so may the other side of a split store. The end of
// the job removes parts that remain.
func (r *committer) dropPartsLater(c actor.Context, parts ...store.Part) {
	if len(r.dropping) == 0 {
		r.timers.runAfter(c, dropInterval, "drop", r.onDropDue)
	}
	r.dropping = append(r.dropping, parts...)
}

func (r *committer) onDropDue(c actor.Context) {
	parts := r.dropping
	r.dropping = nil
	r.tasks.run(c, "drop parts later", func(ctx context.Context) mailboxStep {
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
	if err := r.cfg.Store.ConfirmPrimary(ctx); err != nil {
		return nil, err
	}
	named := make(map[string]bool)
	err := r.storage.Retry(ctx, func() error {
		recorded, err := r.cfg.Store.ListParts(ctx, r.job.id)
		for _, p := range recorded {
			named[p.Key] = true
		}
		return err
	})
	return named, err
}

// makeResults adds the compactions that make the results. When both results are made, the
// committer records the success of the job.
func (r *committer) makeResults(c actor.Context) {
	parts := r.progress.Parts()
	here := r.sizes.Most == 0 // this bucket needs no long parts, so this node makes the results
	if !here {
		var size int64
		for _, p := range parts {
			size += p.Size
		}
		here = size < r.sizes.Least
	}
	artifacts := make(map[string]store.Artifact)
	for _, name := range []string{commit.MakeFull, commit.MakeRows} {
		r.compactions = append(r.compactions, compactionTask{
			name: "write artifact " + name, isLocal: here,
			begin: func() *commit.Compaction { return r.files.PlanArtifact(name, parts) },
			onMade: func(c actor.Context, m *commit.Compaction, size int64) {
				artifacts[name] = store.Artifact{Key: m.Key, Size: size}
				if artifacts[commit.MakeFull].Key != "" && artifacts[commit.MakeRows].Key != "" {
					r.recordJobSuccess(c, artifacts)
				}
			},
		})
	}
	r.startCompactions(c)
}

func (r *committer) recordJobSuccess(c actor.Context, artifacts map[string]store.Artifact) {
	now, lastRow, servers := r.cfg.Clock(), r.lastRow, r.servers
	r.recordEnd(c, func(ctx context.Context) (store.Record, error) {
		if r.job.spec.Sink != nil && !r.job.spec.Estimate { // only the job after the estimate has results
			if err := r.deliver(ctx, artifacts); err != nil {
				return store.Record{}, err
			}
		}
		estimate := func(*store.Record) {}
		if r.job.spec.Estimate {
			answers, err := readSample(ctx, r.cfg.Blob, artifacts, int(r.job.manifest.Rows))
			if err != nil {
				return store.Record{}, err
			}
			queue, err := ingest.ReadQueue(ctx, r.cfg.Store, r.job.spec.Account, r.job.spec.Model.ID, r.job.id, now)
			if err != nil {
				return store.Record{}, err
			}
			queue.Slots = r.capacity
			estimate = estimateRecorder(ingest.EstimateFromSample(r.job.spec, r.job.manifest, answers, queue))
		}
		return recordSuccess(ctx, r.cfg.Store, r.job.fence, now, func(rec *store.Record) {
			rec.Artifacts, rec.Job.Servers = artifacts, appendMissing(rec.Job.Servers, servers)
			estimate(rec)
		})
	}, func(span *tracing.Span) { span.Observe(r.metrics.finalise, time.Since(lastRow).Seconds()) })
}

// deliver writes the results to the sink of the job.
func (r *committer) deliver(ctx context.Context, artifacts map[string]store.Artifact) error {
	spec := r.job.spec
	sink, err := r.cfg.Inputs.Sources.FindSink(spec.Account, spec.Sink.Folder)
	if err != nil {
		failure := rowmill.Failf(rowmill.CodeOutputFailed, "The results cannot be written to %s any more. Ask the operator to check the setting sources of all nodes, then resume the job: no row runs again.", spec.Sink.Folder)
		failure.AdditionalContext = err.Error()
		return failure
	}
	return commit.Deliver(ctx, r.cfg.Blob, sink, r.job.id, spec, artifacts, r.log)
}

// readSample reads the answered rows of an estimate from its result files, which have this number
// of rows.
func readSample(ctx context.Context, bucket blob.Bucket, artifacts map[string]store.Artifact, rows int) (answers []ingest.AnsweredRow, err error) {
	results, err := archive.OpenResult(ctx, bucket, artifacts)
	if err != nil {
		return nil, err
	}
	defer results.Close()
	err = results.EachRowOfShard(ctx, 0, 0, rows, func(_ *rowmill.Row, out *rowmill.RowOutput) error {
		if !out.Failed() {
			answers = append(answers, ingest.AnsweredRow{InputTokens: out.InputTokens, OutputTokens: out.OutputTokens, Seconds: out.Seconds})
		}
		return nil
	})
	return answers, err
}

// recordEnd calls record, which writes the end of the job to the store. After that it
// calls ended, and sends the record to the job.
func (r *committer) recordEnd(c actor.Context, record func(ctx context.Context) (store.Record, error), ended func(*tracing.Span)) {
	r.tasks.run(c, "record the result", func(ctx context.Context) mailboxStep {
		span := r.job.trace.Begin("record the result")
		rec, err := runWithResult(r.localStorageRetrier(ctx), func() (store.Record, error) { return record(ctx) })
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

// sendError sends the job an error. It sends errForgotten if this owner has recorded
// parts and the store does not have them: a store that does not flush each write loses
// its last writes in a crash.
func (r *committer) sendError(c actor.Context, err error) {
	if errors.Is(err, rowmill.ErrConflict) && r.progress.HasRecorded() {
		err = fmt.Errorf("%w: %w", errForgotten, err)
	}
	c.Send(r.owner, jobError{err})
}
