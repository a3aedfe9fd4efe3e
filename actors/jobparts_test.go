package actors

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/ingest"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
)

// A recordStore has a single record, and an error for changes to it.
type recordStore struct {
	store.Store
	rec      store.Record
	err      error
	released bool
}

func (s *recordStore) Get(context.Context, string) (store.Record, error) { return s.rec, nil }

func (s *recordStore) Release(context.Context, store.Fence) error {
	s.released = true
	return s.err
}

func (s *recordStore) Finish(_ context.Context, _ store.Fence, change func(*store.Record) error) (store.Record, error) {
	if s.err != nil {
		return store.Record{}, s.err
	}
	err := change(&s.rec)
	return s.rec, err
}

func (s *recordStore) Update(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	return s.Finish(ctx, f, change)
}

// processOver makes a process with a store, for the parts of a job.
func processOver(s *recordStore) *deps {
	cfg := Config{Store: s}.WithDefaults()
	return &deps{cfg: cfg, log: cfg.Logger, transport: &peerTransport{}, storage: storage.NewMonitor(storage.Config{
		Store: s, Node: "a", Clock: time.Now, Logger: cfg.Logger, Registerer: prometheus.NewRegistry(), Met: func(context.Context, error) {},
	})}
}

func owned(status rowmill.Status, epoch int64) store.Record {
	rec := store.Record{Job: rowmill.Job{ID: "job-1", Status: status}, Version: 2}
	rec.Epoch = epoch
	return rec
}

func TestTheJobReadsItsRecord(t *testing.T) {
	t.Parallel()
	s := &recordStore{rec: owned(rowmill.StatusRunning, 3)}
	o := newOwnership(processOver(s), s.rec, store.Fence{JobID: "job-1", Epoch: 3})
	if m := o.checkRecord(t.Context()); m != nil {
		t.Errorf("nothing has changed, but the job gets %v", m)
	}
	s.rec = owned(rowmill.StatusRunning, 4)
	if m, is := o.checkRecord(t.Context()).(jobError); !is || !errors.Is(m.err, rowmill.ErrLeaseLost) {
		t.Errorf("another node owns the job, which gets %v", m)
	}
	s.rec = owned(rowmill.StatusCancelled, 3)
	if m, is := o.checkRecord(t.Context()).(jobCancelled); !is {
		t.Errorf("a client has cancelled the job, which gets %v", m)
	}
	if rec := o.cancelledRecord(); rec.Job.Status != rowmill.StatusCancelled || o.rec.Job.Status != rowmill.StatusRunning {
		t.Errorf("the cancelled job is %s, and our copy is %s", rec.Job.Status, o.rec.Job.Status)
	}
}

// The record of a job marks its owner until the job is known to be harmless, but
// not while the job waits.
func TestTheRecordMarksASuspect(t *testing.T) {
	t.Parallel()
	rec := owned(rowmill.StatusPending, 3)
	rec.Claims = []store.Claim{{Process: "x", Epoch: 2}, {Process: "a-1", Epoch: 3, Alone: true}}
	s := &recordStore{rec: rec}
	o := newOwnership(processOver(s), rec, store.Fence{JobID: "job-1", Epoch: 3})
	marked := func(waits bool, before ...store.Claim) []store.Claim {
		r := store.Record{Epoch: 3, Claims: before}
		o.crashRiskUpdate(waits)(&r)
		return r.Claims
	}
	if got := marked(true, rec.Claims...); len(got) != 1 || got[0].Process != "x" {
		t.Errorf("a job that waits has the claims %+v, want the earlier owner", got)
	}
	if got := marked(false); len(got) != 1 || !got[0].Alone {
		t.Errorf("a job that continues after a wait is not suspected: %+v", got)
	}
	change := o.markOutlived()
	if change == nil {
		t.Fatal("outlived returns no change for a job that is alone")
	}
	must.Get(o.updateRecord(t.Context(), change))(t)
	if got := s.rec.Claims; len(got) != 2 || got[1].Alone || !rec.Claims[1].Alone {
		t.Errorf("the record has %+v, and our copy %+v", got, rec.Claims)
	}
	if o.markOutlived() != nil {
		t.Error("outlived returns a second change")
	}
	if got := marked(false); len(got) != 1 || got[0].Alone {
		t.Errorf("the job is still alone: %+v", got)
	}
	o.hasRecordedRows = true
	if got := marked(false); len(got) != 0 {
		t.Errorf("a job with rows done is suspected: %+v", got)
	}
}

func TestEndsOfAJob(t *testing.T) {
	t.Parallel()
	fence := store.Fence{JobID: "job-1", Epoch: 3}
	failure := rowmill.Failf(rowmill.CodeInternalError, "a fault")
	for _, test := range []struct {
		name   string
		status rowmill.Status
		err    error
		close  func(*jobEnder) any
		want   any // for an end only the type counts
	}{
		{"it fails", rowmill.StatusRunning, nil, nil, jobEnded{}},
		{"it was cancelled", rowmill.StatusCancelled, rowmill.ErrTerminal, nil, jobEnded{}},
		{"it has another owner", rowmill.StatusRunning, rowmill.ErrLeaseLost, nil, jobOver{id: "job-1"}},
		{"the store has forgotten the end", rowmill.StatusRunning, rowmill.ErrTerminal, nil, jobOver{id: "job-1", released: true, unsure: true}},
		{"it is given back", rowmill.StatusRunning, nil, func(e *jobEnder) any { return e.release(context.Background()) }, jobOver{id: "job-1", released: true}},
		{"giving it back fails", rowmill.StatusRunning, rowmill.ErrLeaseLost, func(e *jobEnder) any { return e.release(context.Background()) }, jobOver{id: "job-1", released: true, unsure: true}},
	} {
		s := &recordStore{rec: owned(test.status, 3), err: test.err}
		e := &jobEnder{deps: processOver(s), fence: fence, log: slog.New(slog.DiscardHandler), writes: &sync.WaitGroup{}}
		if test.close == nil {
			test.close = func(e *jobEnder) any { return e.recordJobFailure(t.Context(), failure, time.Now()) }
		}
		got := test.close(e)
		if ended, is := got.(jobEnded); is {
			if _, want := test.want.(jobEnded); !want || !ended.rec.Job.Status.IsTerminal() {
				t.Errorf("%s: the job has ended as %s", test.name, ended.rec.Job.Status)
			}
			continue
		}
		if got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestAnInputThatIsBeingRead(t *testing.T) {
	t.Parallel()
	in := &inputReader{}
	in.bufferShards(shardsArrived{EarlyShards: ingest.EarlyShards{Shards: []shard.ManifestEntry{{Rows: 5}}, Copies: make([]*roaring.Bitmap, 1), Fields: []string{"prompt"}, About: 90}})
	in.bufferShards(shardsArrived{EarlyShards: ingest.EarlyShards{Shards: []shard.ManifestEntry{{First: 5, Rows: 5}}, Copies: make([]*roaring.Bitmap, 1)}})
	if len(in.begun.Shards) != 2 || len(in.begun.Copies) != 2 {
		t.Errorf("%d shards and %d sets of copies are kept until rows can run", len(in.begun.Shards), len(in.begun.Copies))
	}
	if m := in.knownManifest(); m.Rows != 90 || len(m.Fields) != 1 {
		t.Errorf("the workers get %+v", m)
	}
	var rec store.Record
	if in.rowCountUpdate()(&rec); rec.Job.NumRows != nil || rec.Shards != 0 {
		t.Errorf("an input that is being read is counted: %+v", rec)
	}
	in.whole, in.shards, in.input.Rows = true, 2, 10
	if in.rowCountUpdate()(&rec); rec.Job.NumRows == nil || *rec.Job.NumRows != 10 || rec.Shards != 2 {
		t.Errorf("the input is counted as %v rows in %d shards", rec.Job.NumRows, rec.Shards)
	}
	in.input.Rows, in.shards = 7, 9
	if in.rowCountUpdate()(&rec); *rec.Job.NumRows != 10 || rec.Shards != 2 {
		t.Error("what the record says of the input is changed")
	}
}
