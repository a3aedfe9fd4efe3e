package actors_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// A faultyBucket fails while err is set: in all calls, or, if only is set, just in
// writes to keys with that text.
type faultyBucket struct {
	blob.Bucket
	only string
	err  atomic.Pointer[error]
	met  atomic.Int64
}

// fail makes calls fail with an error from now on; nil ends that.
func (b *faultyBucket) fail(err error) {
	if err == nil {
		b.err.Store(nil)
		return
	}
	b.err.Store(&err)
}

func (b *faultyBucket) fault(key string) error {
	err := b.err.Load()
	if err == nil || !strings.Contains(key, b.only) {
		return nil
	}
	b.met.Add(1)
	return fmt.Errorf("while testing: %w", *err)
}

func (b *faultyBucket) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	w, err := b.Bucket.Create(ctx, key, contentType)
	if err != nil {
		return nil, err
	}
	return &faultyWriter{w, b, key}, nil
}

func (b *faultyBucket) Open(ctx context.Context, key string) (blob.Object, error) {
	if err := b.fault(key); err != nil && b.only == "" {
		return nil, err
	}
	return b.Bucket.Open(ctx, key)
}

func (b *faultyBucket) Stat(ctx context.Context, key string) (blob.ObjectInfo, error) {
	if err := b.fault(key); err != nil && b.only == "" {
		return blob.ObjectInfo{}, err
	}
	return b.Bucket.Stat(ctx, key)
}

func (b *faultyBucket) DeletePrefix(ctx context.Context, prefix string) error {
	if err := b.fault(prefix); err != nil && b.only == "" {
		return err
	}
	return b.Bucket.DeletePrefix(ctx, prefix)
}

type faultyWriter struct {
	blob.Writer
	bucket *faultyBucket
	key    string
}

func (w *faultyWriter) Write(p []byte) (int, error) {
	if err := w.bucket.fault(w.key); err != nil {
		return 0, err
	}
	return w.Writer.Write(p)
}

func (w *faultyWriter) Commit() (blob.ObjectInfo, error) {
	if err := w.bucket.fault(w.key); err != nil {
		return blob.ObjectInfo{}, err
	}
	return w.Writer.Commit()
}

// short is a patience that is shorter than every outage of these tests.
const short = 50 * time.Millisecond

// faulty makes the bucket of a node a faultyBucket.
func faulty(only string) (*faultyBucket, func(*actors.Config)) {
	b := &faultyBucket{only: only}
	return b, func(c *actors.Config) {
		b.Bucket = c.Blob
		c.Blob, c.StoragePatience = b, short
	}
}

func says(parts ...string) func(store.Record) bool {
	return func(r store.Record) bool {
		for _, part := range parts {
			if !strings.Contains(r.Job.Message, part) {
				return false
			}
		}
		return true
	}
}

// outlast waits for many times the patience and requires that the job is not over.
func (b *rig) outlast(id string) {
	b.t.Helper()
	time.Sleep(20 * short)
	if rec := b.await(id, func(store.Record) bool { return true }); rec.Job.Status.IsTerminal() {
		b.t.Fatalf("the job has ended %s: %+v", rec.Job.Status, rec.Job.FailureReason)
	}
}

// A job waits for a bucket that is unavailable or full, in each of its phases. Its
// message says so, and it continues afterwards without running a row again.
func TestAJobWaitsForTheBucket(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		only string
		err  error
		says string
		big  bool
	}{
		"full for parts":                 {"/parts/", syscall.ENOSPC, "has no room", false},
		"full at the first shard":        {"/input/", syscall.EDQUOT, "has no room", true},
		"full at the end":                {"/results/", syscall.ENOSPC, "has no room", false},
		"unavailable from the start":     {"", rowmill.ErrUnavailable, "cannot be used", true},
		"unavailable after the last row": {"/results/", rowmill.ErrUnavailable, "cannot be used", false},
		"read-only":                      {"/parts/", syscall.EROFS, "cannot be used", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T) {
				bucket, change := faulty(test.only)
				e := &scripted{answer: echo}
				b := setup(t, e, change)
				texts, spec := numbered(10), rowmill.Spec{}
				if spec.Inline = texts; test.big {
					spec = rowmill.Spec{Spooled: b.spool(texts)}
				}
				bucket.fail(test.err)
				id := b.submit(spec)
				b.await(id, says("Waiting for object storage", test.says, " since "))
				b.outlast(id)
				bucket.fail(nil)
				b.checkEcho(b.end(id), texts)
				if n := e.calls.Load(); n != 10 {
					t.Errorf("%d rows were sent for 10", n)
				}
			})
		})
	}
}

// A faultyStore refuses writes while it has an error, except renewals, like Redis
// at its memory limit.
type faultyStore struct {
	store.Store
	err atomic.Pointer[error]
}

func (s *faultyStore) fault() error {
	if err := s.err.Load(); err != nil {
		return fmt.Errorf("while testing: %w", *err)
	}
	return nil
}

func (s *faultyStore) Ping(ctx context.Context) error {
	if err := s.fault(); err != nil {
		return err
	}
	return s.Store.Ping(ctx)
}

func (s *faultyStore) Claim(ctx context.Context, job, session string, by store.Claim) (store.Record, error) {
	if err := s.fault(); err != nil {
		return store.Record{}, err
	}
	return s.Store.Claim(ctx, job, session, by)
}

func (s *faultyStore) Update(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	if err := s.fault(); err != nil {
		return store.Record{}, err
	}
	return s.Store.Update(ctx, f, change)
}

func (s *faultyStore) Finish(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	if err := s.fault(); err != nil {
		return store.Record{}, err
	}
	return s.Store.Finish(ctx, f, change)
}

func (s *faultyStore) CommitParts(ctx context.Context, f store.Fence, parts []store.Part) error {
	if err := s.fault(); err != nil {
		return err
	}
	return s.Store.CommitParts(ctx, f, parts)
}

// A record store that refuses writes for a long time costs no job: neither a
// running job, nor one that is submitted meanwhile.
func TestJobsWaitForTheRecords(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"out of memory":       fmt.Errorf("%w: the Redis server has reached its maxmemory", rowmill.ErrFull),
		"a read-only replica": fmt.Errorf("%w: the Redis server is a read-only replica", rowmill.ErrUnavailable),
		"a full disk":         syscall.ENOSPC,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T) {
				records := &faultyStore{}
				e := &scripted{answer: echo}
				b := setup(t, e, func(c *actors.Config) {
					records.Store = c.Store
					c.Store, c.StoragePatience = records, short
				})
				texts := numbered(10)
				begin := make(chan struct{})
				e.answer = func(ctx context.Context, row string, try int) (engine.Reply, error) {
					<-begin
					return echo(ctx, row, try)
				}
				id := b.submit(rowmill.Spec{Inline: texts})
				b.await(id, func(store.Record) bool { return e.calls.Load() > 0 })
				records.err.Store(&err)
				close(begin)
				b.await(id, func(store.Record) bool { _, away := b.system.StorageMonitor().RecordsOutage(); return away })
				later := b.submit(rowmill.Spec{Inline: texts})
				b.outlast(id)
				b.outlast(later)
				records.err.Store(nil)
				b.checkEcho(b.end(id), texts)
				b.checkEcho(b.end(later), texts)
				if n := e.calls.Load(); n != 20 {
					t.Errorf("%d rows were sent for 20", n)
				}
			})
		})
	}
}

// If only the owner cannot use the bucket, it gives its job to another node, and
// claims no job until it can use the bucket again. No row runs again.
func TestAnOwnerThatAloneLosesTheBucketHandsOver(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		bucket, change := faulty("")
		owner := b.join(net, "owner", nil, change)
		worker := b.join(net, "worker", &scripted{answer: slowly(5 * time.Millisecond)}, func(c *actors.Config) { c.Ownership.OwnsNone = true })
		texts := numbered(1000)
		id := b.submitTo(owner, rowmill.Spec{Spooled: b.spool(texts)})
		first := b.await(id, func(r store.Record) bool { return r.Job.RowsDone > 100 })
		other := b.join(net, "other", nil)
		bucket.fail(rowmill.ErrUnavailable)
		rec := b.end(id)
		b.checkEcho(rec, texts)
		if rec.Session == first.Session {
			t.Error("the job has its first owner")
		}
		if n := owner.figure(t, "rowmill_storage_handovers_total"); n != 1 {
			t.Errorf("%v jobs were handed over", n)
		}
		ranOnce(t, texts, worker)

		next := b.submitTo(owner, rowmill.Spec{Spooled: b.spool(texts[:100])})
		if rec := b.end(next); rec.Session == first.Session {
			t.Error("the next job was claimed by the node that cannot use the bucket")
		}
		bucket.fail(nil)
		if err := other.system.Stop(t.Context()); err != nil { // else this node could claim the next job, and no test node would reach it
			t.Fatal(err)
		}
		other.gone.Store(true)
		net.tell()
		b.await(id, func(store.Record) bool { return owner.figure(t, "rowmill_storage_away", "objects") == 0 })
		b.checkEcho(b.end(b.submitTo(owner, rowmill.Spec{Inline: texts[:10]})), texts[:10])
	})
}

// If no node can use the bucket, jobs stay with their owners and wait.
func TestABucketThatAllHaveLostIsWaitedFor(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		bucket, change := faulty("")
		patient := func(c *actors.Config) { c.Blob, c.StoragePatience = bucket, 4*time.Second } // longer than the time in which both nodes notice the outage
		one := b.join(net, "one", &scripted{answer: slowly(5 * time.Millisecond)}, change, patient)
		two := b.join(net, "two", &scripted{answer: slowly(5 * time.Millisecond)}, patient)
		texts := numbered(1000)
		id := b.submitTo(one, rowmill.Spec{Spooled: b.spool(texts)})
		first := b.await(id, func(r store.Record) bool { return r.Job.RowsDone > 100 })
		bucket.fail(rowmill.ErrUnavailable)
		b.await(id, says("Waiting for object storage"))
		b.outlast(id)
		bucket.fail(nil)
		rec := b.end(id)
		b.checkEcho(rec, texts)
		ranOnce(t, texts, one, two)
		if rec.Epoch != first.Epoch {
			t.Errorf("the job has gone through %d owners", rec.Epoch)
		}
	})
}

// If only one worker cannot write its parts, its rows go to another worker.
func TestRowsLeaveAWorkerThatAloneCannotWrite(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		bucket, change := faulty("/parts/") // as with a full disk for unfinished parts
		owner := b.join(net, "owner", &scripted{answer: slowly(20 * time.Millisecond)}, func(c *actors.Config) { c.StoragePatience = short })
		full := b.join(net, "full", &scripted{answer: slowly(20 * time.Millisecond)}, change, func(c *actors.Config) { c.Ownership.OwnsNone = true })
		texts := numbered(2000)
		id := b.submitTo(owner, rowmill.Spec{Spooled: b.spool(texts)})
		b.await(id, func(store.Record) bool { return full.engine.calls.Load() > 100 })
		bucket.fail(syscall.ENOSPC)
		b.checkEcho(b.end(id), texts)
		if again := runs(texts, owner, full); again > 600 { // 8 at a time, 20 ms each, for less than a second
			t.Errorf("%d rows were run again, more than a worker starts while nothing is committed", again)
		}
	})
}

// A download waits for the bucket and keeps its bytes, because it cannot start
// again.
func TestADownloadIsHeldWhileTheDiskIsFull(t *testing.T) {
	t.Parallel()
	bucket, change := faulty("/parts/")
	b := setup(t, &scripted{answer: echo}, change)
	texts := numbered(100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "text")
		for _, text := range texts {
			fmt.Fprintln(w, text)
		}
	}))
	defer server.Close()
	bucket.only = "/input/shard"
	bucket.fail(syscall.ENOSPC)
	id := b.submit(rowmill.Spec{URL: server.URL, ColumnChoice: rowmill.ColumnChoice{Column: "text"}})
	b.await(id, says("has no room"))
	b.outlast(id)
	bucket.fail(nil)
	b.checkEcho(b.end(id), texts)
}

// A cancel ends a job that waits, and a node that stops does not wait for the job.
func TestCancelAndStopWhileTheBucketIsAway(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		bucket, change := faulty("")
		b := setup(t, &scripted{answer: echo}, change, func(c *actors.Config) { c.DrainTimeout = 200 * time.Millisecond })
		bucket.fail(rowmill.ErrUnavailable)
		cancelled, left := b.submit(rowmill.Spec{Spooled: "spooled/none"}), b.submit(rowmill.Spec{Spooled: "spooled/none"})
		b.await(cancelled, says("Waiting for object storage"))
		b.await(left, says("Waiting for object storage"))
		must.Get(b.store.Cancel(t.Context(), cancelled, time.Now(), func(*store.Record) {}))(t)
		b.system.NotifyCancelled(cancelled)
		began := time.Now()
		_ = b.system.Stop(context.Background()) // the error says that some rows were not drained
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("stopping took %v", took)
		}
		orphans, err := b.store.Orphans(t.Context(), 10)
		if err != nil || len(orphans) != 1 || orphans[0].JobID != left {
			t.Errorf("orphans are %+v (%v), want the job that waits", orphans, err)
		}
	})
}
