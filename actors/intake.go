package actors

import (
	"context"
	"log/slog"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/actors/ingest"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/internal/tracing"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// shardsArrived is the message with new shards of an input that is still being read.
type shardsArrived struct {
	ingest.EarlyShards
	counter *prompt.Counter
}

// inputRead is the message that the whole input of a job is read and cut into shards,
// or that this failed.
type inputRead struct {
	rec     store.Record
	input   shard.Manifest
	counter *prompt.Counter
	groups  []byte         // group number of each row; empty if rows run in the order of the input
	copies  *ingest.Copies // rows that get the answers of equal rows; nil for none
	parts   []store.Part   // parts that earlier owners have recorded
	err     error
}

// An inputReader reads the input of a job and holds the progress and the result of the
// reading. It knows no actors.
type inputReader struct {
	*deps
	fence   store.Fence
	trace   *tracing.JobTrace // nil if the job is not traced
	reading gateWaiters       // counts the waits for a turn to read
	begun   *shardsArrived    // shards that were read before the job could start rows; nil if there are none
	whole   bool              // the whole input is read
	shards  int               // number of shards with rows to run, once the input is whole
	input   shard.Manifest    // the whole input; an estimate job runs only its first rows
	copies  *ingest.Copies    // rows that get the answers of equal rows; nil for none
}

// readInput reads the input and returns the message for the job. It runs outside of the
// actor's mailbox. While it reads, it calls ready with new shards; ready may be nil.
func (in *inputReader) readInput(ctx context.Context, rec store.Record, ready func(shardsArrived)) inputRead {
	m := inputRead{rec: rec}
	span := in.trace.Begin("read the input")
	m.err = in.ingest(ctx, &m, ready)
	span.SetAttributes(slog.Int64("rowmill.rows", m.input.Rows), slog.Int("rowmill.shards", len(m.input.Shards)))
	span.End(m.err)
	return m
}

func (in *inputReader) ingest(ctx context.Context, m *inputRead, ready func(shardsArrived)) (err error) {
	if m.counter, err = in.counters.NewCounter(&m.rec.Spec); err != nil {
		return err
	}
	reads, spec := in.ingestConfig(), m.rec.Spec
	reads.Compute = func(ctx context.Context) (func(), bool) {
		return func() { in.slots.compute.Leave(spec.Account) }, in.slots.compute.Enter(ctx, spec.Account, spec.Priority)
	}
	reads.Stream = in.slots.takeStream
	reads.Turn = func(ctx context.Context) (func(), bool) {
		return func() { in.slots.read.Leave(spec.Account) }, in.reading.waitForTurn(ctx, in.slots.read, &spec)
	}
	if ready != nil {
		reads.Ready = func(b ingest.EarlyShards) { ready(shardsArrived{b, m.counter}) }
	}
	if m.input, err = ingest.Run(ctx, reads, &m.rec, in.fence, m.counter); err != nil {
		return err
	}
	id, here := m.rec.Job.ID, in.localStorageRetrier(ctx)
	if m.groups, err = runWithResult(here, func() ([]byte, error) { return ingest.ReadGroups(ctx, in.cfg.Blob, id, m.input) }); err != nil {
		return err
	}
	if m.copies, err = runWithResult(here, func() (*ingest.Copies, error) {
		return ingest.ReadCopies(ctx, in.cfg.Blob, id, &m.rec.Spec, m.input)
	}); err != nil {
		return err
	}
	if err = here(func() error { return ingest.ReserveCost(ctx, in.cfg.Store, &m.rec, in.fence, m.input) }); err != nil {
		return err
	}
	m.parts, err = runWithResult(here, func() ([]store.Part, error) { return in.cfg.Store.ListParts(ctx, id) })
	return err
}

// ingestConfig returns the settings for reading the input.
func (in *inputReader) ingestConfig() ingest.Config {
	cfg := in.cfg.ingest()
	cfg.Wait, cfg.Patient = in.storage.RetryUnlessElsewhere, in.storage.WithRetries
	cfg.Downloads, cfg.DownloadsAt, cfg.Address = in.downloads, in.isDownloadingAt, in.address
	return cfg
}

// bufferShards keeps new shards until the job can start their rows.
func (in *inputReader) bufferShards(b shardsArrived) {
	if in.begun == nil {
		in.begun = &b
		return
	}
	in.begun.Shards, in.begun.Copies = append(in.begun.Shards, b.Shards...), append(in.begun.Copies, b.Copies...)
}

// knownManifest returns the manifest that workers get while the input is still being
// read.
func (in *inputReader) knownManifest() shard.Manifest {
	return shard.Manifest{IDType: in.begun.IDType, Fields: in.begun.Fields, Rows: in.begun.About}
}

// rowCountUpdate returns a function that writes the number of rows and shards to the
// record, and how the input is cut into shards. The function changes nothing before the
// input is whole.
func (in *inputReader) rowCountUpdate() func(*store.Record) {
	if !in.whole {
		return func(*store.Record) {}
	}
	rows, inputRows, cut, shards, estimated := in.input.Rows, in.input.InputRows, in.input.ShardHash(), in.shards, in.input.Estimated
	if estimated.Rows > 0 { // the record of an estimate describes the whole input
		rows = inputRows
	}
	return func(r *store.Record) {
		if r.Spec.Estimate && r.Job.Estimate == nil {
			usd, e := ingest.EstimateFromInput(&r.Spec, estimated)
			setEstimate(r, usd, e)
		}
		if r.Job.NumRows == nil {
			r.Job.NumRows = &rows
		}
		if r.Job.InputRows == nil && inputRows > 0 && !r.Spec.Estimate {
			r.Job.InputRows = &inputRows
		}
		if r.Shards == 0 {
			r.Shards = shards
		}
		if r.Cut == "" {
			r.Cut = cut
		}
	}
}

// unsampledEstimator returns a function that ends an estimate job without a sample: it computes
// the estimate from the input alone. The function runs outside of the mailbox and
// returns the message for the job.
func (in *inputReader) unsampledEstimator(spec *rowmill.Spec) func(ctx context.Context) any {
	now, countRows := in.cfg.Clock(), in.rowCountUpdate()
	recordEstimate := estimateRecorder(ingest.EstimateFromInput(spec, in.input.Estimated))
	return func(ctx context.Context) any {
		rec, err := runWithResult(in.localStorageRetrier(ctx), func() (store.Record, error) {
			return recordSuccess(ctx, in.cfg.Store, in.fence, now, func(r *store.Record) {
				countRows(r)
				recordEstimate(r)
			})
		})
		if err != nil {
			return jobError{err}
		}
		return jobSucceeded{rec}
	}
}

// newCopyWriter returns the writer of copies, which are rows that equal earlier rows; nil if
// there are none. No worker runs copies: the committer writes them as parts.
func (in *inputReader) newCopyWriter(files *commit.CompactionPlanner, spec *rowmill.Spec) *commit.CopyWriter {
	if in.copies == nil {
		return nil
	}
	copies, bucket, id, shards := in.copies, in.cfg.Blob, in.fence.JobID, files.Shards
	return &commit.CopyWriter{
		Files: files, Of: copies.RowCopies,
		List: func(ctx context.Context) (blob.Object, error) { return copies.Open(ctx, bucket, id) },
		Input: func(ctx context.Context, n int) (*shard.Reader, error) {
			return archive.OpenShard(ctx, bucket, id, spec, n, shards[n])
		},
	}
}
