package redis_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/internal/wait"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/redis"
	"github.com/rowmill/rowmill/store/replay"
	"github.com/rowmill/rowmill/store/storetest"
)

// TestLostTailIsWrittenAgain kills a server and cuts its file back, first to
// before the last parts and the end of a job, then to before the claim.
func TestLostTailIsWrittenAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "appendfsync everysec", "auto-aof-rewrite-percentage 0")
	s := replay.New(replay.Config{
		Store: open(t, redis.Config{URL: server.URL()}), Log: slog.New(slog.DiscardHandler), CheckInterval: time.Hour,
	})
	t.Cleanup(func() { s.Close() })
	must := func(err error) {
		t.Helper()
		must.Succeed(t, err)
	}
	session, err := s.OpenSession(t.Context(), "n", time.Hour)
	must(err)
	file := func() string {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(server.Dir(), "appendonlydir", "*.incr.aof"))
		if err != nil || len(files) != 1 {
			t.Fatalf("append-only files %v, %v", files, err)
		}
		return files[0]
	}
	size := func() int64 {
		t.Helper()
		wait.For(t, "the server has written all", func() bool { // a slow sync delays this
			return strings.Contains(command(t, server, "INFO", "persistence"), "aof_buffer_length:0\r")
		})
		info, err := os.Stat(file())
		must(err)
		return info.Size()
	}
	rows := int64(6)
	for _, from := range []string{"claim", "commit"} {
		id := "job-" + from
		_, _, err := s.Create(t.Context(), storetest.NewRecord(id, "a", "row"), nil)
		must(err)
		keep := size()
		rec, err := s.Claim(t.Context(), id, session, store.Claim{})
		must(err)
		f := store.Fence{JobID: id, Session: session, Epoch: rec.Epoch}
		_, err = s.Update(t.Context(), f, func(r *store.Record) error {
			r.Job.NumRows = &rows
			if r.Job.Status == rowmill.StatusRunning {
				return nil
			}
			return errors.Join(r.Job.Become(rowmill.StatusStarting, time.Now()), r.Job.Become(rowmill.StatusRunning, time.Now()))
		})
		must(err)
		must(s.CommitParts(t.Context(), f, []store.Part{{Key: id + "/1", Rows: 2, Totals: of(2)}}))
		if from == "commit" {
			keep = size()
		}
		must(s.CommitParts(t.Context(), f, []store.Part{{Key: id + "/2", Rows: 4, Totals: of(4)}}))
		must(s.ReplaceParts(t.Context(), f, store.Part{Key: id + "/m", Rows: 6, Totals: of(6), Complete: true}))
		_, err = s.Finish(t.Context(), f, func(r *store.Record) error { return r.Job.Become(rowmill.StatusSucceeded, time.Now()) })
		must(err)
		must(server.Kill())
		must(os.Truncate(file(), keep))
		must(server.Restart(t.Context()))
		if rec, err := s.Get(t.Context(), id); err != nil || rec.Job.Status.IsTerminal() {
			t.Fatalf("the end was not lost: %s, %v", rec.Job.Status, err)
		}
		must(s.CheckLostWrites(t.Context()))
		rec, err = s.Get(t.Context(), id)
		if err != nil || rec.Job.Status != rowmill.StatusSucceeded || rec.Job.RowsDone != 6 {
			t.Errorf("it is %s with %d rows, %v", rec.Job.Status, rec.Job.RowsDone, err)
		}
		if from == "claim" && rec.Epoch <= f.Epoch {
			t.Errorf("epoch %d after the lost epoch %d", rec.Epoch, f.Epoch)
		}
	}
	storetest.CheckConsistency(t, s.Store.(*redis.Store).Backend(), s.Store.(*redis.Store))
}

// TestNothingIsWrittenIntoAnEmptyServer removes all data while a node keeps writes of a
// job.
func TestNothingIsWrittenIntoAnEmptyServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "appendfsync everysec")
	s := replay.New(replay.Config{
		Store: open(t, redis.Config{URL: server.URL()}), Log: slog.New(slog.DiscardHandler), CheckInterval: time.Hour,
	})
	t.Cleanup(func() { s.Close() })
	if _, _, err := s.Create(t.Context(), storetest.NewRecord("job", "a", "row"), nil); err != nil {
		t.Fatal(err)
	}
	command(t, server, "FLUSHALL")
	if err := s.CheckLostWrites(t.Context()); !errors.Is(err, rowmill.ErrUnavailable) {
		t.Errorf("a check of an empty server: %v, want ErrUnavailable", err)
	}
	if left := command(t, server, "DBSIZE"); left != "0" {
		t.Errorf("%s keys were written", left)
	}
}
