package bolt

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store/kv"
)

// TestFreePagesAreNotWritten checks that the size of a commit does not grow with the
// number of free pages.
func TestFreePagesAreNotWritten(t *testing.T) {
	t.Parallel()
	e := must.Get(Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "records.db")}))(t)
	const inputs = 400
	for i := range inputs {
		putLarge(t, e, i)
	}
	before := commitBytes(t, e)
	must.Succeed(t, e.Update(t.Context(), func(t kv.Tx) error {
		for i := range inputs {
			t.Delete(tableValues, fmt.Append(nil, i))
		}
		return nil
	}))
	after := commitBytes(t, e)
	const perPage = 8 // bytes in a list of free pages
	if list := int64(e.db.Stats().FreePageN * perPage); list < 20_000 || after-before > list/2 {
		t.Errorf("a commit takes %d bytes, before the removals %d; the list of free pages has %d", after, before, list)
	}
	must.Succeed(t, e.Close())
}

// commitBytes returns the size of the pages that a small write allocates.
func commitBytes(t *testing.T, e *Backend) int64 {
	t.Helper()
	before := e.db.Stats()
	must.Succeed(t, e.Update(t.Context(), func(t kv.Tx) error { t.Put("small", []byte("k"), []byte("1")); return nil }))
	stats := e.db.Stats()
	took := stats.Sub(&before)
	return took.TxStats.GetPageAlloc()
}

// putLarge stores a value of 60 KB.
func putLarge(t *testing.T, e *Backend, i int) {
	t.Helper()
	value := bytes.Repeat([]byte("x"), 60<<10)
	must.Succeed(t, e.Update(t.Context(), func(t kv.Tx) error { t.Put(tableValues, fmt.Append(nil, i), value); return nil }))
}
