package assign

import (
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
)

var start = time.Unix(1000, 0)

// hears sends the owner a first heartbeat of a worker that holds rows of shard 0 and has
// written the given parts.
func hears(t *testing.T, o *Owner, worker string, holds [2]int, parts ...Part) (*Assignee, []PartProposal) {
	t.Helper()
	h := &Heartbeat{Worker: worker, Number: 1, Fresh: true, Engines: 1, Want: true, Address: worker, Parts: parts}
	if holds[1] > holds[0] {
		h.Holds = []ShardRows{{0, NewRowSet(rows(holds[0], holds[1]))}}
	}
	return o.HandleHeartbeat(h, start)
}

func part(key string, from, to int) Part {
	return Part{Key: key, Rows: NewRowSet(rows(from, to)), Totals: store.RowTotals{Rows: int64(to - from)}}
}

func owner(t *testing.T, rows int, parts ...store.Part) *Owner {
	t.Helper()
	o := must.Get(NewOwner([]shard.ManifestEntry{{Rows: rows}}, parts))(t)
	o.Assigning = true
	return o
}

// If another part has some rows of a part, the owner drops the whole part, and its other
// rows run again.
func TestOwnerDropsAPartThatRepeatsRows(t *testing.T) {
	t.Parallel()
	o := owner(t, 10, committed("earlier", 0, rows(0, 6)))
	a, parts := hears(t, o, "w", [2]int{5, 10}, part("late", 5, 10))
	if a == nil || len(parts) != 1 || !parts[0].Repeat {
		t.Fatalf("heard %+v, want a part that repeats", parts)
	}
	if got := o.states.free.inShard(0); got == nil || !got.Equals(rows(6, 10)) {
		t.Errorf("free are %v, want the rows that are not done", got)
	}
	if m := o.Assignment(a); len(m.Acked) != 1 {
		t.Errorf("the assignment is %+v, want its part acknowledged", m)
	}
}

// The record of a part with a whole shard has no list of rows.
func TestOwnerKnowsACompletePart(t *testing.T) {
	t.Parallel()
	_, parts := hears(t, owner(t, 10), "w", [2]int{0, 10}, part("all", 0, 10))
	if len(parts) != 1 || !parts[0].Record.Complete || parts[0].Record.Accepted != nil {
		t.Errorf("proposal %+v, want a complete one", parts)
	}
	_, parts = hears(t, owner(t, 11), "w", [2]int{0, 11}, part("most", 0, 10))
	if len(parts) != 1 || parts[0].Record.Complete || parts[0].Record.Accepted == nil {
		t.Errorf("proposal %+v, want one that names its rows", parts)
	}
}

// The reported part of a removed worker is still committed, and its rows do not run
// again.
func TestOwnerCommitsPartsOfLostWorkers(t *testing.T) {
	t.Parallel()
	o := owner(t, 10)
	a, parts := hears(t, o, "w", [2]int{0, 10}, part("half", 0, 5))
	if again := o.Remove(a); again != 5 || o.states.free.Count() != 5 {
		t.Errorf("%d rows run again and %d are free, want only the rows without a part", again, o.states.free.Count())
	}
	if o.MarkCommitted("w", parts[0].Part, time.Unix(0, 0)) != nil {
		t.Error("a worker that is gone was found")
	}
	if p := o.LocateRow(4); p.State != Committed {
		t.Errorf("row 4 is %s", p.State)
	}
	if a, _ := hears(t, o, "w", [2]int{5, 10}); a != nil {
		t.Error("a worker that was given up was heard")
	}
}

// Parts recorded by an earlier owner are acknowledged and not committed again.
func TestOwnerKnowsThePartsOfEarlierOwners(t *testing.T) {
	t.Parallel()
	o := owner(t, 10, committed("old", 0, rows(0, 5)))
	a, parts := hears(t, o, "w", [2]int{0, 10}, part("old", 0, 5))
	if len(parts) != 0 {
		t.Errorf("proposals %+v, want none", parts)
	}
	if m := o.Assignment(a); len(m.Acked) != 1 || m.Acked[0] != "old" {
		t.Errorf("the assignment is %+v", m)
	}
}

// After an owner was suspended, missing heartbeats do not mean that workers are lost.
func TestOwnerExcusesWorkersAfterItsOwnPause(t *testing.T) {
	t.Parallel()
	o := owner(t, 10)
	hears(t, o, "w", [2]int{})
	late := start.Add(time.Minute)
	if len(o.SilentWorkers(late.Add(-time.Second))) != 1 {
		t.Fatal("a worker that was not heard for a minute is not silent")
	}
	o.MarkAllHeard(late)
	if len(o.SilentWorkers(late.Add(-time.Second))) != 0 {
		t.Error("a worker that could not be heard is taken for lost")
	}
}

// If other workers have finished rows of a worker, for example after its node was
// suspended, the worker gives back all rows that it has not sent. If the worker's own
// parts have these rows, it continues.
func TestOwnerTakesBackRowsDoneElsewhere(t *testing.T) {
	t.Parallel()
	join := func(own ...Part) *Assignment {
		o := owner(t, 10, committed("done", 0, rows(0, 6)))
		h := &Heartbeat{Worker: "w", Number: 1, Fresh: true, Engines: 1, Ready: 3, Holds: []ShardRows{{0, NewRowSet(rows(4, 10))}}, Parts: own}
		a, _ := o.HandleHeartbeat(h, start)
		if a == nil {
			t.Fatal("it may not go on")
		}
		return o.Assignment(a)
	}
	if m := join(); m.Revoke != (Revocation{1, 3}) {
		t.Errorf("revoked %+v, want all that has not begun", m.Revoke)
	}
	if m := join(part("done", 0, 6)); m.Revoke.Rows != 0 {
		t.Errorf("revoked %+v of who did it", m.Revoke)
	}
}

// A worker with nothing to do gets rows that another worker has not sent.
func TestOwnerRevokesForIdleWorkers(t *testing.T) {
	t.Parallel()
	o := owner(t, 10)
	hears(t, o, "busy", [2]int{0, 10})
	o.HandleHeartbeat(&Heartbeat{Worker: "busy", Number: 2, Engines: 1, Ready: 8}, start)
	a, _ := hears(t, o, "idle", [2]int{})
	o.HandleHeartbeat(&Heartbeat{Worker: "idle", Number: 2, Engines: 1, Want: true, Hungry: true}, start)
	changed := o.AssignRows()
	if len(changed) != 1 || changed[0].Worker != "busy" || o.Assignment(changed[0]).Revoke.Rows != 4 {
		t.Fatalf("changed %+v, want half of the waiting rows back", changed)
	}
	o.HandleHeartbeat(&Heartbeat{Worker: "busy", Number: 3, Engines: 1, Ready: 4, Recalled: 1, Batch: 1, Back: []ShardRows{{0, NewRowSet(rows(6, 10))}}}, start)
	if changed := o.AssignRows(); len(changed) != 1 || changed[0] != a {
		t.Fatalf("changed %+v, want the worker that was idle", changed)
	}
	if p := o.LocateRow(7); p.State != Assigned || p.Worker != "idle" {
		t.Errorf("row 7 is %s with %q", p.State, p.Worker)
	}
}

// A wary owner revokes no rows: a worker without rows to send may still have as many as it may
// have, so the revoked rows would go back to the worker that had them, again and again.
func TestOwnerRevokesNothingWhileItIsWary(t *testing.T) {
	t.Parallel()
	o := owner(t, 8)
	o.Wary = true
	hears(t, o, "busy", [2]int{0, 4})
	o.HandleHeartbeat(&Heartbeat{Worker: "busy", Number: 2, Engines: 1, Want: true, Ready: 3}, start)
	hears(t, o, "waits", [2]int{4, 8})
	o.HandleHeartbeat(&Heartbeat{Worker: "waits", Number: 2, Engines: 1, Want: true, Hungry: true}, start)
	if changed := o.AssignRows(); len(changed) != 0 {
		t.Fatalf("changed %+v, want no worker", changed)
	}
	o.LiftWaryLimit()
	if changed := o.AssignRows(); len(changed) != 1 || changed[0].Worker != "busy" || o.Assignment(changed[0]).Revoke.Rows != 1 {
		t.Fatalf("changed %+v, want a row of the busy worker", changed)
	}
}

// The owner refuses a heartbeat with rows that do not exist.
func TestOwnerRefusesImpossibleRows(t *testing.T) {
	t.Parallel()
	o := owner(t, 10)
	for _, h := range []*Heartbeat{
		{Worker: "w", Fresh: true, Holds: []ShardRows{{0, NewRowSet(rows(5, 11))}}},
		{Worker: "w", Fresh: true, Holds: []ShardRows{{1, NewRowSet(rows(0, 1))}}},
		{Worker: "w", Fresh: true, Back: []ShardRows{{-1, NewRowSet(rows(0, 1))}}},
		{Worker: "w", Fresh: true, Parts: []Part{part("p", 9, 12)}},
	} {
		if a, _ := o.HandleHeartbeat(h, start); a != nil {
			t.Errorf("heard %+v", h)
		}
	}
	if p := o.LocateRow(10); p.State != Elsewhere {
		t.Errorf("row 10 of 10 is %s", p.State)
	}
}

func TestOwnerRefusesRecordsOfAnotherInput(t *testing.T) {
	t.Parallel()
	for _, p := range []store.Part{{Key: "x", Shard: 1, Complete: true}, {Key: "x", Accepted: []byte("nonsense")}} {
		if _, err := NewOwner([]shard.ManifestEntry{{Rows: 1}}, []store.Part{p}); err == nil {
			t.Errorf("part %+v was accepted", p)
		}
	}
	if _, err := NewPartLedger([]shard.ManifestEntry{{Rows: 1}}, []store.Part{{Key: "x", Shard: 1, Complete: true}}); err == nil {
		t.Error("a part of a shard that does not exist was accepted")
	}
}

// A restarted node may have a new worker before the owner declares the old one lost.
func TestOwnerFindsWorkersByTheirNodes(t *testing.T) {
	t.Parallel()
	o := owner(t, 100)
	for i, worker := range []string{"former", "later"} {
		h := &Heartbeat{Worker: worker, Number: 1, Fresh: true, Engines: 1, Address: "node"}
		if a, _ := o.HandleHeartbeat(h, start); a == nil || o.WorkerAt("node").Worker != "former" || len(o.Workers()) != i+1 {
			t.Fatalf("%s is not heard, or not found", worker)
		}
	}
	for _, left := range []string{"later", ""} {
		o.Remove(o.WorkerAt("node"))
		if a := o.WorkerAt("node"); (a != nil) != (left != "") || a != nil && a.Worker != left {
			t.Errorf("found %+v, want %q", a, left)
		}
	}
	if o.WorkerAt("elsewhere") != nil {
		t.Error("a worker was found on a node that has none")
	}
}

// Near the end of a job a worker that has many rows does not get a few more: they go to
// workers with fewer rows.
func TestOwnerKeepsTheLastRowsForIdleWorkers(t *testing.T) {
	t.Parallel()
	o := owner(t, 40)
	report := func(worker string, ready int, hungry bool) *Heartbeat {
		return &Heartbeat{Worker: worker, Number: 1, Fresh: true, Engines: 1, Want: true, Ready: ready, Hungry: hungry, Address: worker}
	}
	rich, _ := o.HandleHeartbeat(report("rich", 100, false), start) // two workers share 40 rows: 10 at a time
	poor, _ := o.HandleHeartbeat(report("poor", 4, false), start)
	hungry, _ := o.HandleHeartbeat(report("hungry", 0, true), start)
	o.AssignRows()
	if got := len(rich.unconfirmed); got != 0 {
		t.Errorf("who has a hundred rows gets %+v", rich.unconfirmed)
	}
	for _, a := range []*Assignee{poor, hungry} {
		if len(a.unconfirmed) != 1 {
			t.Errorf("%s gets %+v", a.Worker, a.unconfirmed)
		}
	}
}
