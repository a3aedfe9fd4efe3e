package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill/store"
)

// A wait is one event with its start and its end.
func TestRecord_Say(t *testing.T) {
	t.Parallel()
	var rec store.Record
	at := time.UnixMilli
	rec.SetMessage("Processing rows.", false, at(1))
	rec.SetMessage("a server", true, at(2))
	before := rec.Events
	rec.SetMessage("a server", true, at(3))
	rec.AddEvent(store.JobEvent{At: 4, What: store.EventReleased})
	rec.SetMessage("a server", true, at(5))
	rec.SetMessage("storage", true, at(6))
	rec.SetMessage("Processing rows.", false, at(7))
	rec.SetMessage("Processing rows.", false, at(8))
	rec.SetMessage("storage", true, at(9))
	rec.SetMessage("Processing rows.", false, at(3)) // by another clock
	want := []store.JobEvent{
		{At: 2, What: store.EventWaits, Reason: "a server", Until: 6},
		{At: 4, What: store.EventReleased},
		{At: 6, What: store.EventWaits, Reason: "storage", Until: 7},
		{At: 9, What: store.EventWaits, Reason: "storage", Until: 9},
	}
	if diff := cmp.Diff(want, rec.Events); diff != "" {
		t.Error(diff)
	}
	if rec.Job.Message != "Processing rows." {
		t.Errorf("it says %q", rec.Job.Message)
	}
	if before[0].Until != 0 {
		t.Error("a change affects a record that was read before")
	}
	rec.SetMessage(strings.Repeat("x", 1000), true, at(10))
	if n := len(rec.Events[4].Reason); n > store.MaxReasonBytes+len("…") {
		t.Errorf("it waits for %d bytes", n)
	}
}
