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

// begun is the beginning of an input, cut into shards.
type begun struct {
	ingest.Begun
	counter *prompt.Counter
}

// inputRead is the input of a job, cut into shards.
type inputRead struct {
	rec     store.Record
	input   shard.Manifest
	counter *prompt.Counter
	groups  []byte         // of its rows, where they are dealt by them
	copies  *ingest.Copies // among them
	parts   []store.Part   // what earlier owners recorded
	err     error
}

// An intake is the input of a job: how it is read, and what is known of it. It knows no
// actors.
type intake struct {
	*process
	fence   store.Fence
	trace   *tracing.Job // nil where the job is not traced
	reading turns
	begun   *begun         // what is read while the rest is, and runs as soon as it can
	whole   bool           // all of the input is read
	shards  int            // of the rows that run, once the input is whole
	input   shard.Manifest // all of it; of an estimate job runs the first rows
	copies  *ingest.Copies // rows that get the answers of others; nil for none
}

// read reads the input, outside of the actor. ready hears of shards meanwhile; nil
// for nobody.
func (in *intake) read(ctx context.Context, rec store.Record, ready func(begun)) inputRead {
	m := inputRead{rec: rec}
	span := in.trace.Begin("read the input")
	m.err = in.ingest(ctx, &m, ready)
	span.Set(slog.Int64("rowmill.rows", m.input.Rows), slog.Int("rowmill.shards", len(m.input.Shards)))
	span.End(m.err)
	return m
}

func (in *intake) ingest(ctx context.Context, m *inputRead, ready func(begun)) (err error) {
	if m.counter, err = in.counters.Counter(m.rec.Spec.Model, m.rec.Spec.System); err != nil {
		return err
	}
	reads, spec := in.reads(), m.rec.Spec
	reads.Compute = func(ctx context.Context) (func(), bool) {
		return func() { in.slots.compute.Leave(spec.Account) }, in.slots.compute.Enter(ctx, spec.Account, spec.Priority)
	}
	reads.Stream = in.slots.streamed
	reads.Turn = func(ctx context.Context) (func(), bool) {
		return func() { in.slots.read.Leave(spec.Account) }, in.reading.enter(ctx, in.slots.read, &spec)
	}
	if ready != nil {
		reads.Ready = func(b ingest.Begun) { ready(begun{b, m.counter}) }
	}
	if m.input, err = ingest.Run(ctx, reads, &m.rec, in.fence, m.counter); err != nil {
		return err
	}
	id, here := m.rec.Job.ID, in.patientHere(ctx)
	if m.groups, err = result(here, func() ([]byte, error) { return ingest.ReadGroups(ctx, in.cfg.Blob, id, m.input) }); err != nil {
		return err
	}
	if m.copies, err = result(here, func() (*ingest.Copies, error) {
		return ingest.ReadCopies(ctx, in.cfg.Blob, id, &m.rec.Spec, m.input)
	}); err != nil {
		return err
	}
	if err = here(func() error { return ingest.Reserve(ctx, in.cfg.Store, &m.rec, in.fence, m.input) }); err != nil {
		return err
	}
	m.parts, err = result(here, func() ([]store.Part, error) { return in.cfg.Store.ListParts(ctx, id) })
	return err
}

// reads is what the input is read with.
func (in *intake) reads() ingest.Config {
	cfg := in.cfg.ingest()
	cfg.Wait, cfg.Patient = in.storage.WaitHere, in.storage.Patient
	cfg.Downloads, cfg.DownloadsAt, cfg.Address = in.downloads, in.downloadsAt, in.address
	return cfg
}

// add takes in shards of an input of which no row can run yet.
func (in *intake) add(b begun) {
	if in.begun == nil {
		in.begun = &b
		return
	}
	in.begun.Shards, in.begun.Copies = append(in.begun.Shards, b.Shards...), append(in.begun.Copies, b.Copies...)
}

// known is what the workers have to know of an input that is still being read.
func (in *intake) known() shard.Manifest {
	return shard.Manifest{IDType: in.begun.IDType, Fields: in.begun.Fields, Rows: in.begun.About}
}

// counted says in the record how many rows run and how they are cut, once that is
// known.
func (in *intake) counted() func(*store.Record) {
	if !in.whole {
		return func(*store.Record) {}
	}
	rows, cut, shards := in.input.Rows, in.input.Cut(), in.shards
	return func(r *store.Record) {
		if r.Job.NumRows == nil {
			r.Job.NumRows = &rows
		}
		if r.Shards == 0 {
			r.Shards = shards
		}
		if r.Cut == "" && r.Job.RunType != rowmill.RunEstimate { // of which some rows may run
			r.Cut = cut
		}
	}
}

// estimate ends a job with what its input alone tells, outside of the actor. It returns
// the message for the job.
func (in *intake) estimate(spec *rowmill.Spec) func(ctx context.Context) any {
	rows, now := in.input.Rows, in.cfg.Clock()
	usd, e := ingest.Unsampled(spec, rows-in.input.Copies, in.input.Size)
	return func(ctx context.Context) any {
		rec, err := result(in.patientHere(ctx), func() (store.Record, error) {
			return recordEstimate(ctx, in.cfg.Store, in.fence, rows, usd, e, now)
		})
		if err != nil {
			return jobBroke{err}
		}
		return jobSucceeded{rec}
	}
}

// copiesFor is what writes rows that are equal to earlier ones; nil where there are
// none. No worker has these rows: the owner has them written as parts of its own.
func (in *intake) copiesFor(files *commit.Files, spec *rowmill.Spec) *commit.Copies {
	if in.copies == nil {
		return nil
	}
	copies, bucket, id, shards := in.copies, in.cfg.Blob, in.fence.JobID, files.Shards
	return &commit.Copies{
		Files: files, Of: copies.Copies,
		List: func(ctx context.Context) (blob.Object, error) { return copies.Open(ctx, bucket, id) },
		Input: func(ctx context.Context, n int) (*shard.Reader, error) {
			return archive.OpenShard(ctx, bucket, id, spec, n, shards[n])
		},
	}
}
