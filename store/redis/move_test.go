package redis_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/store/redis"
	"github.com/rowmill/rowmill/store/storetest"
)

func TestMove(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "appendfsync everysec")
	var places atomic.Int64
	shared := func(*testing.T) storetest.Harness {
		config := redis.Config{URL: server.URL(), Prefix: fmt.Sprintf("move[%d]:", places.Add(1))} // the prefix would match other keys if it were used as a pattern
		return storetest.Harness{
			Open: func(t testing.TB) store.Store { return open(t, config) },
			Now:  func() time.Time { return clock(t, server) },
		}
	}
	embedded := func(t *testing.T) storetest.Harness {
		path := filepath.Join(t.TempDir(), "records.db")
		return storetest.Harness{
			Open: func(t testing.TB) store.Store {
				s := must.Get(bolt.Open(t.Context(), bolt.Config{Path: path}))(t)
				return s
			},
			Now: time.Now,
		}
	}
	for name, pair := range map[string][2]func(*testing.T) storetest.Harness{
		"Shared": {shared, shared}, "ToShared": {embedded, shared}, "ToEmbedded": {shared, embedded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.RunMove(t, pair[0], pair[1])
		})
	}
}

// TestClearLeavesOthersAlone removes the records under the first of two prefixes,
// beside keys of another program.
func TestClearLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "appendfsync everysec")
	s, others := open(t, redis.Config{URL: server.URL()}), open(t, redis.Config{URL: server.URL(), Prefix: "rowmill:two:"})
	command(t, server, "SET", "other:key", "1")
	for _, s := range []*redis.Store{s, others} {
		if _, _, err := s.Create(t.Context(), storetest.NewRecord("job", "a", "row"), nil); err != nil {
			t.Fatal(err)
		}
	}
	must.Succeed(t, s.Clear(t.Context()))
	if _, err := s.Get(t.Context(), "job"); !errors.Is(err, rowmill.ErrNotFound) {
		t.Errorf("a job after all was removed: %v", err)
	}
	if _, err := others.Get(t.Context(), "job"); err != nil {
		t.Errorf("the job of another prefix: %v", err)
	}
	if text := command(t, server, "GET", "other:key"); text != "1" {
		t.Errorf("another's key is %q", text)
	}
}
