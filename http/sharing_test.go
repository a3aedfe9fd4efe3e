package http

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// readsCounted counts the reads of jobs.
type readsCounted struct {
	store.Store
	reads atomic.Int64
}

func (s *readsCounted) Get(ctx context.Context, id string) (store.Record, error) {
	s.reads.Add(1)
	return s.Store.Get(ctx, id)
}

func (s *readsCounted) Head(ctx context.Context, id string) (*store.JobHead, error) {
	s.reads.Add(1)
	return s.Store.Head(ctx, id)
}

func (s *readsCounted) List(ctx context.Context, account string, limit int, cursor string) ([]*rowmill.Job, string, error) {
	s.reads.Add(1)
	return s.Store.List(ctx, account, limit, cursor)
}

// Callers of the same account who accept a shared answer get the same answer. Other
// callers do not get it.
func TestSharing(t *testing.T) {
	t.Parallel()
	counted := &readsCounted{}
	w, clock := setupClock(t, func(c *Config) { counted.Store, c.Store = c.Store, counted })
	id := w.submitted(`{"inputs":["a"]}`)
	same, stranger := w.newKey(`{"account":"default","role":"admin"}`), w.newKey(`{"account":"acme","role":"admin"}`)
	takes := []string{"Cache-Control", "max-age=1"}
	paths := []string{"", "/progress", "/timeline", "/errors/counts"}
	for i, p := range paths {
		paths[i] = "/v1/jobs/" + id + p
	}
	for _, path := range append(paths, "/v1/list-jobs?limit=5", "/v1/list-jobs?status=pending") {
		clock.pass(time.Second)
		before := counted.reads.Load()
		first := w.get(path, takes...).want(200)
		one := counted.reads.Load() - before
		var all sync.WaitGroup
		for range 20 {
			for _, headers := range [][]string{takes, append(same.header(), takes...)} {
				all.Go(func() {
					if got := w.get(path, headers...).want(200); string(got.text) != string(first.text) {
						t.Errorf("%s: %s and %s", path, first.text, got.text)
					}
				})
			}
		}
		all.Wait()
		if n := counted.reads.Load() - before; n != one || one < 1 {
			t.Errorf("%s: %d reads by 41 who ask, %d by one", path, n, one)
		}
		if w.get(path).want(200); counted.reads.Load() == before+one {
			t.Errorf("%s: an answer was shared with a request that does not accept it", path)
		}
		before = counted.reads.Load()
		if other := w.get(path, append(stranger.header(), takes...)...); other.status != 404 && string(other.text) != `{"jobs":[],"next_cursor":null,"scanned_all":true}`+"\n" {
			t.Errorf("%s: another account gets %d %s", path, other.status, other.text)
		}
		if counted.reads.Load() == before {
			t.Errorf("%s: another account got a shared answer", path)
		}
		clock.pass(time.Second - time.Millisecond)
		before = counted.reads.Load()
		if w.get(path, takes...).want(200); counted.reads.Load() != before {
			t.Errorf("%s: it was read again too early", path)
		}
		clock.pass(time.Millisecond)
		if w.get(path, takes...).want(200); counted.reads.Load() == before {
			t.Errorf("%s: an answer was shared for too long", path)
		}
	}
	before := counted.reads.Load()
	for n := range 3 { // errors are not shared
		w.get(fmt.Sprintf("/v1/jobs/%s/progress", unknownIDs[0]), takes...).wantError(404, "job_not_found", "")
		if got := counted.reads.Load() - before; got != int64(n+1) {
			t.Errorf("%d reads", got)
		}
	}
}

func TestSharing_RequestsThatAcceptIt(t *testing.T) {
	t.Parallel()
	counted := &readsCounted{}
	w, _ := setupClock(t, func(c *Config) { counted.Store, c.Store = c.Store, counted })
	path := "/v1/jobs/" + w.submitted(`{"inputs":["a"]}`)
	w.get(path, "Cache-Control", "max-age=1").want(200)
	for header, takes := range map[string]bool{
		"max-age=1": true, "MAX-AGE=3600": true, "max-stale, max-age=5": true,
		"max-age=0": false, "max-age": false, "max-age=": false, "max-age=-1": false, "max-age=1.5": false, "max-age=x": false,
		"no-cache": false, "max-age=5, no-cache": false, "no-store,max-age=5": false, "min-fresh=3": false, "": false,
	} {
		before := counted.reads.Load()
		if w.get(path, "Cache-Control", header).want(200); (counted.reads.Load() == before) != takes {
			t.Errorf("Cache-Control: %s: shared %v, want %v", header, !takes, takes)
		}
	}
}
