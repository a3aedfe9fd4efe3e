package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// parts lists the parts of a job; it must succeed.
func (s *suite) parts(id string) []store.Part {
	s.Helper()
	return must.Get(s.ListParts(s.Context(), id))(s)
}

// keys returns the keys of a job's parts in order.
func (s *suite) keys(id string) []string {
	s.Helper()
	out := []string{}
	for _, p := range s.parts(id) {
		out = append(out, p.Key)
	}
	return out
}

// wantParts compares the keys of a job's parts.
func (s *suite) wantParts(id string, want ...string) {
	s.Helper()
	s.wantEqual("parts", want, s.keys(id))
}

func testCommitParts(s *suite) {
	f := s.createRunning(100)
	before := s.get(f.JobID)
	part := store.Part{
		Key: "jobs/x/parts/1", Shard: 3, Rows: 2, Accepted: []byte{0, 255, 1},
		Totals: store.RowTotals{Rows: 2, Failed: 1, TruncatedRows: 1, TruncatedOutputs: 1, InputTokens: 10, OutputTokens: 20, Deduplicated: 1}, Size: 99,
	}
	s.must(s.CommitParts(s.Context(), f, []store.Part{part}))
	s.wantEqual("parts", []store.Part{part}, s.parts(f.JobID))
	after := s.get(f.JobID)
	want := before
	want.Job.RowsDone, want.Job.FailedRows, want.Job.TruncatedRows, want.Job.TruncatedOutputs = 2, 1, 1, 1
	want.Job.InputTokens, want.Job.OutputTokens = new(int64(10)), new(int64(20))
	want.Job.DeduplicatedRows = 1
	want.Version, want.Claims = after.Version, nil
	s.wantSame("record: its progress grows, and nothing else changes", want, after)
	if after.Version <= before.Version {
		s.Errorf("the commit changes version %d to %d, want a larger version", before.Version, after.Version)
	}
	s.must(s.CommitParts(s.Context(), f, nil))
	s.wantUnchanged(after)
}

// testCommitPartsRepeated repeats commits: late, and with only some of the parts.
func testCommitPartsRepeated(s *suite) {
	f := s.createRunning(100)
	of := func(key string, n int64) store.Part {
		return store.Part{Key: key, Rows: n, Totals: store.RowTotals{Rows: n, InputTokens: n, OutputTokens: n}}
	}
	a, b, c := of("a", 1), of("b", 2), of("c", 4)
	commit := func(parts ...store.Part) {
		s.Helper()
		s.must(s.CommitParts(s.Context(), f, parts))
	}
	commit(a, b)
	commit(b, c)
	commit(b, c)
	s.wantParts(f.JobID, "a", "b", "c")
	commit(a, b)
	s.wantParts(f.JobID, "a", "b", "c")
	if job := s.get(f.JobID).Job; job.RowsDone != 7 || *job.InputTokens != 7 || *job.OutputTokens != 7 {
		s.Errorf("a late repeat changed the progress: %d rows, %d and %d tokens", job.RowsDone, *job.InputTokens, *job.OutputTokens)
	}
	// Only the key identifies a part, even if the rest differs; a key counts once per
	// call.
	changed := a
	changed.Rows = 50
	commit(changed, store.Part{Key: "d", Rows: 1}, store.Part{Key: "d", Rows: 1})
	s.wantParts(f.JobID, "a", "b", "c", "d")
	if got := s.parts(f.JobID)[0].Rows; got != 1 {
		s.Errorf("part a has %d rows after a repeat, want 1", got)
	}
	// The same key in another job is another part.
	other := s.createRunning(1)
	s.commit(other, a)
	s.wantParts(other.JobID, "a")

	// The next owner may repeat a commit of its predecessor.
	s.must(s.CloseSession(s.Context(), f.Session))
	f = s.claim(f.JobID, s.session())
	commit(a, b, c)
	s.wantParts(f.JobID, "a", "b", "c", "d")
}

func testCommitPartsRace(s *suite) {
	f := s.createRunning(64)
	s.callAtOnce(16, func(i int) error {
		part := store.Part{Key: fmt.Sprint("p", i/2), Rows: 8} // each key twice
		return s.CommitParts(s.Context(), f, []store.Part{part})
	})
	if got := len(s.parts(f.JobID)); got != 8 {
		s.Errorf("%d parts, want 8", got)
	}
	s.must(s.Finish(s.Context(), f, func(r *store.Record) error { return moveThrough(r, rowmill.StatusSucceeded) }))
}

func testReplaceParts(s *suite) {
	f := s.createRunning(100)
	s.commit(f,
		store.Part{Key: "0a", Shard: 0, Rows: 1}, store.Part{Key: "1a", Shard: 1, Rows: 2},
		store.Part{Key: "1b", Shard: 1, Rows: 3}, store.Part{Key: "2a", Shard: 2, Rows: 9})
	before := s.get(f.JobID)
	complete := store.Part{Key: "1", Shard: 1, Rows: 5, Complete: true, Size: 7, Totals: store.RowTotals{Rows: 5}}
	for name, wrong := range map[string]store.Part{
		"fewer rows": {Key: "1", Shard: 1, Rows: 4, Complete: true},
		"more rows":  {Key: "1", Shard: 1, Rows: 6, Complete: true},
		"no parts":   {Key: "9", Shard: 9, Rows: 1, Complete: true},
	} {
		s.wantError(name, rowmill.ErrConflict)(s.ReplaceParts(s.Context(), f, wrong))
	}
	s.wantParts(f.JobID, "0a", "1a", "1b", "2a")
	for range 2 {
		s.must(s.ReplaceParts(s.Context(), f, complete))
		s.wantParts(f.JobID, "0a", "1", "2a")
	}
	s.wantEqual("complete part", complete, s.parts(f.JobID)[1])
	after := s.get(f.JobID)
	s.wantSame("progress", before.Job, after.Job)

	// A late repeat of a merged part must not restore it.
	s.commit(f, store.Part{Key: "1a", Shard: 1, Rows: 2})
	s.wantParts(f.JobID, "0a", "1", "2a")

	// A second merge replaces the first. A repeat of the first changes nothing.
	second := complete
	second.Key = "1-second"
	for _, p := range []store.Part{second, complete, second} {
		s.must(s.ReplaceParts(s.Context(), f, p))
		s.wantParts(f.JobID, "0a", "1-second", "2a")
	}

	// A part that holds its whole shard can itself become the complete part.
	whole := store.Part{Key: "2a", Shard: 2, Rows: 9, Complete: true}
	s.must(s.ReplaceParts(s.Context(), f, whole))
	s.wantEqual("promoted part", whole, s.parts(f.JobID)[2])
}

func testLoseParts(s *suite) {
	whole := s.createRunning(1)
	s.finish(whole, rowmill.StatusSucceeded)
	s.wantError("of a job that succeeded", rowmill.ErrConflict)(s.MarkPartsLost(s.Context(), store.Fence{JobID: whole.JobID}, []string{"all"}, nil))
	f := s.createRunning(8)
	of := func(rows, failed int64) store.RowTotals {
		return store.RowTotals{Rows: rows, Failed: failed, InputTokens: 10 * rows, OutputTokens: 3 * rows}
	}
	carried := store.Part{Key: "c", Shard: 2, Rows: 1, Complete: true, Carried: true, Totals: store.RowTotals{Rows: 1}}
	parts := []store.Part{
		{Key: "a", Shard: 0, Rows: 3, Accepted: []byte{1}, Totals: of(3, 1)},
		{Key: "b", Shard: 1, Rows: 2, Accepted: []byte{2}, Totals: of(2, 0)},
		carried,
	}
	s.must(s.CommitParts(s.Context(), f, parts))
	usage := func() (sum store.RowTotals) {
		s.Helper()
		days := must.Get(s.Usage(s.Context(), "a", time.Time{}, time.Now().AddDate(1, 0, 0)))(s)
		for _, u := range days {
			sum = sum.Plus(u.Totals)
		}
		return sum
	}
	used := usage() // usage by both jobs before the loss
	wantJob := func(what string, done, failed, tokens int64, kept, lost string) {
		s.Helper()
		job := s.get(f.JobID).Job
		if job.RowsDone != done || job.FailedRows != failed || *job.InputTokens != tokens {
			s.Errorf("%s: %d rows done, %d failed, %d input tokens; want %d, %d and %d", what, job.RowsDone, job.FailedRows, *job.InputTokens, done, failed, tokens)
		}
		s.wantParts(f.JobID, strings.Fields(kept)...)
		all, err := s.LostParts(s.Context(), f.JobID)
		var keys []string
		for _, p := range all {
			keys = append(keys, p.Key)
		}
		if err != nil || strings.Join(keys, " ") != lost {
			s.Errorf("%s: lost parts %v, %v; want %s", what, keys, err, lost)
		}
	}
	stale := f
	stale.Epoch--
	s.wantError("with an old fence", rowmill.ErrLeaseLost)(s.MarkPartsLost(s.Context(), stale, []string{"a"}, nil))
	warns := 0
	for range 2 {
		lost, err := s.MarkPartsLost(s.Context(), f, []string{"a", "c", "none"}, func(r *store.Record) {
			warns++
			r.Job.Warnings = append(r.Job.Warnings, "lost")
		})
		if err != nil || lost.Rows != 4 || lost.InputTokens != 30 {
			s.Fatalf("LoseParts returns %+v, %v; want 4 rows and 30 input tokens", lost, err)
		}
		wantJob("after the loss", 2, 0, 50, "b", "a c")
	}
	if warnings := s.get(f.JobID).Job.Warnings; len(warnings) != 1 || warns == 0 {
		s.Errorf("the job has the warnings %q after two equal calls, want one", warnings)
	}
	// A late repeat of a commit restores no lost part and does not change the progress
	// fields.
	s.must(s.CommitParts(s.Context(), f, parts[:2]))
	s.must(s.MarkPartsLost(s.Context(), f, []string{"a", "c"}, nil))
	wantJob("after a late repeat", 2, 0, 50, "b", "a c")
	// A carried part is written again under its key; other rows run again and cost again.
	s.must(s.CommitParts(s.Context(), f, []store.Part{carried}))
	wantJob("with the carried part", 3, 0, 50, "b c", "a")
	again := store.Part{Key: "d", Shard: 0, Rows: 3, Accepted: []byte{1}, Totals: of(3, 0)}
	s.must(s.CommitParts(s.Context(), f, []store.Part{again}))
	wantJob("after the rows ran again", 6, 0, 80, "d b c", "a")
	if now := usage(); now != used.Plus(of(3, 0)) {
		s.Errorf("the ledger has %+v, want %+v", now, used.Plus(of(3, 0)))
	}
	s.must(s.ReplaceParts(s.Context(), f, store.Part{Key: "e", Shard: 0, Rows: 3, Complete: true, Totals: of(3, 0)}))
	wantJob("after a merge", 6, 0, 80, "e b c", "a")
	// For an ended job, MarkPartsLost needs no fence.
	s.finish(f, rowmill.StatusFailed)
	s.must(s.MarkPartsLost(s.Context(), store.Fence{JobID: f.JobID}, []string{"e"}, nil))
	s.reopen()
	wantJob("of a job that is over", 3, 0, 80, "b c", "a e")
	s.must(s.DropParts(s.Context(), f.JobID))
	wantJob("without parts", 3, 0, 80, "", "")
}

func testListParts(s *suite) {
	s.wantError("parts of an unknown job", rowmill.ErrNotFound)(s.ListParts(s.Context(), "job-none"))
	f := s.createRunning(100)
	if parts := s.parts(f.JobID); len(parts) != 0 {
		s.Errorf("a new job has the parts %v, want none", parts)
	}
	s.commit(f, store.Part{Key: "z", Shard: 256, Rows: 1}, store.Part{Key: "y", Shard: 1, Rows: 1})
	s.commit(f, store.Part{Key: "x", Shard: 256, Rows: 1})
	s.commit(f, store.Part{Key: "b", Shard: 0, Rows: 1}, store.Part{Key: "a", Shard: 0, Rows: 1}, store.Part{Key: "c", Shard: 70000, Rows: 1})
	// A job with a longer id must not see the parts of this job.
	twin := s.newRecord("a")
	twin.Job.ID = f.JobID + "0"
	s.must(s.Create(s.Context(), twin, nil))
	s.commit(s.claim(twin.Job.ID, s.session()), store.Part{Key: "twin", Rows: 1})
	s.wantParts(f.JobID, "b", "a", "y", "z", "x", "c")
	s.reopen()
	s.wantParts(f.JobID, "b", "a", "y", "z", "x", "c")
}

func testDropParts(s *suite) {
	s.wantError("parts of an unknown job", rowmill.ErrNotFound)(s.DropParts(s.Context(), "job-none"))
	f, other := s.createRunning(3), s.createRunning(1)
	s.commit(f, store.Part{Key: "a", Rows: 2}, store.Part{Key: "b", Shard: 1, Rows: 1})
	s.commit(other, store.Part{Key: "a", Rows: 1})
	s.wantError("parts of a running job", rowmill.ErrConflict)(s.DropParts(s.Context(), f.JobID))
	s.wantParts(f.JobID, "a", "b")
	s.must(s.Finish(s.Context(), f, func(r *store.Record) error { return moveThrough(r, rowmill.StatusSucceeded) }))
	before := s.get(f.JobID)
	for range 2 {
		s.must(s.DropParts(s.Context(), f.JobID))
	}
	if parts := s.parts(f.JobID); len(parts) != 0 {
		s.Errorf("after DropParts the job has the parts %v, want none", parts)
	}
	s.wantSame("the job", before.Job, s.get(f.JobID).Job)
	s.wantParts(other.JobID, "a")
}
