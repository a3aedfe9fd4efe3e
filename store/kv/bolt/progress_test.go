package bolt_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv/bolt"
	"github.com/rowmill/rowmill/store/records"
	"github.com/rowmill/rowmill/store/storetest"
)

// TestProgressLeavesSpecAlone measures the pages that a commit of progress writes.
func TestProgressLeavesSpecAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "records.db")
	backend := open(t, bolt.Config{Path: path})
	s := must.Get(records.Open(t.Context(), backend, nil))(t)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	system := strings.Repeat("s", 1<<20)
	rec := storetest.NewRecord("job-big", "a", strings.Repeat("x", 64<<10))
	rec.Job.System, rec.Spec.System = &system, system
	if _, _, err := s.Create(t.Context(), rec, nil); err != nil {
		t.Fatal(err)
	}
	session := must.Get(s.OpenSession(t.Context(), "n", time.Hour))(t)
	claimed := must.Get(s.Claim(t.Context(), "job-big", session, store.Claim{}))(t)
	f := store.Fence{JobID: "job-big", Session: session, Epoch: claimed.Epoch}
	before := backend.PagesWritten()
	const commits = 20
	for i := range commits {
		one := store.RowTotals{Rows: 1, InputTokens: 100}
		must.Succeed(t, s.CommitParts(t.Context(), f, []store.Part{{Key: fmt.Sprint(i), Rows: 1, Totals: one}}))
		must.Get(s.Update(t.Context(), f, func(r *store.Record) error { r.Job.Message = fmt.Sprint(i); return nil }))(t)
	}
	// Meta, freelist, root and a leaf for each of the seven buckets are about eleven
	// pages of 4 KiB. The prompt alone would be 256 pages.
	if each := float64(backend.PagesWritten()-before) / (2 * commits); each > 20 {
		t.Errorf("a write of progress puts %.1f pages", each)
	}
}
