package virtual

import (
	"slices"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/store"
)

// An acknowledged part is recorded, or another part has one of its rows.
func TestAcks(t *testing.T) {
	t.Parallel()
	key := func(name string) string { return "jobs/job-1/parts/" + name + ".parquet" }
	now := time.Duration(0)
	report := func(a *acks, name string, rows ...uint32) {
		now++
		set := assign.RowSet{Bitmap: roaring.BitmapOf(rows...)}
		a.said(&peerv1.ReportRequest{Parts: []*peerv1.Part{{Key: key(name), Rows: set.Encode()}}})
	}
	for name, c := range map[string]struct {
		before func(a *acks)
		after  func(a *acks)
		wrong  bool
	}{
		"Nothing":           {wrong: true},
		"Recorded":          {before: func(a *acks) { a.recorded(store.Part{Key: key("000001-1-a")}) }},
		"RecordedLater":     {after: func(a *acks) { a.recorded(store.Part{Key: key("000001-1-a")}) }, wrong: true},
		"AnotherHasARow":    {before: func(a *acks) { report(a, "000001-1-b", 2, 3) }},
		"AnotherHasNone":    {before: func(a *acks) { report(a, "000001-1-b", 3, 4) }, wrong: true},
		"AnotherShard":      {before: func(a *acks) { report(a, "000002-1-b", 2) }, wrong: true},
		"AnotherThatIsMute": {before: func(a *acks) { a.stored(key("000001-1-b")) }},
		"AnotherThatComes":  {after: func(a *acks) { now++; a.recorded(store.Part{Key: key("000001-1-b"), Complete: true}) }, wrong: true},
		"AnotherObject":     {before: func(a *acks) { a.stored("jobs/job-1/input/shard-000001") }, wrong: true},
	} {
		a := newAcks(func() time.Duration { return now })
		report(a, "000001-1-a", 1, 2)
		if c.before != nil {
			c.before(a)
		}
		now++
		a.said(&peerv1.AssignRequest{Acked: []string{key("000001-1-a")}})
		if c.after != nil {
			c.after(a)
		}
		var want []string
		if c.wrong {
			want = []string{key("000001-1-a")}
		}
		if got := a.unfounded(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
