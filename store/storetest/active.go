package storetest

import (
	"slices"
	"time"

	"github.com/rowmill/rowmill"
)

// testActive checks which jobs ListActiveJobs returns.
func testActive(s *suite) {
	active := func(since time.Time, limit int, accounts ...string) [][]string {
		s.Helper()
		found, err := s.ListActiveJobs(s.Context(), accounts, since, limit)
		if err != nil || len(found) != len(accounts) {
			s.Fatalf("Active returns %d lists for %d accounts: %v", len(found), len(accounts), err)
		}
		return found
	}
	same := func(what string, got []string, want ...string) {
		s.Helper()
		slices.Sort(want)
		if got := slices.Sorted(slices.Values(got)); !slices.Equal(got, want) {
			s.Errorf("%s: active jobs are %v, want %v", what, got, want)
		}
	}
	none := s.start.Add(long)
	ended := s.createRunning(1)
	s.finish(ended, rowmill.StatusFailed)
	owned, released := s.createRunning(1), s.createRunning(1)
	oldest := s.create("a")
	middle, newest := s.create("a"), s.create("a")
	other := s.create("a\x20")
	s.must(s.Release(s.Context(), released))
	same("all open jobs", active(none, 10, "a")[0], owned.JobID, released.JobID, oldest, middle, newest)
	same("the newest waiting job", active(none, 2, "a")[0], owned.JobID, middle, newest)
	lists := active(none, 10, "a\x20", "unknown", "a")
	same("of another account", lists[0], other)
	same("of an account without jobs", lists[1])
	same("of the last account asked for", lists[2], owned.JobID, released.JobID, oldest, middle, newest)
	same("of no account", slices.Concat(active(none, 10)...))

	since := s.get(ended.JobID).Job.Created
	same("open and newly created jobs", active(since, 10, "a")[0], ended.JobID, owned.JobID, released.JobID, oldest, middle, newest)
	same("created a nanosecond later", active(since.Add(1), 10, "a")[0], owned.JobID, released.JobID, oldest, middle, newest)
	s.must(s.Cancel(s.Context(), newest, s.start, nil))
	same("after a cancellation", active(none, 1, "a")[0], owned.JobID, middle)
	same("with only the newest created job", active(since, 1, "a")[0], owned.JobID, middle, newest)
	s.must(s.CloseSession(s.Context(), owned.Session))
	same("of a dead owner", active(none, 1, "a")[0], owned.JobID, middle)
}
