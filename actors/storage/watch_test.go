package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/store"
)

// A broken store fails with the error in err. A broken bucket also fails its writes with
// the error in writes.
type broken struct {
	store.Store
	err atomic.Pointer[error]
}

func set(p *atomic.Pointer[error], err error) {
	if err == nil {
		p.Store(nil)
		return
	}
	p.Store(&err)
}

func met(p *atomic.Pointer[error]) error {
	if err := p.Load(); err != nil {
		return fmt.Errorf("while testing: %w", *err)
	}
	return nil
}

func (b *broken) Ping(context.Context) error                        { return met(&b.err) }
func (b *broken) Release(context.Context, store.Fence) error        { return met(&b.err) }
func (b *broken) RenewSession(context.Context, string) error        { return nil }
func (b *broken) Get(context.Context, string) (store.Record, error) { return store.Record{}, nil }

type brokenBucket struct {
	blob.Bucket
	err, writes atomic.Pointer[error]
}

func (b *brokenBucket) Stat(context.Context, string) (blob.ObjectInfo, error) {
	if err := met(&b.err); err != nil {
		return blob.ObjectInfo{}, err
	}
	return blob.ObjectInfo{}, rowmill.ErrNotFound
}

func (b *brokenBucket) Delete(context.Context, string) error { return met(&b.err) }

func (b *brokenBucket) Create(context.Context, string, string) (blob.Writer, error) {
	return brokenWriter{b}, met(&b.err)
}

type brokenWriter struct{ b *brokenBucket }

func (w brokenWriter) Write(p []byte) (int, error) { return len(p), met(&w.b.writes) }
func (w brokenWriter) Commit() (blob.ObjectInfo, error) {
	return blob.ObjectInfo{}, errors.Join(met(&w.b.err), met(&w.b.writes))
}
func (brokenWriter) Abort() {}

type rig struct {
	*storage.Monitor
	store  *broken
	bucket *brokenBucket
	log    bytes.Buffer
	met    []error
	gauges *prometheus.Registry
}

func setup() *rig {
	r := &rig{store: &broken{}, bucket: &brokenBucket{}, gauges: prometheus.NewRegistry()}
	r.Monitor = storage.NewMonitor(storage.Config{
		Store: r.store, Bucket: r.bucket, Node: "a node", Patience: time.Minute, Clock: time.Now,
		Logger: slog.New(slog.NewTextHandler(&r.log, nil)), Registerer: r.gauges,
		Met: func(_ context.Context, err error) { r.met = append(r.met, err) },
	})
	return r
}

// write writes an object as the pipeline does.
func (r *rig) write(t *testing.T) func() error {
	return func() error {
		w, err := r.Bucket().Create(t.Context(), "k", "")
		if err == nil {
			_, err = w.Commit()
		}
		return err
	}
}

var faults = map[string]struct {
	err    error
	passes bool
	bounds bool // the wait ends after the patience
}{
	"away":                    {err: rowmill.ErrUnavailable, passes: true},
	"out of memory":           {err: rowmill.ErrFull, passes: true},
	"unknown outcome":         {err: store.ErrOutcomeUnknown, passes: true},
	"full disk":               {err: &os.PathError{Op: "write", Err: syscall.ENOSPC}, passes: true},
	"a quota":                 {err: syscall.EDQUOT, passes: true},
	"a failing disk":          {err: syscall.EIO, passes: true},
	"a read-only file system": {err: syscall.EROFS, passes: true},
	"a stale file handle":     {err: &os.PathError{Op: "write", Err: syscall.ESTALE}, passes: true},
	"permissions taken away":  {err: syscall.EACCES, passes: true},
	"too slow":                {err: context.DeadlineExceeded, passes: true},
	"refused":                 {err: syscall.ECONNREFUSED, passes: true},
	"nothing there":           {err: rowmill.ErrNotFound},
	"another version":         {err: rowmill.ErrConflict},
	"a job that is over":      {err: rowmill.ErrTerminal},
	"a job that is taken":     {err: rowmill.ErrLeaseLost},
	"taken, and away":         {err: fmt.Errorf("%w: %w", rowmill.ErrUnavailable, rowmill.ErrLeaseLost)},
	"a fault of the input":    {err: rowmill.Failf(rowmill.CodeRowQuota, "too many")},
	"a broken rule":           {err: rowmill.Invalid("cursor", "nonsense")},
	"a cost beyond a limit":   {err: &store.CostLimitError{}},
	"a damaged record":        {err: store.ErrDamaged},
	"a damaged part":          {err: errors.New("no Parquet"), bounds: true},
	"a file that was removed": {err: &os.PathError{Op: "chtimes", Err: syscall.ENOENT}, bounds: true},
	"a folder that is a file": {err: &os.PathError{Op: "open", Err: syscall.ENOTDIR}, bounds: true},
	"no address left":         {err: &net.OpError{Op: "dial", Err: syscall.EADDRNOTAVAIL}, passes: true},
}

func TestWait(t *testing.T) {
	t.Parallel()
	for name, test := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := setup()
				set(&r.bucket.writes, test.err)
				time.AfterFunc(3*time.Hour, func() { set(&r.bucket.writes, nil) })
				began, calls := time.Now(), 0
				err := r.Retry(t.Context(), func() error { calls++; return r.write(t)() })
				took := time.Since(began)
				switch {
				case storage.IsTransient(fmt.Errorf("while testing: %w", test.err)) != test.passes:
					t.Errorf("passing: %v", !test.passes)
				case test.passes && (err != nil || took < 3*time.Hour || took > 3*time.Hour+5*time.Second):
					t.Errorf("%v after %v, want it to wait until it passes", err, took)
				case test.bounds && (!errors.Is(err, test.err) || took < 50*time.Second || took > time.Minute+5*time.Second):
					t.Errorf("%v after %v, want the patience", err, took)
				case !test.passes && !test.bounds && (!errors.Is(err, test.err) || calls != 1):
					t.Errorf("%v after %d calls", err, calls)
				}
				if lines := strings.Count(r.log.String(), "\n"); test.passes && lines != 2 || !test.passes && lines != 0 {
					t.Errorf("%d lines in the log, want one of the begin and one of the end:\n%s", lines, &r.log)
				}
			})
		})
	}
}

// A waiting operation keeps the outage open, even if other calls succeed: a small object
// may fit on an almost full disk.
func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup()
		full := r.Monitor
		set(&r.bucket.writes, syscall.ENOSPC)
		done := make(chan error)
		go func() { done <- full.Retry(t.Context(), r.write(t)) }()
		time.Sleep(time.Minute)
		_, _ = r.Bucket().Stat(t.Context(), "k")
		outage, away := r.ObjectsOutage()
		if !away || !outage.Full || outage.Lasts != time.Minute {
			t.Errorf("%+v, %v", outage, away)
		}
		want := "Waiting for object storage, which has no room since " + outage.Since.Format(time.RFC3339) + ". The job goes on by itself."
		if got := outage.Message(); got != want || outage.Since.Location() != time.UTC {
			t.Errorf("message %q", got)
		}
		if _, away := r.RecordsOutage(); away {
			t.Error("the records are away too")
		}
		if err := testutil.GatherAndCompare(r.gauges, strings.NewReader(`
# HELP rowmill_storage_away 1 while storage cannot be used, by storage (records or objects).
# TYPE rowmill_storage_away gauge
rowmill_storage_away{storage="objects"} 1
rowmill_storage_away{storage="records"} 0
# HELP rowmill_storage_waiting Operations that wait for storage to come back, by storage (records or objects).
# TYPE rowmill_storage_waiting gauge
rowmill_storage_waiting{storage="objects"} 1
rowmill_storage_waiting{storage="records"} 0
`)); err != nil {
			t.Error(err)
		}
		set(&r.bucket.writes, nil)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if outage, away := r.ObjectsOutage(); away {
			t.Errorf("%+v after its end", outage)
		}
	})
}

// Probe finds the end of an outage that no operation waits for, and it writes if writes
// have failed.
func TestLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup()
		ctx := t.Context()
		set(&r.bucket.writes, syscall.ENOSPC)
		set(&r.store.err, rowmill.ErrFull)
		_ = r.write(t)()
		_ = r.Store().Release(ctx, store.Fence{})
		_ = r.Store().RenewSession(ctx, "s") // needs no room
		_, _ = r.Bucket().Stat(ctx, "k")
		for range 3 {
			r.Probe(ctx, time.Second)
		}
		if outage, away := r.ObjectsOutage(); !away || !outage.Full {
			t.Errorf("objects: %+v, %v", outage, away)
		}
		if outage, away := r.RecordsOutage(); !away || !outage.Full {
			t.Errorf("records: %+v, %v", outage, away)
		}
		set(&r.bucket.writes, nil)
		set(&r.store.err, nil)
		r.Probe(ctx, time.Second)
		if outage, away := r.ObjectsOutage(); away {
			t.Errorf("objects: %+v", outage)
		}
		if outage, away := r.RecordsOutage(); away {
			t.Errorf("records: %+v", outage)
		}
		set(&r.bucket.err, rowmill.ErrUnavailable)
		r.Probe(ctx, time.Minute) // both were used just now
		if _, away := r.ObjectsOutage(); away {
			t.Error("it was looked although they had just been used")
		}
		time.Sleep(2 * time.Minute)
		r.Probe(ctx, time.Minute)
		if _, away := r.ObjectsOutage(); !away {
			t.Error("a look has not found that the objects are away")
		}
	})
}

// During an outage, calls for requests fail at once, except reads of a full bucket.
func TestRequests(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err           error
		reads, writes bool // fail at once
	}{
		"no outage": {nil, false, false}, "full": {syscall.ENOSPC, false, true}, "away": {rowmill.ErrUnavailable, true, true},
	} {
		r := setup()
		if test.err != nil {
			set(&r.bucket.writes, test.err)
			_ = r.write(t)()
			set(&r.bucket.writes, nil) // the outage is known, and calls would succeed
		}
		refused := func(err error) bool {
			return err != nil && strings.Contains(err.Error(), "object storage could not be used for")
		}
		bucket := r.FailFastBucket()
		_, read := bucket.Stat(t.Context(), "k")
		_, write := bucket.Create(t.Context(), "k", "")
		if refused(read) != test.reads || refused(write) != test.writes || refused(bucket.Delete(t.Context(), "k")) != test.reads {
			t.Errorf("%s: a read: %v, a write: %v", name, read, write)
		}
	}
}

// RetryUnlessElsewhere ends once other nodes can use the storage that this node cannot, and only for
// objects.
func TestWaitHere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup()
		set(&r.bucket.writes, rowmill.ErrUnavailable)
		set(&r.store.err, rowmill.ErrUnavailable)
		time.AfterFunc(time.Minute, func() { r.SetUsableElsewhere(true) })
		time.AfterFunc(time.Hour, func() { set(&r.store.err, nil) })
		began := time.Now()
		if err := r.RetryUnlessElsewhere(t.Context(), r.write(t)); !errors.Is(err, storage.ErrElsewhere) || time.Since(began) > time.Minute+5*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if err := r.RetryUnlessElsewhere(t.Context(), func() error { return r.Store().Release(t.Context(), store.Fence{}) }); err != nil || time.Since(began) < time.Hour {
			t.Errorf("records: %v after %v", err, time.Since(began))
		}
	})
}

// After BeginDrain RetryUnlessElsewhere waits neither for objects nor after an unknown error,
// such as a missing part, but for records.
func TestBeginDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup()
		set(&r.bucket.writes, rowmill.ErrUnavailable)
		set(&r.store.err, rowmill.ErrUnavailable)
		time.AfterFunc(10*time.Second, r.BeginDrain)
		time.AfterFunc(time.Hour, func() { set(&r.store.err, nil) })
		began := time.Now()
		missing := func() error { return errors.New("a part is missing") }
		for name, do := range map[string]func() error{"objects": r.write(t), "unknown": missing} {
			if err := r.RetryUnlessElsewhere(t.Context(), do); !errors.Is(err, storage.ErrElsewhere) || time.Since(began) > 20*time.Second {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
		}
		if err := r.RetryUnlessElsewhere(t.Context(), func() error { return r.Store().Release(t.Context(), store.Fence{}) }); err != nil || time.Since(began) < time.Hour {
			t.Errorf("records: %v after %v", err, time.Since(began))
		}
	})
}

// The cancelled request of a client says nothing about the storage.
func TestACancelledCallIsIgnored(t *testing.T) {
	t.Parallel()
	r := setup()
	set(&r.bucket.writes, fmt.Errorf("%w: %w", rowmill.ErrUnavailable, context.Canceled))
	_ = r.write(t)()
	if outage, away := r.ObjectsOutage(); away {
		t.Errorf("%+v", outage)
	}
}
