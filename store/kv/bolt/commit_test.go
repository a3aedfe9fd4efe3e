package bolt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store/kv"
)

const tableValues kv.Table = "values"

func openHere(t testing.TB) *Backend {
	t.Helper()
	s := must.Get(Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "records.db")}))(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// gate blocks the committer until release is called.
func gate(s *Backend) (release func()) {
	entered, leave, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Update(context.Background(), func(kv.Tx) error {
			close(entered)
			<-leave
			return nil
		})
	}()
	<-entered
	return func() { close(leave); <-done }
}

// waiting waits until n writes are queued.
func waiting(s *Backend, n int) {
	for {
		s.commits.mu.Lock()
		queued := len(s.commits.queue)
		s.commits.mu.Unlock()
		if queued == n {
			return
		}
	}
}

// commits returns the number of transactions of the file.
func commits(t testing.TB, s *Backend) (n int) {
	t.Helper()
	must.Succeed(t, s.View(t.Context(), func(t kv.Tx) error { n = t.(*tx).btx.ID(); return nil }))
	return n
}

func TestWritesShareACommit(t *testing.T) {
	t.Parallel()
	s := openHere(t)
	before := commits(t, s)
	release := gate(s)
	boom := errors.New("boom")
	var wg sync.WaitGroup
	var ran atomic.Int32
	for i := range 40 {
		wg.Go(func() {
			key := fmt.Appendf(nil, "k%d", i)
			err := s.Update(t.Context(), func(t kv.Tx) error {
				ran.Add(1)
				switch i {
				case 7: // fails before it writes
					return boom
				case 13: // fails after its write
					t.Put(tableValues, key, key)
					return boom
				case 21:
					panic("before it writes")
				case 29:
					t.Put(tableValues, key, key)
					panic("half way")
				}
				t.Put(tableValues, key, key)
				return nil
			})
			switch i {
			case 7, 13:
				if !errors.Is(err, boom) {
					t.Errorf("write %d: %v, want its own error", i, err)
				}
			case 21, 29:
				if err == nil || !strings.Contains(err.Error(), "panic at ") {
					t.Errorf("write %d: %v, want its panic", i, err)
				}
			default:
				if err != nil {
					t.Errorf("write %d: %v", i, err)
				}
			}
		})
	}
	waiting(s, 40)
	release()
	wg.Wait()
	must.Succeed(t, s.View(t.Context(), func(tx kv.Tx) error {
		for i := range 40 {
			value, err := tx.Get(tableValues, fmt.Appendf(nil, "k%d", i))
			if err != nil {
				return err
			}
			stored := value != nil
			failed := i == 7 || i == 13 || i == 21 || i == 29
			if stored == failed {
				t.Errorf("write %d: stored %v", i, stored)
			}
		}
		return nil
	}))
	if got := commits(t, s) - before; got != 1 {
		t.Errorf("%d commits, want 1", got)
	}
	if n := ran.Load(); n != 40 {
		t.Errorf("writes ran %d times", n)
	}
}

func TestBatchIsBounded(t *testing.T) {
	t.Parallel()
	s := openHere(t)
	s.commits.maxBatch = 4
	release := gate(s)
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			if err := s.Update(t.Context(), func(t kv.Tx) error { t.Put(tableValues, []byte{byte(i)}, nil); return nil }); err != nil {
				t.Errorf("write: %v", err)
			}
		})
	}
	waiting(s, 10)
	before := commits(t, s)
	release()
	wg.Wait()
	if got := commits(t, s) - before; got != 3 {
		t.Errorf("ten writes in batches of four took %d commits, want 3", got)
	}
	must.Succeed(t, s.View(t.Context(), func(tx kv.Tx) error {
		n := 0
		for range tx.Scan(kv.Range{Table: tableValues}) {
			n++
		}
		if n != 10 {
			t.Errorf("%d values, want 10", n)
		}
		return nil
	}))
}

func TestContextEndsTheWait(t *testing.T) {
	t.Parallel()
	s := openHere(t)
	release := gate(s)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- s.Update(ctx, func(kv.Tx) error { t.Error("an abandoned write ran"); return nil })
	}()
	waiting(s, 1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("abandoned write: %v", err)
	}
	release()
	if err := s.Update(t.Context(), func(t kv.Tx) error { t.Put(tableValues, []byte("k"), nil); return nil }); err != nil {
		t.Errorf("the next write: %v", err)
	}
}

func TestCloseFailsQueuedWrites(t *testing.T) {
	t.Parallel()
	s := openHere(t)
	release := gate(s)
	done := make(chan error)
	go func() { done <- s.Update(t.Context(), func(kv.Tx) error { return nil }) }()
	waiting(s, 1)
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	for { // until Close has begun
		s.commits.mu.Lock()
		begun := s.commits.closed
		s.commits.mu.Unlock()
		if begun {
			break
		}
	}
	release()
	if err := <-done; !errors.Is(err, kv.ErrClosed) {
		t.Errorf("the write that waited: %v", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("close: %v", err)
	}
	if err := s.Update(t.Context(), func(kv.Tx) error { return nil }); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("a write after close: %v", err)
	}
}

// TestReadsCostNoSync checks that updates without writes commit nothing.
func TestReadsCostNoSync(t *testing.T) {
	t.Parallel()
	s := openHere(t)
	before := commits(t, s)
	for range 10 {
		must.Succeed(t, s.Update(t.Context(), func(kv.Tx) error { return nil }))
	}
	if got := commits(t, s); got != before {
		t.Errorf("%d commits, want none", got-before)
	}
}

// TestFailedSyncStopsWrites checks that a failed sync stops all writes, and that a failed write
// does not.
func TestFailedSyncStopsWrites(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err    error
		broken bool
	}{
		"write":       {&fs.PathError{Op: "write", Path: "records.db", Err: syscall.ENOSPC}, false},
		"grow":        {errors.New("file resize error: truncate: file too large"), false},
		"sync":        {syscall.EIO, true},
		"sync growth": {errors.New("file sync error: input/output error"), true},
	} {
		if got := isSyncError(tt.err); got != tt.broken {
			t.Errorf("%s: broken %v, want %v", name, got, tt.broken)
		}
	}
	s := openHere(t)
	own := syscall.EIO // a write's own error is not an error of the file
	if err := s.Update(t.Context(), func(t kv.Tx) error { t.Put(tableValues, []byte("k"), nil); return own }); !errors.Is(err, own) {
		t.Errorf("own error: %v", err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	// A panic inside the database itself.
	if err := s.commits.update(func(*bbolt.Tx) error { panic("page 7 is torn") }); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("panic: %v", err)
	}
	for range 2 {
		if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), s.config.Path) {
			t.Errorf("ping of a broken store: %v", err)
		}
	}
}
