package records_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv/redis"
	"github.com/rowmill/rowmill/store/records"
	"github.com/rowmill/rowmill/store/storetest"
)

// clock returns the time of the server's clock.
func clock(t testing.TB, server *redistest.Server) time.Time {
	t.Helper()
	text := must.Get(server.Command("TIME"))(t)
	seconds, micros, _ := strings.Cut(text, "\n")
	at := must.Get(strconv.ParseInt(seconds, 10, 64))(t)
	part := must.Get(strconv.ParseInt(micros, 10, 64))(t)
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
				e := must.Get(redis.Open(t.Context(), config))(t)
				return open(t, e)
			},
			Advance: func(d time.Duration) { <-time.After(d) },
			Now:     func() time.Time { return clock(t, server) },
			Edit: func(t testing.TB, s store.Store, edit func(kind, id string, doc []byte) []byte) {
				t.Helper()
				must.Succeed(t, s.(*records.Store).EditDocuments(t.Context(), edit))
			},
			Sleeps: true,
			TTL:    time.Second,
		}
	})
}
