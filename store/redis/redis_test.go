package redis_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/redis"
	"github.com/rowmill/rowmill/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a store that is closed with the test.
func open(t testing.TB, config redis.Config) *redis.Store {
	t.Helper()
	s, err := redis.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// clock reads a server's clock.
func clock(t testing.TB, server *redistest.Server) time.Time {
	t.Helper()
	text, err := server.Command("TIME")
	if err != nil {
		t.Fatal(err)
	}
	seconds, micros, _ := strings.Cut(text, "\n")
	at, err := strconv.ParseInt(seconds, 10, 64)
	part, bad := strconv.ParseInt(micros, 10, 64)
	if err := errors.Join(err, bad); err != nil {
		t.Fatal(err)
	}
	return time.Unix(at, part*1000)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	// The suite makes some ten thousand calls; what a sync costs is for the
	// benchmarks.
	server := redistest.Start(t, "appendfsync everysec")
	var places atomic.Int64
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		config := redis.Config{URL: server.URL(), Prefix: fmt.Sprintf("place%d:", places.Add(1))}
		return storetest.Harness{
			Open:    func(t testing.TB) store.Store { return open(t, config) },
			Advance: func(d time.Duration) { <-time.After(d) },
			Now:     func() time.Time { return clock(t, server) },
			Edit: func(t testing.TB, s store.Store, edit func(kind, id string, doc []byte) []byte) {
				t.Helper()
				if err := s.(*redis.Store).EditDocuments(t.Context(), edit); err != nil {
					t.Fatal(err)
				}
			},
			Sleeps: true,
			TTL:    time.Second,
		}
	})
}
