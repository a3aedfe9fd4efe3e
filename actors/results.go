package actors

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/asynkron/protoactor-go/actor"
	"golang.org/x/sync/errgroup"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/ingest"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/retry"
	"github.com/rowmill/rowmill/store"
)

// Messages a results actor receives.
type (
	partWritten struct { // job: a part object is durable
		assign.Proposal
	}
	partsCommitted struct { // its errand
		parts []store.Part
		err   error
	}
	shardMerged struct { // its errand
		shard    int
		complete store.Part
		err      error
	}
	drainResults struct{} // job: nothing more will be written; commit what is here
	jobFinalised struct { // its errand: the job has succeeded, or not
		rec store.Record
		err error
	}
)

// A collector is the results actor of one job: it commits parts, the only
// moment at which a row is done, merges the parts of a shard while others
// still run, and makes the artifacts once every shard is complete.
type collector struct {
	cfg     Config
	job     *jobContext
	owner   *actor.PID // the job
	rows    int64      // of the whole input
	ledger  *assign.Ledger
	metrics *metrics
	slots   slots
	work    errand
	log     *slog.Logger

	pending    []store.Part           // proposed, not yet committed
	written    map[string]partWritten // by key: what was proposed
	committing bool
	commits    int          // by this owner
	merging    map[int]bool // shards
	survives   int64        // failed rows the job may have
	finalising bool
	draining   bool
	lastRow    time.Time // when the last part was committed
}

func (r *collector) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		r.onStarted(c)
	case partWritten:
		r.onPartWritten(c, m)
	case partsCommitted:
		r.onPartsCommitted(c, m)
	case shardMerged:
		r.onShardMerged(c, m)
	case drainResults:
		r.onDrainResults(c)
	case jobFinalised:
		r.onJobFinalised(c, m)
	case *actor.Stopping:
		r.work.cancel()
	default:
		unhandled(c, r.log)
	}
}

// onStarted takes up what a former owner left: shards to merge, or a job whose
// last row is done.
func (r *collector) onStarted(c actor.Context) {
	r.merging = make(map[int]bool)
	r.written = make(map[string]partWritten)
	r.lastRow = time.Now()
	if r.lost(c) {
		return
	}
	for n := range r.ledger.Shards() {
		r.mergeIfReady(c, n)
	}
	r.finaliseIfReady(c)
}

// lost reports whether too many rows have failed, and tells the job.
func (r *collector) lost(c actor.Context) bool {
	failed := r.ledger.Totals.Failed
	if failed <= r.survives && (failed == 0 || failed < r.ledger.Rows) {
		return false
	}
	c.Send(r.owner, tooManyFailed{totals: r.ledger.Totals})
	return true
}

func (r *collector) onPartWritten(c actor.Context, m partWritten) {
	if m.Repeat {
		r.log.Warn("part repeats rows that are done, dropped", "part", m.Key)
		r.drop(c, m.Key)
		return
	}
	r.written[m.Key] = m
	r.pending = append(r.pending, m.Record)
	r.commit(c)
}

// commit records all pending parts at once.
func (r *collector) commit(c actor.Context) {
	if r.committing || len(r.pending) == 0 {
		return
	}
	r.committing = true
	parts, totals := r.pending, r.ledger.Totals
	r.pending = nil
	for _, p := range parts {
		totals = totals.Plus(p.Totals)
	}
	r.work.run(c, func(ctx context.Context) any {
		err := retry.Commits.Do(ctx, func() error { return r.cfg.Store.CommitParts(ctx, r.job.fence, parts, totals) }, mayGoOn, func(err error) {
			r.log.Warn("committing parts failed, will be tried again", "parts", len(parts), "err", err)
		})
		return partsCommitted{parts, err}
	})
}

func (r *collector) onPartsCommitted(c actor.Context, m partsCommitted) {
	r.committing = false
	if m.err != nil {
		c.Send(r.owner, jobBroke{fmt.Errorf("commit parts: %w", m.err)})
		return
	}
	r.commits++
	r.lastRow = time.Now()
	for _, p := range m.parts {
		r.ledger.Add(p)
		r.count(p)
		m := r.written[p.Key]
		delete(r.written, p.Key)
		c.Send(r.owner, partCommitted{m.Worker, m.Part})
	}
	if r.lost(c) {
		return
	}
	for _, p := range m.parts {
		r.mergeIfReady(c, p.Shard)
	}
	r.commit(c)
	r.finaliseIfReady(c)
	r.reportDrained(c)
}

func (r *collector) count(p store.Part) {
	model := r.job.spec.Model.ID
	r.metrics.parts.Inc()
	r.metrics.rows.WithLabelValues(model, "done").Add(float64(p.Totals.Rows - p.Totals.Failed))
	r.metrics.rows.WithLabelValues(model, "failed").Add(float64(p.Totals.Failed))
	r.metrics.tokens.WithLabelValues(model, "input").Add(float64(p.Totals.InputTokens))
	r.metrics.tokens.WithLabelValues(model, "output").Add(float64(p.Totals.OutputTokens))
}

func (r *collector) mergeIfReady(c actor.Context, n int) {
	if r.job.spec.Estimate || r.merging[n] || r.draining || !r.ledger.Mergeable(n) {
		return
	}
	r.merging[n] = true
	parts := r.ledger.Parts(n)
	r.work.run(c, func(ctx context.Context) any {
		if !r.slots.merge.enter(ctx) {
			return nil
		}
		defer r.slots.merge.leave()
		began := time.Now()
		var complete store.Part
		err := r.patiently(ctx, "merge shard", func() error {
			key := layout.Part(r.job.id, n, r.job.fence.Epoch)
			size, err := r.merge(ctx, n, parts, key)
			complete = assign.Merged(key, size, parts)
			return err
		})
		if err != nil {
			return shardMerged{shard: n, err: err}
		}
		err = r.patiently(ctx, "record merged shard", func() error { return r.cfg.Store.ReplaceParts(ctx, r.job.fence, complete) })
		r.metrics.merges.Observe(time.Since(began).Seconds())
		return shardMerged{shard: n, complete: complete, err: err}
	})
}

func (r *collector) patiently(ctx context.Context, what string, do func() error) error {
	return patiently(ctx, r.cfg.StoragePatience, r.log, what, do)
}

func (r *collector) merge(ctx context.Context, n int, parts []store.Part, key string) (size int64, err error) {
	sources := make([]results.PartSource, len(parts))
	for i, p := range parts {
		accepted := roaring.New()
		if err := accepted.UnmarshalBinary(p.Accepted); err != nil {
			return 0, fmt.Errorf("part %s: decode accepted rows: %w", p.Key, err)
		}
		o, err := r.cfg.Blob.Open(ctx, p.Key)
		if err != nil {
			return 0, fmt.Errorf("open part: %w", err)
		}
		defer o.Close()
		sources[i] = results.PartSource{Source: o, Accept: accepted, First: r.job.manifest.Shards[n].First}
	}
	return writeObject(ctx, r.cfg.Blob, key, func(w io.Writer) error {
		rows, err := results.Merge(ctx, w, r.job.schema, sources)
		if want := int64(r.job.manifest.Shards[n].Rows); err == nil && rows != want {
			err = fmt.Errorf("merge shard %d: %d rows, not %d", n, rows, want)
		}
		return err
	})
}

func (r *collector) onShardMerged(c actor.Context, m shardMerged) {
	if m.err != nil {
		c.Send(r.owner, r.differ(fmt.Errorf("merge shard %d: %w", m.shard, m.err)))
		return
	}
	delete(r.merging, m.shard)
	for _, p := range r.ledger.Parts(m.shard) {
		r.drop(c, p.Key)
	}
	r.ledger.Complete(m.complete)
	r.finaliseIfReady(c)
	r.reportDrained(c)
}

// dropDelay is how long a part that was merged stays. A store that does not
// flush each write may forget the merged one when it crashes, and then names
// this one again.
const dropDelay = 10 * time.Second

// drop deletes a part object that no record names any more, after a while. The
// end of the job removes what is left.
func (r *collector) drop(c actor.Context, key string) {
	r.work.run(c, func(ctx context.Context) any {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(dropDelay):
		}
		if err := r.cfg.Blob.Delete(ctx, key); err != nil {
			r.log.Warn("delete part", "part", key, "err", err)
		}
		return nil
	})
}

func (r *collector) finaliseIfReady(c actor.Context) {
	if r.finalising || r.draining {
		return
	}
	if r.job.spec.Estimate {
		r.estimateIfReady(c)
		return
	}
	if !r.ledger.Finished() {
		return
	}
	r.finalising = true
	parts := make([]store.Part, r.ledger.Shards())
	for i := range parts {
		parts[i] = r.ledger.Parts(i)[0]
	}
	r.work.run(c, func(ctx context.Context) any {
		rec, err := r.finalise(ctx, parts)
		return jobFinalised{rec, err}
	})
}

// estimateIfReady ends an estimate once its sample has run. Its answers are
// nobody's: only what they took counts.
func (r *collector) estimateIfReady(c actor.Context) {
	var parts []store.Part
	for i := range r.ledger.Shards() {
		parts = append(parts, r.ledger.Parts(i)...)
	}
	if r.ledger.Totals.Rows < r.ledger.Rows {
		return
	}
	r.finalising = true
	usd, e := ingest.Sampled(r.job.spec, r.rows, r.job.manifest.Size, parts)
	now := r.cfg.Clock()
	r.work.run(c, func(ctx context.Context) any {
		rec, err := estimated(ctx, r.cfg.Store, r.job.fence, r.rows, usd, e, now)
		return jobFinalised{rec, err}
	})
}

// finalise makes the artifacts and ends the job.
func (r *collector) finalise(ctx context.Context, parts []store.Part) (store.Record, error) {
	artifacts := map[string]store.Artifact{
		layout.Full: {Key: layout.Artifact(r.job.id, layout.Full, r.job.fence.Epoch)},
		layout.Rows: {Key: layout.Artifact(r.job.id, layout.Rows, r.job.fence.Epoch)},
	}
	write := map[string]func(context.Context, io.Writer, []results.Source) (int64, error){
		layout.Full: func(ctx context.Context, w io.Writer, src []results.Source) (int64, error) {
			return results.Concat(ctx, w, r.job.schema, src, results.Full)
		},
		layout.Rows: func(ctx context.Context, w io.Writer, src []results.Source) (int64, error) {
			return results.ConcatRows(ctx, w, r.job.schema, src)
		},
	}
	sizes := map[string]*int64{layout.Full: new(int64), layout.Rows: new(int64)}
	g, gctx := errgroup.WithContext(ctx)
	for name, concat := range write {
		g.Go(func() error {
			sources := make([]results.Source, len(parts))
			for i, p := range parts {
				part := blob.NewLazy(gctx, r.cfg.Blob, p.Key, p.Size)
				defer part.Close()
				sources[i] = part
			}
			err := r.patiently(gctx, "write artifact", func() error {
				size, err := writeObject(gctx, r.cfg.Blob, artifacts[name].Key, func(w io.Writer) error {
					rows, err := concat(gctx, w, sources)
					if err == nil && rows != r.ledger.Rows {
						err = fmt.Errorf("%d rows, not %d", rows, r.ledger.Rows)
					}
					return err
				})
				*sizes[name] = size
				return err
			})
			if err != nil {
				return fmt.Errorf("write artifact %s: %w", name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return store.Record{}, err
	}
	for name, size := range sizes {
		artifacts[name] = store.Artifact{Key: artifacts[name].Key, Size: *size}
	}
	now := r.cfg.Clock()
	var rec store.Record
	err := r.patiently(ctx, "finish job", func() (err error) {
		rec, err = r.cfg.Store.Finish(ctx, r.job.fence, func(rec *store.Record) error {
			if err := rec.Job.Become(rowmill.StatusSucceeded, now); err != nil {
				return err
			}
			rec.Artifacts = artifacts
			rec.Job.Message = "Job succeeded."
			rec.Job.JobCost = rec.Spec.Model.Cost(&rec.Job)
			return nil
		})
		return err
	})
	if err != nil {
		return rec, err
	}
	r.metrics.finalise.Observe(time.Since(r.lastRow).Seconds())
	return rec, nil
}

func (r *collector) onJobFinalised(c actor.Context, m jobFinalised) {
	if m.err != nil {
		c.Send(r.owner, r.differ(fmt.Errorf("finish job: %w", m.err)))
		return
	}
	c.Send(r.owner, jobSucceeded{m.rec})
}

// differ is what the job hears of an error. That the store counts other parts
// than the ledger, after this owner has committed some, is no fault of ours: a
// store that does not flush each write forgets the last ones when it crashes.
func (r *collector) differ(err error) any {
	if errors.Is(err, rowmill.ErrConflict) && r.commits > 0 {
		return booksDiffer{err}
	}
	return jobBroke{err}
}

func (r *collector) onDrainResults(c actor.Context) {
	r.draining = true
	r.reportDrained(c)
}

func (r *collector) reportDrained(c actor.Context) {
	if r.draining && !r.committing && len(r.pending) == 0 && len(r.merging) == 0 && !r.finalising {
		c.Send(r.owner, resultsDrained{})
	}
}

// writeObject writes an object through a buffer and returns its size.
func writeObject(ctx context.Context, bucket blob.Bucket, key string, write func(io.Writer) error) (int64, error) {
	w, err := bucket.Create(ctx, key, layout.Parquet)
	if err != nil {
		return 0, err
	}
	defer w.Abort()
	buffered := bufio.NewWriterSize(w, 256<<10)
	if err := write(buffered); err != nil {
		return 0, err
	}
	if err := buffered.Flush(); err != nil {
		return 0, err
	}
	info, err := w.Commit()
	return info.Size, err
}
