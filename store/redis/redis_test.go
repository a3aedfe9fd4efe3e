package redis_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/store/redis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a store and closes it after the test.
func open(t testing.TB, config redis.Config) *redis.Store {
	t.Helper()
	s := must.Get(redis.Open(t.Context(), config))(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// clock returns the time of the server's clock.
func clock(t testing.TB, server *redistest.Server) time.Time {
	t.Helper()
	text, err := server.Command("TIME")
	must.Succeed(t, err)
	seconds, micros, _ := strings.Cut(text, "\n")
	at, err := strconv.ParseInt(seconds, 10, 64)
	part, bad := strconv.ParseInt(micros, 10, 64)
	must.Succeed(t, errors.Join(err, bad))
	return time.Unix(at, part*1000)
}
