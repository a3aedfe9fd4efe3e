package storetest

import (
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// testWriters lets two nodes write one record. The store must count the writes of each
// node, and refuse a write if the record has fewer writes of the node than were
// acknowledged.
func testWriters(s *suite) {
	ctx := s.Context()
	owner, other := store.NewWriteCounter("owner"), store.NewWriteCounter("other")
	for _, end := range []string{"Finish", "Cancel"} {
		c := &Caller{Store: s.Store, Fence: store.Fence{JobID: "job-" + end}, Ctx: ctx}
		countOf := func(w *store.WriteCounter) int64 { // number of writes by w in the record
			s.Helper()
			return must.Get(s.Revisions(ctx, []string{c.JobID}, w.Name()))(s)[0].Writes
		}
		for _, o := range Operations(end) {
			w, counts := other, int64(0)
			if o.Kind == WritesAsOwner {
				w = owner
			}
			if o.Kind >= CreatesJob {
				counts = 1
			}
			c.Ctx = store.WithWriteCounter(ctx, w)
			held := countOf(w)
			if o.Kind >= WritesJob { // after one more write was acknowledged than the record has
				before := s.get(c.JobID)
				w.ResetAcked(held + 1)
				s.wantError(o.Method+" after a write of its writer was lost", store.ErrLostWrites)(o.Call(c))
				s.wantUnchanged(before)
			}
			w.ResetAcked(held)
			s.must(o.Method, o.Call(c))
			if o.Method == "ReplaceParts" || o.Method == "DropParts" {
				s.must(o.Method, o.Call(c)) // a repeat, which changes nothing
			}
			if got := countOf(w); got != held+counts || w.AckedWrites() != got {
				s.Errorf("after %s the record has %d writes of the writer, and the writer knows of %d; want %d", o.Method, got, w.AckedWrites(), held+counts)
			}
		}
		if got := countOf(store.NewWriteCounter("unknown")); got != 0 {
			s.Errorf("the record has %d writes of an unknown writer, want 0", got)
		}
	}
}
