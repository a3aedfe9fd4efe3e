package storetest

import (
	"errors"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// cancelled creates a job of an account and cancels it at a time.
func (s *suite) cancelled(account string, at time.Time) string {
	s.Helper()
	id := s.create(account)
	if _, err := s.Cancel(s.Context(), id, at, nil); err != nil {
		s.Fatalf("cancel: %v", err)
	}
	return id
}

// held checks which jobs of an account are held that ended by a time.
func (s *suite) held(account string, by time.Time, limit int, want ...string) {
	s.Helper()
	got, err := s.Held(s.Context(), account, by, limit)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		s.Errorf("held jobs of %s that ended by %v: %v (-want +got):\n%s", account, by, err, diff)
	}
}

func (s *suite) holders(want ...string) {
	s.Helper()
	got, err := s.Holders(s.Context())
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		s.Errorf("accounts with held jobs: %v (-want +got):\n%s", err, diff)
	}
}

// testHeld checks the order and bounds of held jobs, however they ended.
func testHeld(s *suite) {
	at := func(day int) time.Time { return time.Date(2027, 1, day, 0, 0, 0, 0, time.UTC) }
	s.holders()
	s.held("a", at(31), 10)
	s.create("open")
	late := s.cancelled("a", at(3))
	early := s.cancelled("a", at(1))
	middle := s.cancelled("a", at(2))
	ab := s.cancelled("ab", at(1))
	s.reopen()
	s.holders("a", "ab")
	s.held("a", at(31), 10, early, middle, late)
	s.held("a", at(31), 2, early, middle)
	s.held("a", at(2), 10, early, middle)
	s.held("a", at(2).Add(-1), 10, early)
	s.held("a", at(1).Add(-1), 10)
	s.held("ab", at(31), 10, ab)
	s.held("open", at(31), 10)
	if _, err := s.Held(s.Context(), "a", at(31), 0); err == nil {
		s.Error("a limit of 0 is accepted")
	}

	done, failed := s.running(3), s.running(3)
	s.finish(done, rowmill.StatusSucceeded)
	s.finish(failed, rowmill.StatusFailed)
	s.held("a", at(1).Add(-1), 10, done.JobID, failed.JobID) // in May before
}

// testRemoveData checks the steps of a removal.
func testRemoveData(s *suite) {
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, err := s.RemoveData(s.Context(), "job-none", now); !errors.Is(err, rowmill.ErrNotFound) {
		s.Errorf("remove the data of an unknown job: %v, want ErrNotFound", err)
	}
	if err := s.DataGone(s.Context(), "job-none"); !errors.Is(err, rowmill.ErrNotFound) {
		s.Errorf("the data of an unknown job is gone: %v, want ErrNotFound", err)
	}
	f := s.running(2)
	before := s.get(f.JobID)
	if _, err := s.RemoveData(s.Context(), f.JobID, now); !errors.Is(err, rowmill.ErrConflict) {
		s.Errorf("remove the data of a running job: %v, want ErrConflict", err)
	}
	s.unchanged(before)
	before = s.finish(f, rowmill.StatusSucceeded)
	if err := s.DataGone(s.Context(), f.JobID); !errors.Is(err, rowmill.ErrConflict) {
		s.Errorf("the data of a job that has it is gone: %v, want ErrConflict", err)
	}
	s.held("a", now, 10, f.JobID)

	removed, err := s.RemoveData(s.Context(), f.JobID, now)
	if err != nil {
		s.Fatalf("remove data: %v", err)
	}
	before.DataRemoved, before.Spec.Inline, before.Version = &now, nil, before.Version+1
	s.same("record without data", before, removed)
	s.unchanged(removed)
	if again, err := s.RemoveData(s.Context(), f.JobID, now.Add(time.Hour)); err != nil {
		s.Errorf("remove data again: %v", err)
	} else {
		s.same("record after the second removal", removed, again)
	}
	if _, err := s.AddArtifact(s.Context(), f.JobID, "late", store.Artifact{Key: "k"}); !errors.Is(err, rowmill.ErrExpired) {
		s.Errorf("add an artifact after the removal: %v, want ErrExpired", err)
	}
	s.held("a", now, 10, f.JobID)

	for range 2 {
		if err := s.DataGone(s.Context(), f.JobID); err != nil {
			s.Errorf("data gone: %v", err)
		}
	}
	s.held("a", now, 10)
	s.holders()
	s.reopen()
	s.unchanged(removed)
	s.holders()
}

// testShowRunning checks that what a client was told is kept, of open jobs and
// of those that are over.
func testShowRunning(s *suite) {
	if err := s.ShowRunning(s.Context(), "job-none"); !errors.Is(err, rowmill.ErrNotFound) {
		s.Errorf("show an unknown job: %v, want ErrNotFound", err)
	}
	f := s.running(1)
	over := s.cancelled("a", s.start)
	for _, id := range []string{f.JobID, over} {
		want := s.get(id)
		want.ShownRunning, want.Version = true, want.Version+1
		for range 2 {
			if err := s.ShowRunning(s.Context(), id); err != nil {
				s.Errorf("show: %v", err)
			}
		}
		s.reopen()
		s.unchanged(want)
	}
	s.held("a", s.start, 10, over)
}
