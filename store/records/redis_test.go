package records_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv/redis"
	"github.com/rowmill/rowmill/store/records"
	"github.com/rowmill/rowmill/store/storetest"
)

// clock returns the time of the server's clock.
func clock(t testing.TB, server *redistest.Server) time.Time {
	t.Helper()
	text, err := server.Command("TIME")
	if err != nil {
		t.Fatal(err)
	}
	seconds, micros, _ := strings.Cut(text, "\n")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	part, err := strconv.ParseInt(micros, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(at, part*1000)
}

func TestConformanceOnRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "appendfsync everysec")
	var places atomic.Int64
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		config := redis.Config{URL: server.URL(), Prefix: fmt.Sprintf("place%d:", places.Add(1))}
		return storetest.Harness{
			Open: func(t testing.TB) store.Store {
				e, err := redis.Open(t.Context(), config)
				if err != nil {
					t.Fatal(err)
				}
				return open(t, e)
			},
			Advance: func(d time.Duration) { <-time.After(d) },
			Now:     func() time.Time { return clock(t, server) },
			Edit: func(t testing.TB, s store.Store, edit func(kind, id string, doc []byte) []byte) {
				t.Helper()
				if err := s.(*records.Store).EditDocuments(t.Context(), edit); err != nil {
					t.Fatal(err)
				}
			},
			Sleeps: true,
			TTL:    time.Second,
		}
	})
}
