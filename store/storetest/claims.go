package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// adopt claims a job without a live owner for a new session of process. The returned
// function closes this session without a release.
func (s *suite) adopt(id, process string) (store.Fence, func()) {
	s.Helper()
	session := s.session()
	rec := must.Get(s.Claim(s.Context(), id, session, store.Claim{Node: "node " + process, Process: process, Alone: process == "p2", Epoch: 5}))(s)
	if n := len(rec.Claims); n == 0 || rec.Claims[n-1] != (store.Claim{Node: "node " + process, Process: process, Alone: process == "p2", Epoch: rec.Epoch}) {
		s.Errorf("the claims are %+v, want the owner with epoch %d as the last one", rec.Claims, rec.Epoch)
	}
	s.wantSame("claims", s.get(id).Claims, rec.Claims)
	return store.Fence{JobID: id, Session: session, Epoch: rec.Epoch}, func() {
		s.must(s.CloseSession(s.Context(), session))
	}
}

// wantClaims compares the processes in the claims of a job.
func (s *suite) wantClaims(when, id string, want ...string) {
	s.Helper()
	var got []string
	for _, a := range s.get(id).Claims {
		got = append(got, a.Process)
	}
	if !slices.Equal(got, want) {
		s.Errorf("%s: claims are %q, want %q", when, got, want)
	}
}

// wantOrphanClaims compares the processes in the field Claims of an orphan.
func (s *suite) wantOrphanClaims(when, id string, want ...string) {
	s.Helper()
	orphans := must.Get(s.Orphans(s.Context(), 100))(s)
	i := slices.IndexFunc(orphans, func(o store.OrphanJob) bool { return o.JobID == id })
	if i < 0 {
		s.Errorf("%s: the job is not among the orphans, want it there", when)
		return
	}
	var got []string
	for _, a := range orphans[i].Claims {
		got = append(got, a.Process)
	}
	if !slices.Equal(got, want) {
		s.Errorf("%s: the orphan names the claims %q, want %q", when, got, want)
	}
}

// testClaims checks that the claim of an owner stays in the record if the owner's session
// ends without a release.
func testClaims(s *suite) {
	id := s.create("a")
	s.wantOrphanClaims("it was never claimed", id)
	first, dies := s.adopt(id, "p1")
	s.update(first, func(r *store.Record) error {
		r.Job.Message = "on"
		return moveThrough(r, rowmill.StatusStarting, rowmill.StatusRunning)
	})
	dies()
	s.wantOrphanClaims("its first owner died", id, "p1")
	second, dies := s.adopt(id, "p2")
	s.wantClaims("claimed again", id, "p1", "p2")
	dies()
	s.wantOrphanClaims("its second owner died", id, "p1", "p2")
	s.wantError("a dead session gave the job back", errAny)(s.Release(s.Context(), second))
	third, _ := s.adopt(id, "p3")
	s.wantClaims("claimed once more", id, "p1", "p2", "p3")
	s.must(s.Release(s.Context(), third))
	s.wantOrphanClaims("it was given back", id, "p1", "p2")
	fourth, dies := s.adopt(id, "p4")
	s.wantClaims("claimed after it was given back", id, "p1", "p2", "p4")
	s.update(fourth, func(r *store.Record) error { r.RemoveOwnersClaim(); return nil })
	s.wantClaims("its owner says that it waits", id, "p1", "p2")
	dies()
	s.wantOrphanClaims("it waited", id, "p1", "p2")
}

// testClaimsCleared checks that progress of a job empties its list of claims.
func testClaimsCleared(s *suite) {
	id := s.create("a")
	_, dies := s.adopt(id, "p1")
	dies()
	f, dies := s.adopt(id, "p2")
	now := s.start
	s.update(f, func(r *store.Record) error { r.DownloadStarted = &now; return nil })
	s.wantClaims("the download has begun", id, "p2")
	dies()
	_, dies = s.adopt(id, "p3")
	dies()
	f, _ = s.adopt(id, "p4")
	s.wantClaims("before the input was cut", id, "p2", "p3", "p4")
	s.update(f, func(r *store.Record) error { r.Shards = 2; r.Job.NumRows = new(int64(9)); return nil })
	s.wantClaims("the input was cut", id, "p4")

	again := func() {
		s.Helper()
		s.update(f, func(r *store.Record) error { r.Claims = []store.Claim{{Process: "p4", Epoch: f.Epoch}}; return nil })
	}
	part := func(key string) store.Part {
		return store.Part{Key: key, Rows: 1, Accepted: []byte("set"), Totals: store.RowTotals{Rows: 1}}
	}
	commit := func(p store.Part, rows int64) {
		s.Helper()
		s.must(s.CommitParts(s.Context(), f, []store.Part{p}))
	}
	carried := part("carried")
	carried.Carried = true
	commit(carried, 1)
	s.wantClaims("rows were carried", id, "p4")
	commit(part("p"), 2)
	s.wantClaims("a row is done", id)
	again()
	commit(part("p"), 2)
	s.wantClaims("a part was recorded before", id, "p4")
	s.must(s.ReplaceParts(s.Context(), f, store.Part{Key: "whole", Rows: 2, Complete: true, Totals: store.RowTotals{Rows: 2}}))
	s.wantClaims("a shard is merged", id)
	again()
	s.update(f, func(r *store.Record) error { return moveThrough(r, rowmill.StatusFailed) })
	s.wantClaims("it has ended", id)
}

// testClaimsBounded checks the limit of the list of claims.
func testClaimsBounded(s *suite) {
	id := s.create("a")
	for i := range store.MaxClaims + 3 {
		_, dies := s.adopt(id, fmt.Sprint("p", i+10))
		dies()
	}
	if n := len(s.get(id).Claims); n != 3 {
		s.Errorf("%d claims are listed, want 3", n)
	}
}

// testReschedule checks that a paused job is no orphan, even after the session of its owner has
// ended, and that a job gets its new priority.
func testReschedule(s *suite) {
	id := s.create("a")
	f, dies := s.adopt(id, "p0")
	reschedule := func(c store.Schedule) store.Record {
		s.Helper()
		rec, err := s.Reschedule(s.Context(), id, c)
		s.must(err)
		return rec
	}
	for range 2 {
		rec := reschedule(store.Schedule{Paused: new(true)})
		if !rec.Job.Paused || rec.Session != f.Session || rec.Version != 3 {
			s.Errorf("paused is %v, the owner %q, the version %d; want a paused job of owner %q in version 3", rec.Job.Paused, rec.Session, rec.Version, f.Session)
		}
	}
	wantNoOrphan := func(when string) {
		s.Helper()
		if orphans, err := s.Orphans(s.Context(), 10); err != nil || len(orphans) > 0 {
			s.Errorf("%s: %d orphans, %v, want none", when, len(orphans), err)
		}
		_, err := s.Claim(s.Context(), id, s.session(), store.Claim{Process: "p9"})
		s.wantError(when+": the job is claimed", rowmill.ErrConflict)(err)
		if open, err := s.ListActiveJobs(s.Context(), []string{"a"}, time.Now().Add(time.Hour), 10); err != nil || !slices.Contains(open[0], id) {
			s.Errorf("%s: active jobs are %q, %v; want the paused job among them", when, open, err)
		}
	}
	wantNoOrphan("paused with an owner")
	_, err := s.Update(s.Context(), f, func(r *store.Record) error { r.Job.Message = "stops"; return nil })
	s.must(err)
	_, err = s.Update(s.Context(), f, func(r *store.Record) error { r.Job.Paused = false; return nil })
	s.wantError("the owner ends the pause", errAny)(err)
	_, err = s.Update(s.Context(), f, func(r *store.Record) error { r.Job.Priority = rowmill.Production; return nil })
	s.wantError("the owner changes the priority", errAny)(err)
	dies()
	wantNoOrphan("paused, and the owner's session has ended")
	rec := reschedule(store.Schedule{Priority: &store.Reprioritize{Priority: rowmill.Production, RowQuota: 7, TokenQuota: 11}})
	if !rec.Job.Paused || rec.Job.Priority != rowmill.Production || rec.Spec.Priority != rowmill.Production || rec.Spec.RowQuota != 7 || rec.Spec.TokenQuota != 11 {
		s.Errorf("paused is %v, the priority %d, the specification %+v; want a paused job of priority %d with the quotas 7 and 11", rec.Job.Paused, rec.Job.Priority, rec.Spec, rowmill.Production)
	}
	reschedule(store.Schedule{Paused: new(false)})
	if orphans, err := s.Orphans(s.Context(), 10); err != nil || len(orphans) != 1 || orphans[0].Priority != rowmill.Production {
		s.Errorf("after the pause the orphans are %+v, %v; want the job with priority %d", orphans, err, rowmill.Production)
	}
	f, _ = s.adopt(id, "p1")
	s.Advance(10 * time.Millisecond) // an epoch may be later than the clock
	reschedule(store.Schedule{Paused: new(true)})
	s.must(s.Release(s.Context(), f))
	wantNoOrphan("released by its owner")
	ended, err := s.Cancel(s.Context(), id, time.Now(), nil)
	if err != nil || ended.Job.Paused {
		s.Errorf("the cancelled job is paused: %v, %v; want no paused job", ended.Job.Paused, err)
	}
	_, err = s.Reschedule(s.Context(), id, store.Schedule{Paused: new(true)})
	s.wantError("a cancelled job is paused", rowmill.ErrTerminal)(err)
	claimed := func(process string, lost bool) store.JobEvent {
		return store.JobEvent{What: store.EventClaimed, Node: "node " + process, Process: process, Lost: lost}
	}
	paused, pauseEnded := store.JobEvent{What: store.EventPaused}, store.JobEvent{What: store.EventPauseEnded}
	s.wantEvents("it was paused twice", id, claimed("p0", false), paused, store.JobEvent{What: store.EventPriorityChanged, Reason: "from 0 to 1"}, pauseEnded,
		claimed("p1", true), paused, store.JobEvent{What: store.EventReleased})
	_, err = s.Reschedule(s.Context(), "job-unknown", store.Schedule{})
	s.wantError("an unknown job is paused", rowmill.ErrNotFound)(err)
}

// testPark checks that a parked job is no orphan until the parking ends or Unpark is
// called. The next owner sees the last two claims without progress.
func testPark(s *suite) {
	id := s.create("a")
	for _, process := range []string{"p0", "p1", "p2"} {
		_, dies := s.adopt(id, process)
		dies()
	}
	park := func(process string, rest time.Duration) store.Fence {
		s.Helper()
		f, _ := s.adopt(id, process)
		s.must(s.Park(s.Context(), f, rest, "parked"))
		return f
	}
	began, err := s.Time(s.Context())
	s.must(err)
	f := park("p3", time.Hour)
	rec := s.get(id)
	if at := rec.Job.ParkedUntil; at == nil || at.Sub(began) < time.Hour || at.Sub(began) > 2*time.Hour || rec.Session != "" || rec.Job.Message != "parked" {
		s.Errorf("the job is parked until %v, with owner %q and message %q; want it parked for an hour, without an owner", at, rec.Session, rec.Job.Message)
	}
	s.wantClaims("parked", id, "p1", "p2")
	if slices.ContainsFunc(rec.Claims, func(a store.Claim) bool { return a.Alone }) {
		s.Error("an owner of the parked job still counts as the only one of its node, want none")
	}
	if orphans, err := s.Orphans(s.Context(), 10); err != nil || len(orphans) > 0 {
		s.Errorf("%d orphans while the job is parked, %v, want none", len(orphans), err)
	}
	if open, err := s.ListActiveJobs(s.Context(), []string{"a"}, began, 10); err != nil || !slices.Contains(open[0], id) {
		s.Errorf("active jobs are %q, %v; want the parked job among them", open, err)
	}
	_, err = s.Claim(s.Context(), id, s.session(), store.Claim{Process: "p9"})
	s.wantError("a parked job is claimed", rowmill.ErrConflict)(err)
	s.wantError("its last owner parks it again", rowmill.ErrLeaseLost)(s.Park(s.Context(), f, time.Hour, ""))
	for range 2 {
		s.must(s.Unpark(s.Context(), id))
	}
	s.wantOrphanClaims("released", id, "p1", "p2")
	park("p4", 0)
	s.wantClaims("parked again", id, "p1", "p2")
	s.wantOrphanClaims("its time has come", id, "p1", "p2")
	f, _ = s.adopt(id, "p5")
	if rec := s.get(id); rec.Job.ParkedUntil != nil {
		s.Errorf("the job has an owner but is parked until %v, want it not parked", rec.Job.ParkedUntil)
	}
	s.wantError("a job that is not parked is released", rowmill.ErrConflict)(s.Unpark(s.Context(), id))
	s.must(s.Park(s.Context(), f, time.Hour, ""))
	ended, err := s.Cancel(s.Context(), id, began, nil)
	if err != nil || ended.Job.ParkedUntil != nil {
		s.Errorf("the cancelled job is parked until %v, %v; want it not parked", ended.Job.ParkedUntil, err)
	}
}
