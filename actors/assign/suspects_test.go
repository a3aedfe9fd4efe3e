package assign

import (
	"slices"
	"testing"
)

// The next worker that gets a row gets the suspect as the last worker reported it, also if
// a worker gave the row back without loading it, until the row is committed.
func TestSuspectsTravel(t *testing.T) {
	t.Parallel()
	o, want := owner(t, 10), []SuspectRow{{Row: 2, Group: 1, Crashes: 1}}
	beats := map[string]*Worker{}
	// tell sends a worker's report, and returns the suspects in its new spans.
	tell := func(name string, holds bool) (suspects []SuspectRow) {
		w := beats[name]
		if w == nil {
			w = NewWorker(name, 1, "session")
			beats[name] = w
		}
		h := &Heartbeat{Address: name, Engines: 1, Want: holds, Hungry: holds}
		w.FillHeartbeat(h)
		a, _ := o.HandleHeartbeat(h, start)
		if a == nil {
			t.Fatalf("the report of %s is not heard: %+v", name, h)
		}
		o.AssignRows()
		m := o.Assignment(a)
		m.Epoch = 1
		spans, _, _, _ := w.ApplyAssignment(m)
		for _, s := range spans {
			suspects = append(suspects, s.Suspects...)
		}
		return suspects
	}
	if suspects := tell("one", true); suspects != nil {
		t.Errorf("the first worker gets %v", suspects)
	}
	one := beats["one"]
	one.GiveBack(0, rows(2, 4))
	one.Suspect(want[0])
	var h Heartbeat
	if one.FillHeartbeat(&h); !slices.Equal(h.Suspects, want) {
		t.Errorf("reported: %v", h.Suspects)
	}
	tell("one", false)
	if one.FillHeartbeat(&h); len(h.Suspects) > 0 {
		t.Errorf("reported once the rows are taken: %v", h.Suspects)
	}
	if suspects := tell("two", true); !slices.Equal(suspects, want) {
		t.Errorf("the second worker gets %v, want %v", suspects, want)
	}
	beats["two"].GiveBack(0, rows(2, 4))
	tell("two", false)
	if suspects := tell("three", true); !slices.Equal(suspects, want) {
		t.Errorf("the third worker gets %v, want %v", suspects, want)
	}
	o.MarkCommitted("three", part("p", 2, 4), start)
	if len(o.suspects) > 0 {
		t.Errorf("after the row is committed the owner has %v", o.suspects)
	}
}

// A worker may report only rows that it gives back as suspects.
func TestSuspectsAreRowsGivenBack(t *testing.T) {
	t.Parallel()
	o := owner(t, 10)
	a, _ := o.HandleHeartbeat(&Heartbeat{
		Worker: "w", Fresh: true, Batch: 1, Back: []ShardRows{{0, NewRowSet(rows(2, 4))}}, Suspects: []SuspectRow{{Row: 4, Group: 1}},
	}, start)
	if a != nil {
		t.Error("a report of another row is heard")
	}
}

// A new owner assigns all rows that were given back to the earlier owner. The worker
// reports no such row.
func TestSuspectsEndWithTheirOwner(t *testing.T) {
	t.Parallel()
	w := worker()
	w.ApplyAssignment(batch(1, 0, 4))
	w.GiveBack(0, rows(2, 4))
	w.Suspect(SuspectRow{Row: 2, Group: 1})
	w.SwitchOwner(2, "another")
	var h Heartbeat
	if w.FillHeartbeat(&h); len(h.Back) > 0 || len(h.Suspects) > 0 {
		t.Errorf("reported: %+v", h)
	}
}
