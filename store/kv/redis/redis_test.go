package redis_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/store/kv"
	"github.com/rowmill/rowmill/store/kv/kvtest"
	"github.com/rowmill/rowmill/store/kv/redis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, config redis.Config) *redis.Backend {
	t.Helper()
	e := must.Get(redis.Open(t.Context(), config))(t)
	return e
}

func TestConformance(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "appendfsync everysec")
	var places atomic.Int64
	kvtest.Run(t, func(*testing.T) kvtest.Harness {
		config := redis.Config{URL: server.URL(), Prefix: fmt.Sprintf("place%d:", places.Add(1))}
		return kvtest.Harness{
			Open:    func(t testing.TB) kv.Backend { return open(t, config) },
			Advance: func(d time.Duration) { <-time.After(d) },
			Damage: func(t testing.TB, table kv.Table, key []byte, at int) {
				t.Helper()
				e := open(t, config)
				must.Succeed(t, e.Damage(context.Background(), table, key, at))
				must.Succeed(t, e.Close())
			},
			TTL: 2 * time.Second,
		}
	})
}

// TestAnotherBackendWrites lets a transaction read a value that its backend has cached
// and that another backend has changed since. The cached value must not affect the
// result, whether the transaction writes, fails or has nothing to do.
func TestAnotherBackendWrites(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "appendfsync everysec")
	mine, others := open(t, redis.Config{URL: server.URL()}), open(t, redis.Config{URL: server.URL()})
	defer mine.Close()
	defer others.Close()
	const table kv.Table = "table"
	key := []byte("key")
	put := func(e *redis.Backend, value string) {
		t.Helper()
		must.Succeed(t, e.Update(t.Context(), func(tx kv.Tx) error { tx.Put(table, key, []byte(value)); return nil }))
	}
	failed := errors.New("the transaction's own error")
	for i, end := range map[string]func(kv.Tx) error{
		"writes":  func(tx kv.Tx) error { tx.Put(table, []byte("other"), nil); return nil },
		"fails":   func(kv.Tx) error { return failed },
		"nothing": func(kv.Tx) error { return nil },
	} {
		put(mine, "before "+i)
		put(others, "after "+i)
		got := ""
		err := mine.Update(t.Context(), func(tx kv.Tx) error {
			raw, err := tx.Get(table, key)
			got = string(raw)
			return errors.Join(err, end(tx))
		})
		if got != "after "+i || err != nil && !errors.Is(err, failed) {
			t.Errorf("%s: it has read %q, %v", i, got, err)
		}
		taken := false
		put(others, "there")
		err = mine.Update(t.Context(), func(tx kv.Tx) error {
			absent, err := tx.IsAbsent(table, key)
			taken = !absent
			return errors.Join(err, end(tx))
		})
		if !taken || err != nil && !errors.Is(err, failed) {
			t.Errorf("%s: a key that has a value is absent, %v", i, err)
		}
	}
}
