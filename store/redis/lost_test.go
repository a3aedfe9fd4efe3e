package redis_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/internal/seed"
	"github.com/rowmill/rowmill/store/redis"
	"github.com/rowmill/rowmill/store/storetest"
)

// TestLostTail kills a server under appendfsync everysec, and then cuts its append-only
// file at random places, like a crash of the machine. The rest must be a complete
// earlier state.
func TestLostTail(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "appendfsync everysec")
	s := open(t, redis.Config{URL: server.URL(), Timeouts: hasty})
	begin := time.Now()
	var killed time.Time
	enough := func(int) bool { return time.Since(begin) > 3*time.Second }
	writers := crowd(t, s, "x", enough, func() {
		killed = time.Now()
		if err := server.Kill(); err != nil {
			t.Errorf("kill: %v", err)
		}
	})
	files, err := filepath.Glob(filepath.Join(server.Dir(), "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) != 1 {
		t.Fatalf("append-only files %v, %v", files, err)
	}
	whole, err := os.ReadFile(files[0])
	must.Succeed(t, err)
	// A crash of the server alone loses at most the last two seconds.
	check := func(safe time.Time) {
		t.Helper()
		must.Succeed(t, server.Restart(t.Context()))
		after := open(t, redis.Config{URL: server.URL()})
		for _, w := range writers {
			w.holds(t, after, safe)
		}
		storetest.CheckConsistency(t, after.Backend(), after)
		must.Succeed(t, server.Kill())
	}
	check(killed.Add(-2 * time.Second))
	random := rand.New(rand.NewPCG(seed.ForTest(t), 0))
	for range 6 {
		keep := len(whole)/4 + random.IntN(len(whole)*3/4)
		must.Succeed(t, os.WriteFile(files[0], whole[:keep], 0o600))
		if check(time.Time{}); t.Failed() {
			t.Fatalf("cut at %d of %d bytes", keep, len(whole))
		}
	}
}
