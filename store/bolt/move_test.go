package bolt_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/store/storetest"
)

// embedded returns a harness with a fresh file.
func embedded(t *testing.T) storetest.Harness {
	path := filepath.Join(t.TempDir(), "records.db")
	return storetest.Harness{
		Open: func(t testing.TB) store.Store { return open(t, bolt.Config{Path: path}) },
		Now:  time.Now,
	}
}

func TestMove(t *testing.T) {
	t.Parallel()
	storetest.RunMove(t, embedded, embedded)
}
