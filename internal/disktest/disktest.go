// Package disktest opens the store and the bucket of a single node in a test's folder.
package disktest

import (
	"testing"

	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store/bolt"
)

// Open returns an empty store and an empty bucket. They can be used until the end of
// the test.
func Open(t testing.TB) (*bolt.Store, *dir.Bucket) {
	t.Helper()
	folder := t.TempDir()
	records, err := bolt.Open(t.Context(), bolt.Config{Path: folder + "/records.db"})
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := records.Close(); err != nil {
			t.Error(err)
		}
	})
	keys, err := dir.LoadKeyring(t.Context(), records)
	must.Succeed(t, err)
	bucket, err := dir.Open(dir.Config{Root: folder + "/objects", Keys: keys})
	must.Succeed(t, err)
	w, err := bucket.Create(t.Context(), layout.Deployment, layout.JSON) // nodes also write this object at their start
	if err == nil {
		_, err = w.Commit()
	}
	must.Succeed(t, err)
	return records, bucket
}
