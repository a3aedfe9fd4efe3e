package bolt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.etcd.io/bbolt"

	"github.com/rowmill/rowmill/internal/panics"
	"github.com/rowmill/rowmill/store/kv"
)

// The states of a write.
const (
	writeWaits     = iota // the write is queued; its caller may still give up
	writeTaken            // the write is part of a commit; its caller waits for the outcome
	writeAbandoned        // the caller's context ended before the write was taken
)

// A queuedWrite is the transaction of one caller, which becomes part of a commit.
type queuedWrite struct {
	run   func(kv.Tx) error
	state atomic.Int32
	err   error
	done  chan struct{}
}

// A committer combines writes. Writes that arrive during a commit share the next
// commit; an idle store commits at once.
type committer struct {
	db       *bbolt.DB
	sessions *kv.Sessions
	clock    func() time.Time
	maxBatch int
	log      *slog.Logger
	latency  prometheus.Histogram
	size     prometheus.Histogram

	mu          sync.Mutex
	filled      sync.Cond // signals that queue has grown or closed was set
	queue       []*queuedWrite
	closed      bool
	broken      error     // set after a failed sync, never cleared
	lastSuccess time.Time // time of the last successful commit
	stopped     chan struct{}
}

func startCommitter(db *bbolt.DB, sessions *kv.Sessions, config Config) *committer {
	metrics := promauto.With(config.Metrics)
	c := &committer{
		db:       db,
		sessions: sessions,
		clock:    config.Clock,
		maxBatch: config.MaxBatch,
		log:      config.Logger,
		latency: metrics.NewHistogram(prometheus.HistogramOpts{
			Name:    "rowmill_store_commit_seconds",
			Help:    "Time of one commit of the embedded store.",
			Buckets: prometheus.ExponentialBuckets(0.0002, 2, 14), // 0.2 ms to 1.6 s
		}),
		size: metrics.NewHistogram(prometheus.HistogramOpts{
			Name:    "rowmill_store_commit_writes",
			Help:    "Writes that shared one commit of the embedded store.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		stopped: make(chan struct{}),
	}
	c.filled.L = &c.mu
	go c.loop()
	return c
}

// submit queues a write and waits for its outcome. When ctx ends before the write is taken
// into a commit, run is not called. Once the write is taken, submit ignores ctx and waits
// for the outcome: when submit returns, run has returned.
func (c *committer) submit(ctx context.Context, run func(kv.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := &queuedWrite{run: run, done: make(chan struct{})}
	c.mu.Lock()
	if c.closed || c.broken != nil {
		defer c.mu.Unlock()
		if c.closed {
			return kv.ErrClosed
		}
		return c.broken
	}
	c.queue = append(c.queue, w)
	c.filled.Signal()
	c.mu.Unlock()

	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		if w.state.CompareAndSwap(writeWaits, writeAbandoned) {
			return ctx.Err()
		}
		<-w.done
		return w.err
	}
}

// loop commits batches until stop is called.
func (c *committer) loop() {
	defer close(c.stopped)
	for {
		batch, err := c.nextBatch()
		if len(batch) == 0 {
			return
		}
		if err != nil {
			finishWrites(batch, err)
			continue
		}
		c.commit(batch)
		// Callers that were just answered often have their next write ready. Let them
		// queue that write now, or it always misses the next commit.
		runtime.Gosched()
	}
}

// nextBatch waits for writes and takes a batch from the queue. The error is not nil when the
// batch can no longer be committed; the caller must answer its writes with this error.
func (c *committer) nextBatch() ([]*queuedWrite, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for len(c.queue) == 0 && !c.closed {
			c.filled.Wait()
		}
		if len(c.queue) == 0 {
			return nil, nil
		}
		n := min(len(c.queue), c.maxBatch)
		batch := make([]*queuedWrite, 0, n)
		for _, w := range c.queue[:n] {
			if w.state.CompareAndSwap(writeWaits, writeTaken) {
				batch = append(batch, w)
			}
		}
		c.queue = append(c.queue[:0:0], c.queue[n:]...)
		if len(batch) == 0 {
			continue
		}
		if c.closed {
			return batch, kv.ErrClosed
		}
		return batch, c.broken
	}
}

// stop fails the queued writes and returns after the present commit.
func (c *committer) stop() {
	c.mu.Lock()
	c.closed = true
	c.filled.Broadcast()
	c.mu.Unlock()
	<-c.stopped
}

// succeededWithin reports whether a commit succeeded at most d ago and no sync has
// failed since.
func (c *committer) succeededWithin(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed && c.broken == nil && !c.lastSuccess.IsZero() && c.clock().Sub(c.lastSuccess) < d
}

// errNothing makes bbolt roll back a transaction without writes, which avoids two syncs.
var errNothing = errors.New("nothing to commit")

// commit runs a batch in one bbolt transaction and answers all its writes. A failed write
// changes nothing. When the commit itself fails, each write gets a commit of its own, so
// that one write that is too large does not fail the others.
func (c *committer) commit(batch []*queuedWrite) {
	err := c.tryCommit(batch)
	if err != nil && len(batch) > 1 && c.canWrite() {
		for _, w := range batch {
			c.commit([]*queuedWrite{w})
		}
		return
	}
	finishWrites(batch, err)
}

// canWrite reports whether the file still accepts writes. It does not after a failed
// sync.
func (c *committer) canWrite() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken == nil
}

// finishWrites answers every write with its own error, or else with err.
func finishWrites(batch []*queuedWrite, err error) {
	for _, w := range batch {
		if w.err == nil {
			w.err = err
		}
		close(w.done)
	}
}

// tryCommit runs a batch in one bbolt transaction.
func (c *committer) tryCommit(batch []*queuedWrite) error {
	start := time.Now()
	err := c.update(func(btx *bbolt.Tx) error {
		wrote := false
		for _, w := range batch {
			t := &tx{btx: btx, sessions: c.sessions, now: c.clock()}
			if w.err = panics.Catch(func() error { return w.run(t) }); w.err != nil {
				continue
			}
			if _, w.err = t.WriteSet.All(); w.err != nil {
				continue
			}
			more, err := t.apply()
			if err != nil {
				return err
			}
			wrote = wrote || more
		}
		if !wrote {
			return errNothing
		}
		return nil
	})
	switch {
	case errors.Is(err, errNothing):
		return nil
	case err != nil:
		return err
	}
	c.latency.Observe(time.Since(start).Seconds())
	c.size.Observe(float64(len(batch)))
	c.mu.Lock()
	c.lastSuccess = c.clock()
	c.mu.Unlock()
	return nil
}

// update calls db.Update. After an error that leaves the state of the file unknown, it
// marks the committer as broken.
func (c *committer) update(run func(*bbolt.Tx) error) (err error) {
	var own error // error that run returned; the file is not the cause
	defer func() {
		if p := recover(); p != nil {
			err = c.refuseWrites(fmt.Errorf("record file %s: %w", c.db.Path(), damagedFileError(p)))
		}
	}()
	err = c.db.Update(func(btx *bbolt.Tx) error {
		own = run(btx)
		return own
	})
	switch {
	case err == nil || own != nil:
		return err
	case isSyncError(err):
		return c.refuseWrites(fmt.Errorf("record file %s could not be synced to disk; writes are refused until the process is restarted: %w", c.db.Path(), err))
	}
	return fmt.Errorf("write record file %s: %w", c.db.Path(), err)
}

// refuseWrites makes all later writes fail with err, because the state of the file is
// unknown.
func (c *committer) refuseWrites(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil {
		c.broken = err
		c.log.Error("record store refuses writes from now on", slog.Any("err", err))
	}
	return c.broken
}

// isSyncError distinguishes a failed sync from a failed write. bbolt returns the plain
// errno of fdatasync, and "file sync error" when it grows the file; a failed write is
// an *fs.PathError.
func isSyncError(err error) bool {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return false
	}
	var errno syscall.Errno
	return errors.As(err, &errno) || strings.HasPrefix(err.Error(), "file sync error")
}
