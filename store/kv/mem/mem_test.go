package mem_test

import (
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rowmill/rowmill/store/kv"
	"github.com/rowmill/rowmill/store/kv/kvtest"
	"github.com/rowmill/rowmill/store/kv/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	kvtest.Run(t, func(*testing.T) kvtest.Harness {
		var passed atomic.Int64
		begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		e := mem.New(func() time.Time { return begin.Add(time.Duration(passed.Load())) })
		return kvtest.Harness{
			Open:    func(testing.TB) kv.Engine { e = e.Reopen(); return e },
			Advance: func(d time.Duration) { passed.Add(int64(d)) },
			Damage:  func(_ testing.TB, table kv.Table, key []byte, at int) { e.Damage(table, key, at) },
		}
	})
}
