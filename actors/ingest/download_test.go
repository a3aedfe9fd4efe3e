package ingest

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// newDownloads returns the Downloads of a node. wanted decides which inputs are wanted;
// nil means all.
func newDownloads(t *testing.T, wanted func(job string) bool) *Downloads {
	t.Helper()
	var all sync.WaitGroup
	s := NewDownloads(DownloadsConfig{
		All:    &all,
		Wanted: func(_ context.Context, job string) bool { return wanted == nil || wanted(job) },
		Ended:  func(string, bool, error) {},
	})
	t.Cleanup(func() {
		s.Stop()
		all.Wait()
	})
	return s
}

// A slowServer sends a file in a given time.
type slowServer struct {
	file  string
	takes time.Duration
	err   error
	calls int
	ended time.Time
}

func (s *slowServer) Fetch(ctx context.Context, _ string, w io.Writer) (int64, error) {
	s.calls++
	defer func() { s.ended = time.Now() }()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(s.takes):
	}
	n, err := io.WriteString(w, s.file)
	return int64(n), errors.Join(err, s.err)
}

// lose starts a run whose job is lost before the download ends.
func (r *rig) lose(t *testing.T, rec *store.Record, fence store.Fence) {
	t.Helper()
	ctx, lose := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, lose)
	if _, err := Run(ctx, r.Config, rec, fence, tokenCounter(t, &rec.Spec, words{})); !errors.Is(err, context.Canceled) {
		t.Fatalf("error = %v, want that of the context", err)
	}
}

// started records that a node has started the download.
func (r *rig) started(t *testing.T, rec *store.Record, fence store.Fence, address string) {
	t.Helper()
	*rec = must.Get(r.store.Update(t.Context(), fence, func(rec *store.Record) error {
		now := time.Now()
		rec.DownloadStarted, rec.Downloader = &now, address
		return nil
	}))(t)
}

// takeOver makes another session own the job.
func (r *rig) takeOver(t *testing.T, job string) (*store.Record, store.Fence) {
	t.Helper()
	must.Succeed(t, r.store.CloseSession(t.Context(), r.session))
	r.session = must.Get(r.store.OpenSession(t.Context(), "node", time.Hour))(t)
	rec := must.Get(r.store.Claim(t.Context(), job, r.session, store.Claim{}))(t)
	return &rec, store.Fence{JobID: job, Session: r.session, Epoch: rec.Epoch}
}

// A node that loses a job continues its download, and the next owner, on the same or
// another node, finds the input.
func TestRun_ADownloadOutlivesTheLease(t *testing.T) {
	for name, same := range map[string]bool{"the same node": true, "another node": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := setup(t)
				r.Address = "10.0.0.1:7947"
				server := &slowServer{file: "name\nAnn\nBob\n", takes: 10 * time.Second}
				r.Downloader = server
				rec, fence := r.job(t, rowmill.Spec{URL: "https://files.test/rows.csv"})
				r.lose(t, rec, fence)
				rec, fence = r.takeOver(t, rec.Job.ID)
				if !same {
					first := r.Downloads
					r.Downloads, r.Address = newDownloads(t, nil), "10.0.0.2:7947"
					r.DownloadsAt = func(_ context.Context, address, job string) (bool, error) {
						if address != "10.0.0.1:7947" {
							t.Errorf("%q is asked", address)
						}
						return first.Running(job), nil
					}
				}
				m, err := r.run(t, rec, fence)
				if err != nil || !slices.Equal(r.texts(t, rec, m), []string{"Ann", "Bob"}) || server.calls != 1 {
					t.Errorf("%+v, %v after %d downloads, want the rows of the first", m, err, server.calls)
				}
				if rec.DownloadFinished == nil || rec.Downloader != "10.0.0.1:7947" {
					t.Errorf("the record says %+v", rec)
				}
			})
		})
	}
}

// The next owner on the same node gets the error of the download.
func TestRun_AFailedDownloadIsTheNextOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		r.Downloader = &slowServer{takes: 10 * time.Second, err: rowmill.Failf(rowmill.CodeDownloadFailed, "The connection broke.")}
		rec, fence := r.job(t, rowmill.Spec{URL: "https://files.test/rows.csv"})
		r.lose(t, rec, fence)
		rec, fence = r.takeOver(t, rec.Job.ID)
		_, err := r.run(t, rec, fence)
		fails(t, err, rowmill.CodeDownloadFailed, "The connection broke.")
	})
}

// The owner waits for a silent node as long as that node may be alive, and for a node
// that reports its download until the download ends.
func TestRun_WaitsForADownloadElsewhere(t *testing.T) {
	silent := errors.New("no answer")
	for name, c := range map[string]struct {
		say    func(after time.Duration) (bool, error)
		stored time.Duration // when the input is stored; 0: never
		fails  time.Duration // when the job fails
	}{
		"it does not":             {say: func(time.Duration) (bool, error) { return false, nil }},
		"it does for long":        {say: func(time.Duration) (bool, error) { return true, nil }, stored: 40 * time.Minute},
		"it is silent":            {say: func(time.Duration) (bool, error) { return false, silent }, fails: 30 * time.Second},
		"it is silent and stores": {say: func(time.Duration) (bool, error) { return false, silent }, stored: 29 * time.Second},
		"it falls silent": {say: func(after time.Duration) (bool, error) {
			if after < time.Minute {
				return true, nil
			}
			return false, silent
		}, fails: 89 * time.Second},
		"it stops": {say: func(after time.Duration) (bool, error) { return after < time.Minute, nil }, fails: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := setup(t)
				rec, fence := r.job(t, rowmill.Spec{URL: "https://files.test/rows.csv"})
				r.started(t, rec, fence, "10.0.0.9:7947")
				began := time.Now()
				r.Silence = 30 * time.Second
				r.DownloadsAt = func(context.Context, string, string) (bool, error) { return c.say(time.Since(began)) }
				if raw := layout.RawInputKey(rec.Job.ID); c.stored > 0 {
					time.AfterFunc(c.stored, func() { r.put(t, raw, "name\nAnn\n") })
				}
				_, err := r.run(t, rec, fence)
				if c.stored > 0 {
					if took := time.Since(began); err != nil || took > c.stored+2*time.Second || r.file.calls != 0 {
						t.Errorf("%v after %v and %d downloads, want the input after %v", err, took, r.file.calls, c.stored)
					}
					return
				}
				fails(t, err, rowmill.CodeDownloadFailed, "only once")
				if took := time.Since(began); took != c.fails {
					t.Errorf("failed after %v, want %v", took, c.fails)
				}
			})
		})
	}
}

// A download stops when its job is over.
func TestRun_AnUnwantedDownloadStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		began := time.Now()
		server := &slowServer{takes: time.Hour}
		r.Downloader = server
		r.Downloads = newDownloads(t, func(string) bool { return time.Since(began) < time.Minute })
		rec, fence := r.job(t, rowmill.Spec{URL: "https://files.test/rows.csv"})
		r.lose(t, rec, fence)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if took := server.ended.Sub(began); took != time.Minute || !r.Downloads.IsIdle() {
			t.Errorf("the download ended after %v, want its end when it is no longer wanted", took)
		}
	})
}

// If a server breaks the connection after our storage stalled it for long, the error
// says so.
func TestRun_ABrokenDownloadAfterAStall(t *testing.T) {
	for name, held := range map[string]time.Duration{"for long": time.Minute, "for a moment": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := setup(t)
				r.Bucket = &hooked{Bucket: r.Bucket, write: func() { time.Sleep(held) }}
				r.Downloader = &slowServer{file: "PAR1" + strings.Repeat("x", 508), err: rowmill.Failf(rowmill.CodeDownloadFailed, "The connection broke.")}
				rec, fence := r.job(t, rowmill.Spec{URL: "https://files.test/rows.csv"})
				_, err := r.run(t, rec, fence)
				fails(t, err, rowmill.CodeDownloadFailed, "The connection broke.")
				if told := strings.Contains(err.Error(), "could not be used for 1m0s"); told != (held == time.Minute) {
					t.Errorf("held up for %v: %v", held, err)
				}
			})
		})
	}
}
