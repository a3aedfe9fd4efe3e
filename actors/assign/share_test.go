package assign

import (
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
)

// A node's share covers all its workers, at the same time or one after another.
// Committed rows still count after their worker was removed.
func TestSharesByNode(t *testing.T) {
	t.Parallel()
	o := must.Get(NewOwner([]shard.ManifestEntry{{Rows: 10}, {First: 10, Rows: 5}}, nil))(t)
	at := func(worker, address string, from, to int, parts ...Part) (*Assignee, []PartProposal) {
		t.Helper()
		return o.HandleHeartbeat(&Heartbeat{
			Worker: worker, Address: address, Number: 1, Fresh: true, Engines: 1, Want: true, Parts: parts,
			Holds: []ShardRows{{0, NewRowSet(rows(from, to))}},
		}, start)
	}
	a, parts := at("a", "one", 0, 6, part("written", 0, 4))
	at("b", "two", 6, 8)
	if got := o.ProgressByNode(start); len(got) != 2 || got[0] != (NodeProgress{Address: "one", Assigned: 6}) || got[1] != (NodeProgress{Address: "two", Assigned: 2}) {
		t.Errorf("%+v, want also the parts that are written and not committed", got)
	}
	o.MarkCommitted("a", parts[0].Part, start.Add(10*time.Second))
	later := start.Add(20 * time.Second)
	if got := o.ProgressByNode(later)[0]; got.Assigned != 2 || got.Done != 4 || got.Rate == nil || *got.Rate != 0.2 {
		t.Errorf("%+v, want 4 rows in 20 s", got)
	}
	_, parts = at("c", "one", 8, 10, part("last", 8, 10)) // another worker of the same node
	if got := o.ProgressByNode(later); len(got) != 2 || got[0].Assigned != 4 {
		t.Errorf("%+v, want the rows of both workers", got)
	}
	o.Remove(a)
	o.MarkCommitted("c", parts[0].Part, later)
	if got := o.ProgressByNode(later)[1]; got.Address != "one" || got.Assigned != 0 || got.Done != 6 {
		t.Errorf("%+v, want what the worker did that is gone", got)
	}
	if complete, all := o.CountCompleteShards(); complete != 0 || all != 2 {
		t.Errorf("%d of %d shards are complete", complete, all)
	}
	again := Part{Key: "rest", Shard: 0, Rows: NewRowSet(rows(2, 8))} // some of these rows are committed already
	for range 2 {
		o.MarkCommitted("b", again, later)
	}
	if complete, _ := o.CountCompleteShards(); complete != 1 {
		t.Errorf("%d shards are complete", complete)
	}
	if got := o.ProgressByNode(later)[0]; got.Done != 4 {
		t.Errorf("%+v, want each row counted once", got)
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	p := commitRate{began: start}
	at := func(seconds int) *float64 { return p.rate(start.Add(time.Duration(seconds) * time.Second)) }
	p.add(50, start)
	if at(4) != nil {
		t.Error("a rate of less than a step")
	}
	if got := at(5); got == nil || *got != 10 {
		t.Errorf("%v", got)
	}
	p.add(30, start.Add(59*time.Second))
	if got := at(60); *got != 30.0/55 { // the first step is too old
		t.Errorf("%v", *got)
	}
	for _, long := range []int{59 + 60, 3600, 1 << 30} {
		if got := at(long); *got != 0 {
			t.Errorf("%v rows/s after %d s", *got, long)
		}
	}
	p.add(7, start) // a clock that was set back
	if got := at(1 << 30); p.all != 87 || *got <= 0 {
		t.Errorf("%v rows/s, %d rows", *got, p.all)
	}
}
