package redis_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

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
		config := redis.Config{URL: server.URL(), Prefix: fmt.Sprintf("move[%d]:", places.Add(1))} // a pattern, if it were taken for one
		return storetest.Harness{
			Open: func(t testing.TB) store.Store { return open(t, config) },
			Now:  func() time.Time { return clock(t, server) },
		}
	}
	embedded := func(t *testing.T) storetest.Harness {
		path := filepath.Join(t.TempDir(), "records.db")
		return storetest.Harness{
			Open: func(t testing.TB) store.Store {
				s, err := bolt.Open(t.Context(), bolt.Config{Path: path})
				if err != nil {
					t.Fatal(err)
				}
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

// What this version of the program does not know is not left behind in silence, and
// what is another's is left alone.
func TestMoveOfUnknownKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "appendfsync everysec")
	s := open(t, redis.Config{URL: server.URL()})
	none := func(store.Entry) error { return nil }
	set := func(key string) {
		t.Helper()
		if _, err := server.Command("SET", key, "1"); err != nil {
			t.Fatal(err)
		}
	}
	set("other:key")
	if err := s.Export(t.Context(), none); err != nil {
		t.Errorf("beside another's keys: %v", err)
	}
	set("rowmill:novelties:a")
	if err := s.Export(t.Context(), none); !errors.Is(err, store.ErrNewer) {
		t.Errorf("with a key of a newer version: %v", err)
	}
	if err := s.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Export(t.Context(), none); err != nil {
		t.Errorf("after it was cleared: %v", err)
	}
	if text, err := server.Command("GET", "other:key"); err != nil || text != "1" {
		t.Errorf("another's key is %q: %v", text, err)
	}
}
