package storetest

import (
	"errors"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// createCancelled creates a job of an account, cancels it at the time at, and returns its id.
func (s *suite) createCancelled(account string, at time.Time) string {
	s.Helper()
	id := s.create(account)
	s.must(s.Cancel(s.Context(), id, at, nil))
	return id
}

// wantRetained checks the retained jobs of an account that ended by a time.
func (s *suite) wantRetained(account string, by time.Time, limit int, want ...string) {
	s.Helper()
	got, err := s.RetainedJobs(s.Context(), account, by, limit)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		s.Errorf("retained jobs of %s that ended by %v: %v (-want +got):\n%s", account, by, err, diff)
	}
}

// wantAccountsWithData compares the accounts that have retained jobs.
func (s *suite) wantAccountsWithData(want ...string) {
	s.Helper()
	got, err := s.AccountsWithData(s.Context())
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		s.Errorf("accounts with retained jobs: %v (-want +got):\n%s", err, diff)
	}
}

// testRetainedJobs checks the order and limits of retained jobs, however they ended.
func testRetainedJobs(s *suite) {
	now := s.Now().UTC().Truncate(time.Second)
	at := func(second int) time.Time { return now.Add(time.Duration(second) * time.Second) }
	s.wantAccountsWithData()
	s.wantRetained("a", at(31), 10)
	s.create("open")
	late := s.createCancelled("a", at(3))
	early := s.createCancelled("a", at(1))
	middle := s.createCancelled("a", at(2))
	ab := s.createCancelled("ab", at(1))
	s.reopen()
	s.wantAccountsWithData("a", "ab")
	s.wantRetained("a", at(31), 10, early, middle, late)
	s.wantRetained("a", at(31), 2, early, middle)
	s.wantRetained("a", at(2), 10, early, middle)
	s.wantRetained("a", at(2).Add(-1), 10, early)
	s.wantRetained("a", at(1).Add(-1), 10)
	s.wantRetained("ab", at(31), 10, ab)
	s.wantRetained("open", at(31), 10)
	s.wantError("a limit of 0 is accepted", errAny)(s.RetainedJobs(s.Context(), "a", at(31), 0))

	done, failed := s.createRunning(3), s.createRunning(3)
	s.finish(done, rowmill.StatusSucceeded)
	s.finish(failed, rowmill.StatusFailed)
	s.wantRetained("a", at(-60), 10) // the owners wrote an end in May, but retention counts from the store's clock
	if held, err := s.RetainedJobs(s.Context(), "a", s.Now().Add(time.Minute), 10); err != nil || len(held) != 5 {
		s.Errorf("the retained jobs are %v, %v; want all 5", held, err)
	}
}

// testTime compares the store's time with the clock of the harness.
func testTime(s *suite) {
	before := s.Now()
	now, err := s.Time(s.Context())
	if after := s.Now(); err != nil || now.Before(before.Add(-time.Second)) || now.After(after.Add(time.Second)) {
		s.Errorf("the store's time is %v, %v; want a time from %v to %v", now, err, before, after)
	}
}

// testEndIsTheStores checks that retention counts from the job's end by the store's
// clock, even if the clock of the node is wrong.
func testEndIsTheStores(s *suite) {
	const days = 24 * time.Hour
	now := s.Now().UTC()
	behind, ahead, near := s.createCancelled("a", now.Add(-100*days)), s.createCancelled("a", now.Add(100*days)), s.createCancelled("a", now.Add(-time.Second))
	f := s.createRunning(1)
	s.commit(f, store.Part{Key: "all", Rows: 1, Complete: true})
	finished := must.Get(s.Finish(s.Context(), f, func(r *store.Record) error { return r.Job.Become(rowmill.StatusSucceeded, now.Add(-100*days)) }))(s)
	s.wantUnchanged(finished)
	s.reopen()
	s.wantRetained("a", now.Add(-2*time.Minute), 10)
	if held, err := s.RetainedJobs(s.Context(), "a", s.Now().Add(time.Minute), 10); err != nil || len(held) != 4 {
		s.Errorf("the retained jobs are %v, %v; want all 4", held, err)
	}
	for _, id := range []string{behind, ahead, f.JobID} {
		rec := s.get(id)
		if rec.Ended == nil || rec.EndedAt().Sub(now).Abs() > time.Minute {
			s.Errorf("job %s has Ended %v and EndedAt %v, want the time of the store's clock", id, rec.Ended, rec.EndedAt())
		}
		s.must(s.RemoveData(s.Context(), id, now))
		s.must(s.MarkDataDeleted(s.Context(), id))
	}
	if rec := s.get(near); rec.Ended != nil || !rec.EndedAt().Equal(*rec.Job.Completed) {
		s.Errorf("job %s has Ended %v and Completed %v, want only Completed, because the clocks agree", near, rec.Ended, rec.Job.Completed)
	}
	s.wantRetained("a", s.Now().Add(time.Minute), 10, near)
}

// testRemoveData checks the steps of a removal.
func testRemoveData(s *suite) {
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	s.wantError("remove the data of an unknown job", rowmill.ErrNotFound)(s.RemoveData(s.Context(), "job-none", now))
	s.wantError("the data of an unknown job is gone", rowmill.ErrNotFound)(s.MarkDataDeleted(s.Context(), "job-none"))
	f := s.createRunning(2)
	before := s.get(f.JobID)
	s.wantError("remove the data of a running job", rowmill.ErrConflict)(s.RemoveData(s.Context(), f.JobID, now))
	s.wantUnchanged(before)
	before = s.finish(f, rowmill.StatusSucceeded)
	s.wantError("the data of a job that has it is gone", rowmill.ErrConflict)(s.MarkDataDeleted(s.Context(), f.JobID))
	s.wantRetained("a", now, 10, f.JobID)

	removed := must.Get(s.RemoveData(s.Context(), f.JobID, now))(s)
	before.DataRemoved, before.InputRemoved, before.Spec.Inline, before.Version = &now, &now, nil, before.Version+1
	s.wantSame("record without data", before, removed)
	s.wantUnchanged(removed)
	removed.Version++ // the record is written again: see Record.RemoveData
	if again, err := s.RemoveData(s.Context(), f.JobID, now.Add(time.Hour)); err != nil {
		s.Errorf("remove data again: %v", err)
	} else {
		s.wantSame("record after the second removal", removed, again)
	}
	s.wantError("add an artifact after the removal", rowmill.ErrExpired)(s.AddArtifact(s.Context(), f.JobID, "late", store.Artifact{Key: "k"}))
	s.wantRetained("a", now, 10, f.JobID)

	for range 2 {
		s.must(s.MarkDataDeleted(s.Context(), f.JobID))
	}
	s.wantRetained("a", now, 10)
	s.wantAccountsWithData()
	s.reopen()
	removed.DataGone, removed.Version = true, removed.Version+1
	s.wantUnchanged(removed)
	s.wantAccountsWithData()
}

// testShowRunning checks that MarkShownRunning is stored, for open and ended jobs.
func testShowRunning(s *suite) {
	s.wantError("show an unknown job", rowmill.ErrNotFound)(s.MarkShownRunning(s.Context(), "job-none"))
	f := s.createRunning(1)
	ended := s.createCancelled("a", s.start)
	for _, id := range []string{f.JobID, ended} {
		want := s.get(id)
		want.ShownRunning, want.Version = true, want.Version+1
		for range 2 {
			s.must(s.MarkShownRunning(s.Context(), id))
		}
		s.reopen()
		s.wantUnchanged(want)
	}
	s.wantRetained("a", s.Now().Add(time.Minute), 10, ended)
}

// wantDue checks which jobs ListDueRemovals returns for the time by.
func (s *suite) wantDue(by time.Time, limit int, want ...string) {
	s.Helper()
	got, err := s.ListDueRemovals(s.Context(), by, limit)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		s.Errorf("jobs due by %v: %v (-want +got):\n%s", by, err, diff)
	}
}

// testDueJobs checks when a removal of data is due, for every way in which a job can end.
func testDueJobs(s *suite) {
	now := s.Now().UTC().Truncate(time.Second)
	at := func(second int) time.Time { return now.Add(time.Duration(second) * time.Second) }
	s.wantDue(at(31), 10)
	s.create("open")
	late, early := s.createCancelled("a", at(3)), s.createCancelled("b", at(1))
	s.wantDue(at(1).Add(-time.Second), 10)
	s.wantDue(at(2), 10, early)
	s.wantDue(at(31), 10, early, late)
	s.wantDue(at(31), 1, early)
	s.wantError("a limit of 0 is accepted", errAny)(s.ListDueRemovals(s.Context(), at(31), 0))
	for range 2 {
		s.must(s.KeepInput(s.Context(), early, at(10)))
	}
	s.reopen()
	s.wantDue(at(9), 10, late)
	s.wantDue(at(10), 10, late, early)
	s.must(s.RemoveData(s.Context(), late, at(4)))
	s.reopen()
	s.wantDue(at(3), 10)
	s.wantDue(at(31), 10, late, early)
	s.must(s.MarkDataDeleted(s.Context(), late))
	s.wantDue(at(31), 10, early)
	for range 2 {
		s.must(s.MarkInputRemoved(s.Context(), early, at(11)))
	}
	s.wantDue(at(31), 10)
	done, failed := s.createRunning(3), s.createRunning(3)
	s.finish(done, rowmill.StatusSucceeded)
	s.finish(failed, rowmill.StatusFailed)
	s.wantDue(at(31), 10, done.JobID, failed.JobID)
}

// testInput checks KeepInput and MarkInputRemoved: when the stored input rows of an ended
// job are removed.
func testInput(s *suite) {
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	open := s.createRunning(2)
	before := s.get(open.JobID)
	for what, err := range map[string]error{
		"keep":      s.KeepInput(s.Context(), open.JobID, now),
		"gone":      s.MarkInputRemoved(s.Context(), open.JobID, now),
		"continued": s.MarkContinued(s.Context(), open.JobID, "job-next"),
	} {
		if !errors.Is(err, rowmill.ErrConflict) {
			s.Errorf("%s, of a running job: %v, want ErrConflict", what, err)
		}
	}
	s.wantUnchanged(before)
	for what, err := range map[string]error{
		"keep":      s.KeepInput(s.Context(), "job-none", now),
		"gone":      s.MarkInputRemoved(s.Context(), "job-none", now),
		"continued": s.MarkContinued(s.Context(), "job-none", "job-next"),
	} {
		if !errors.Is(err, rowmill.ErrNotFound) {
			s.Errorf("%s, of an unknown job: %v, want ErrNotFound", what, err)
		}
	}
	want := s.finish(open, rowmill.StatusFailed)
	if want.Spec.Inline == nil {
		s.Fatal("the specification has no inline rows, want rows that KeepInput can remove")
	}
	s.must(s.KeepInput(s.Context(), open.JobID, now))
	want.InputUntil, want.Spec.Inline, want.Version = &now, nil, want.Version+1
	s.wantUnchanged(want)
	for _, by := range []string{"job-2", "job-3", "job-1", "job-3"} {
		s.must(s.MarkContinued(s.Context(), open.JobID, by))
	}
	want.Job.ContinuedBy, want.Version = new("job-3"), want.Version+2
	s.wantUnchanged(want)
	s.must(s.MarkInputRemoved(s.Context(), open.JobID, now))
	want.InputRemoved, want.Version = &now, want.Version+1
	s.wantUnchanged(want)
	s.must(s.KeepInput(s.Context(), open.JobID, now.Add(time.Hour)))
	s.reopen()
	s.wantUnchanged(want) // the input stays removed
}
