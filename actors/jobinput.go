package actors

import (
	"context"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/ingest"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// An input that takes longer than firstLook to read is spoken of, and then every
// readingInterval: a write each.
const (
	firstLook       = time.Second
	readingInterval = 5 * time.Second
)

// lookAtInput has the record tell how far a long input is.
func (j *job) lookAtInput(c actor.Context) {
	j.timers.after(c, readingInterval, "reading", j.lookAtInput)
	j.say(c)
}

// begun is the beginning of an input, cut into shards.
type begun struct {
	ingest.Begun
	counter *prompt.Counter
}

// ingested is the input of a job, cut into shards.
type ingested struct {
	rec     store.Record
	ready   func(begun) // hears of shards meanwhile; nil for nobody
	input   shard.Manifest
	counter *prompt.Counter
	groups  []byte         // of its rows, where they are dealt by them
	copies  *ingest.Copies // among them
	parts   []store.Part   // what earlier owners recorded
}

func (j *job) ingest(ctx context.Context, in *ingested) (err error) {
	if in.counter, err = j.counters.Counter(in.rec.Spec.Model, in.rec.Spec.System); err != nil {
		return err
	}
	reads, spec := j.reads(), in.rec.Spec
	reads.Compute = func(ctx context.Context) (func(), bool) {
		return func() { j.slots.compute.Leave(spec.Account) }, j.slots.compute.Enter(ctx, spec.Account, spec.Priority)
	}
	reads.Stream = j.slots.streamed
	reads.Turn = func(ctx context.Context) (func(), bool) { return j.turn(ctx, &spec) }
	if in.ready != nil {
		reads.Ready = func(b ingest.Begun) { in.ready(begun{b, in.counter}) }
	}
	if in.input, err = ingest.Run(ctx, reads, &in.rec, j.fence, in.counter); err != nil {
		return err
	}
	err = j.storage.WaitHere(ctx, func() (err error) {
		in.groups, err = ingest.ReadGroups(ctx, j.cfg.Blob, in.rec.Job.ID, in.input)
		return err
	})
	if err != nil {
		return err
	}
	err = j.storage.WaitHere(ctx, func() (err error) {
		in.copies, err = ingest.ReadCopies(ctx, j.cfg.Blob, in.rec.Job.ID, &in.rec.Spec, in.input)
		return err
	})
	if err != nil {
		return err
	}
	err = j.storage.WaitHere(ctx, func() error { return ingest.Reserve(ctx, j.cfg.Store, &in.rec, j.fence, in.input) })
	if err != nil {
		return err
	}
	return j.storage.WaitHere(ctx, func() (err error) {
		in.parts, err = j.cfg.Store.ListParts(ctx, in.rec.Job.ID)
		return err
	})
}

// onBegun takes in shards of an input that is still being read.
func (j *job) onBegun(c actor.Context, b begun) {
	switch {
	case j.owner != nil:
		j.owner.Append(b.Shards, b.Copies)
		j.serve(c)
	case j.begun == nil:
		j.begun = &b
		j.begin(c)
	default:
		j.begun.Shards, j.begun.Copies = append(j.begun.Shards, b.Shards...), append(j.begun.Copies, b.Copies...)
		j.begin(c)
	}
}

// begin has the first rows run while others are still being read, once an engine
// serves the model.
func (j *job) begin(c actor.Context) {
	if j.phase != jobStarts || j.begun == nil || j.whole || j.draining || j.updating || !j.served() {
		return
	}
	known := shard.Manifest{IDType: j.begun.IDType, Fields: j.begun.Fields, Rows: j.begun.About}
	if err := j.prepare(known, nil, nil, j.begun.counter); err != nil {
		j.broke(c, err)
		return
	}
	j.owner.Append(j.begun.Shards, j.begun.Copies)
	j.await(c)
}

// prepare makes what rows need that are to run.
func (j *job) prepare(known shard.Manifest, shards []shard.Info, parts []store.Part, counter *prompt.Counter) (err error) {
	if j.job, err = newJobContext(j.tasks.ctx, j.cfg, &j.rec, j.fence, known, counter); err != nil {
		return err
	}
	if j.ledger, err = assign.NewLedger(shards, parts); err == nil {
		j.owner, err = assign.NewOwner(shards, parts)
	}
	return err
}

func (j *job) onIngested(c actor.Context, in ingested, err error) {
	j.timers.cancel("reading")
	if err != nil {
		j.broke(c, err)
		return
	}
	j.input, j.whole = in.input, true
	if in.rec.Version >= j.rec.Version { // else it said what it waits for
		j.rec = in.rec
	}
	if j.owner != nil {
		j.onWhole(c, in)
		return
	}
	if spec := &j.rec.Spec; spec.Estimate {
		if !j.reads().Samples(spec, in.input.Size) {
			j.estimate(c)
			return
		}
		in.input = in.input.FirstRows(in.input.Size.SampleRows)
	}
	if err := j.prepare(in.input, in.input.Shards, in.parts, in.counter); err != nil {
		j.broke(c, err)
		return
	}
	j.owner.Group(in.groups)
	j.takeCopies(in.copies)
	j.await(c)
}

// onWhole goes on with a job of which rows run, now that all of its input is read.
func (j *job) onWhole(c actor.Context, in ingested) {
	ledger, err := assign.NewLedger(j.input.Shards, nil)
	switch {
	case err != nil:
		j.broke(c, err)
		return
	case len(in.parts) > 0: // another owner knew more
		j.broke(c, fmt.Errorf("%w: %d parts are recorded of an input that was being read", errForgotten, len(in.parts)))
		return
	case j.owner.Shards() > len(j.input.Shards):
		j.broke(c, fmt.Errorf("%d shards were told of %d", j.owner.Shards(), len(j.input.Shards)))
		return
	}
	j.owner.Append(j.input.Shards[j.owner.Shards():], nil)
	j.owner.Group(in.groups)
	j.takeCopies(in.copies)
	job := *j.job
	job.manifest = j.input
	j.job, j.ledger = &job, ledger
	if j.phase == jobWaits {
		j.proceed(c)
		return
	}
	j.serve(c)
	j.count(c)
}

// estimate ends the job with what its input alone tells.
func (j *job) estimate(c actor.Context) {
	rows, now := j.input.Rows, j.cfg.Clock()
	usd, e := ingest.Unsampled(&j.rec.Spec, rows-j.input.Copies, j.input.Size)
	j.tasks.run(c, "end the job", func(ctx context.Context) step {
		var rec store.Record
		err := j.storage.WaitHere(ctx, func() (err error) {
			rec, err = recordEstimate(ctx, j.cfg.Store, j.fence, rows, usd, e, now)
			return err
		})
		return func(c actor.Context) {
			if err != nil {
				j.broke(c, err)
				return
			}
			j.onJobSucceeded(c, rec)
		}
	})
}

// counted says in the record how many rows there are and how they are cut, once
// that is known.
func (j *job) counted() func(*store.Record) {
	if !j.whole {
		return func(*store.Record) {}
	}
	rows, shards, cut := j.input.Rows, j.ledger.Shards(), j.input.Cut()
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

// count records how many rows there are, where some ran before that was known, and
// then has parts recorded: nothing of an input is done before it is known to be
// one.
func (j *job) count(c actor.Context) {
	switch {
	case !j.whole || j.updating || j.results != nil || j.phase != jobRuns:
	case j.rec.Shards == 0:
		j.update(c, j.counted())
	default:
		j.startResults(c)
	}
}

// reads is what the input is read with.
func (j *job) reads() ingest.Config {
	cfg := j.cfg.ingest()
	cfg.Wait, cfg.Patient = j.storage.WaitHere, j.storage.Patient
	cfg.Downloads, cfg.DownloadsAt, cfg.Address = j.downloads, j.downloadsAt, j.address
	return cfg
}

// turn waits until the input of a job may be read.
func (j *job) turn(ctx context.Context, spec *rowmill.Spec) (leave func(), ok bool) {
	if !j.reading.enter(ctx, j.slots.read, spec) {
		return nil, false
	}
	return func() { j.slots.read.Leave(spec.Account) }, true
}
