package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

func testUpdate(s *suite) {
	f := s.createClaimed("a")
	before := s.get(f.JobID)
	s.wantSame("listed", before.Job, newestJob(s))
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	after := s.update(f, func(r *store.Record) error {
		s.wantSame("the record given to the change", before, *r)
		r.Job.NumRows, r.Shards = new(int64(7)), 2
		r.Job.Message, r.Job.Warnings = "reading", []string{"w"}
		r.Job.System, r.Job.Sampling = new("changed"), map[string]any{"max_tokens": 5}
		r.DownloadStarted, r.DownloadFinished = &at, &at
		r.Artifacts = map[string]store.Artifact{"rows": {Key: "k", Size: 1}}
		return r.Job.Become(rowmill.StatusStarting, at)
	})
	if after.Version <= before.Version {
		s.Errorf("the update changes version %d to %d, want a larger version", before.Version, after.Version)
	}
	if after.Job.Status != rowmill.StatusStarting || after.Job.NumRows == nil || *after.Job.NumRows != 7 || after.Shards != 2 ||
		after.Job.Message != "reading" || after.DownloadStarted == nil || !after.DownloadStarted.Equal(at) || *after.Job.System != "changed" {
		s.Errorf("the updated record is %s, want the changed values", asJSON(s, after))
	}
	s.wantUnchanged(after)
	s.wantSame("listed", after.Job, newestJob(s))
	s.wantSame("specification", before.Spec, after.Spec)

	mine := errors.New("mine")
	_, err := s.Update(s.Context(), f, func(r *store.Record) error {
		r.Job.Message = "lost"
		return fmt.Errorf("wrapped: %w", mine)
	})
	if !errors.Is(err, mine) {
		s.Errorf("Update returns %v, want the error of the change function", err)
	}
	s.wantUnchanged(after)

	cleared := s.update(f, func(r *store.Record) error { r.Job.System = nil; return nil })
	if cleared.Job.System != nil || s.get(f.JobID).Job.System != nil {
		s.Error("the record still has the system prompt, want none")
	}
	s.wantSame("listed", cleared.Job, newestJob(s))
}

// newestJob returns the newest job of account a.
func newestJob(s *suite) rowmill.Job {
	s.Helper()
	jobs, _, err := s.List(s.Context(), "a", 1, "")
	if err != nil || len(jobs) != 1 {
		s.Fatalf("list: %d jobs, %v", len(jobs), err)
	}
	return *jobs[0]
}

// testUpdateTransitions tries a change between every pair of states, directly and through
// other states.
func testUpdateTransitions(s *suite) {
	path := map[rowmill.Status][]rowmill.Status{
		rowmill.StatusSubmitted: {},
		rowmill.StatusStarting:  {rowmill.StatusStarting},
		rowmill.StatusRunning:   {rowmill.StatusStarting, rowmill.StatusRunning},
	}
	further := map[rowmill.Status][]rowmill.Status{ // reachable states, in any number of steps
		rowmill.StatusSubmitted: {rowmill.StatusSubmitted, rowmill.StatusStarting, rowmill.StatusRunning, rowmill.StatusFailed, rowmill.StatusCancelled},
		rowmill.StatusStarting:  {rowmill.StatusStarting, rowmill.StatusRunning, rowmill.StatusFailed, rowmill.StatusCancelled},
		rowmill.StatusRunning:   {rowmill.StatusRunning, rowmill.StatusFailed, rowmill.StatusCancelled},
	}
	for from, steps := range path {
		for _, to := range append(rowmill.Statuses(), "", rowmill.StatusUnknown, "nonsense") {
			if to == rowmill.StatusSucceeded {
				continue // a success needs parts; testFinishRecounts tests it
			}
			f := s.createClaimed("a")
			before := s.update(f, func(r *store.Record) error { return moveThrough(r, steps...) })
			_, err := s.Update(s.Context(), f, func(r *store.Record) error { r.Job.Status = to; return nil })
			legal := slices.Contains(further[from], to)
			var refused *rowmill.TransitionError
			switch {
			case legal && err != nil:
				s.Errorf("change from %s to %s: %v, want no error", from, to, err)
			case !legal && !errors.As(err, &refused):
				s.Errorf("change from %s to %q: %v, want a TransitionError", from, to, err)
			case !legal:
				s.wantUnchanged(before)
			}
		}
	}
}

func testUpdateRefuses(s *suite) {
	rec := s.newRecord("a")
	rec.Spec.Sampling = map[string]any{"seed": int64(1)<<62 + 1, "stop": []any{"x"}}
	rec.Spec.Schema = json.RawMessage(`{"type":"object"}`)
	s.must(s.Create(s.Context(), rec, nil))
	f := s.claim(rec.Job.ID, s.session())
	before := s.update(f, func(r *store.Record) error { r.Job.NumRows = new(int64(3)); return nil })
	for name, change := range map[string]func(*store.Record){
		"account":          func(r *store.Record) { r.Spec.Account = "b" },
		"id":               func(r *store.Record) { r.Job.ID = "job-other" },
		"key":              func(r *store.Record) { r.Job.KeyID = new("other") },
		"run type":         func(r *store.Record) { r.Job.RunType = rowmill.RunEstimate },
		"reserved":         func(r *store.Record) { r.Reserved = 1 },
		"created":          func(r *store.Record) { r.Job.Created = r.Job.Created.Add(1) },
		"session":          func(r *store.Record) { r.Session = "other" },
		"no session":       func(r *store.Record) { r.Session = "" },
		"epoch":            func(r *store.Record) { r.Epoch++ },
		"inline":           func(r *store.Record) { r.Spec.Inline[0] = "changed in place" },
		"more rows":        func(r *store.Record) { r.Spec.Inline = append(r.Spec.Inline, "another") },
		"model":            func(r *store.Record) { r.Spec.Model.ContextLength++ },
		"sampling":         func(r *store.Record) { r.Spec.Sampling["seed"] = int64(1) << 62 },
		"schema":           func(r *store.Record) { r.Spec.Schema[1] = ' ' },
		"system":           func(r *store.Record) { r.Spec.System = "other" },
		"num_rows":         func(r *store.Record) { r.Job.NumRows = new(int64(4)) },
		"num_rows inplace": func(r *store.Record) { *r.Job.NumRows = 4 },
		"num_rows unset":   func(r *store.Record) { r.Job.NumRows = nil },
	} {
		_, err := s.Update(s.Context(), f, func(r *store.Record) error { change(r); return nil })
		if err == nil {
			s.Errorf("Update accepts a change of %s, want an error", name)
		}
		s.wantUnchanged(before)
	}
	s.update(f, func(r *store.Record) error { r.Job.NumRows = new(int64(3)); return nil })
}

func testUpdatePanics(s *suite) {
	f := s.createClaimed("a")
	before := s.get(f.JobID)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s.wantError("a change that panics is accepted", errAny)(s.Update(s.Context(), f, func(*store.Record) error { panic("a bug") }))
		})
		rec := s.newRecord("a")
		wg.Go(func() {
			if _, _, err := s.Create(s.Context(), rec, nil); err != nil {
				s.Errorf("a create beside a change that panics: %v", err)
			}
		})
	}
	wg.Wait()
	s.wantUnchanged(before)
}

func testUpdateRace(s *suite) {
	f := s.createClaimed("a")
	const callers = 24
	s.callAtOnce(callers, func(int) error {
		return last(s.Update(s.Context(), f, func(r *store.Record) error { r.Shards++; return nil }))
	})
	if got := s.get(f.JobID).Shards; got != callers {
		s.Errorf("%d of %d updates are in the record, want all", got, callers)
	}
}

func testFinish(s *suite) {
	f := s.createRunning(2)
	s.commit(f, store.Part{Key: "p", Rows: 2})
	s.wantError("a finish that ends nothing is accepted", errAny)(s.Finish(s.Context(), f, func(*store.Record) error { return nil }))
	rec, err := s.Finish(s.Context(), f, func(r *store.Record) error {
		r.Job.JobCost = new(0.25)
		r.Artifacts = map[string]store.Artifact{"full": {Key: "k", Size: 3}}
		return moveThrough(r, rowmill.StatusSucceeded)
	})
	must.Succeed(s, err)
	if rec.Job.Status != rowmill.StatusSucceeded || *rec.Job.JobCost != 0.25 || rec.Artifacts["full"].Size != 3 || rec.Job.Completed == nil {
		s.Errorf("the finished record is %s, want the values of the change", asJSON(s, rec))
	}
	s.wantUnchanged(rec)
	if parts, err := s.ListParts(s.Context(), f.JobID); err != nil || len(parts) != 1 {
		s.Errorf("after the finish there are %d parts, %v; want 1", len(parts), err)
	}

	failed := s.createClaimed("a")
	rec, err = s.Finish(s.Context(), failed, func(r *store.Record) error {
		r.Job.FailureReason = rowmill.Failf(rowmill.CodeDownloadFailed, "gone")
		return moveThrough(r, rowmill.StatusFailed)
	})
	if err != nil || rec.Job.FailureReason == nil || rec.Job.FailureReason.Code != rowmill.CodeDownloadFailed {
		s.Errorf("the failed record is %s, %v; want the failure reason", asJSON(s, rec), err)
	}
	if got := s.orphans(10); len(got) != 0 {
		s.Errorf("ended jobs are listed as orphans, want none: %v", got)
	}
}

func testFinishRecounts(s *suite) {
	succeed := func(r *store.Record) error { return moveThrough(r, rowmill.StatusSucceeded) }
	f := s.createRunning(10)
	attempts := map[string]func(store.Fence) error{
		"Finish": func(f store.Fence) error { _, err := s.Finish(s.Context(), f, succeed); return err },
		"Update": func(f store.Fence) error { _, err := s.Update(s.Context(), f, succeed); return err },
	}
	refuse := func(when string) {
		s.Helper()
		before := s.get(f.JobID)
		for name, attempt := range attempts {
			s.wantError(fmt.Sprintf("%s with %s", name, when), rowmill.ErrConflict)(attempt(f))
		}
		s.wantUnchanged(before)
	}
	refuse("no parts")
	s.must(s.CommitParts(s.Context(), f, []store.Part{{Key: "a", Shard: 0, Rows: 4}, {Key: "b", Shard: 1, Rows: 5}}))
	refuse("a row missing")
	other := s.createRunning(10)
	s.commit(other, store.Part{Key: "other", Rows: 1})
	refuse("the missing row in another job's part")
	s.commit(f, store.Part{Key: "c", Shard: 1, Rows: 1})
	s.must(s.ReplaceParts(s.Context(), f, store.Part{Key: "d", Shard: 1, Rows: 6, Complete: true}))
	s.must(s.Finish(s.Context(), f, succeed))

	f = s.createRunning(1)
	s.commit(f, store.Part{Key: "a", Rows: 1}, store.Part{Key: "b", Rows: 1})
	refuse("a row too many")

	f = s.createClaimed("a")
	s.update(f, func(r *store.Record) error { return moveThrough(r, rowmill.StatusStarting, rowmill.StatusRunning) })
	refuse("rows that were never counted")
}

// testTerminal checks that no call changes a job that has ended.
func testTerminal(s *suite) {
	for _, end := range []rowmill.Status{rowmill.StatusSucceeded, rowmill.StatusFailed, rowmill.StatusCancelled} {
		f := s.createRunning(1)
		before := s.finish(f, end)
		_, update := s.Update(s.Context(), f, func(r *store.Record) error { r.Job.Message = "late"; return nil })
		_, finish := s.Finish(s.Context(), f, func(r *store.Record) error { r.Job.Status = rowmill.StatusFailed; return nil })
		_, cancel := s.Cancel(s.Context(), f.JobID, s.start, nil)
		_, claim := s.Claim(s.Context(), f.JobID, s.session(), store.Claim{})
		for name, err := range map[string]error{
			"Update": update, "Finish": finish, "Cancel": cancel, "Claim": claim,
			"Release":      s.Release(s.Context(), f),
			"CommitParts":  s.CommitParts(s.Context(), f, []store.Part{{Key: "late", Rows: 1}}),
			"ReplaceParts": s.ReplaceParts(s.Context(), f, store.Part{Key: "late", Rows: 1, Complete: true}),
		} {
			if !errors.Is(err, rowmill.ErrTerminal) {
				s.Errorf("%s of a job that is %s: %v, want ErrTerminal", name, end, err)
			}
		}
		s.wantUnchanged(before)
	}
}

func testCancel(s *suite) {
	s.wantError("cancel of an unknown job", rowmill.ErrNotFound)(s.Cancel(s.Context(), "job-none", s.start, nil))
	now := time.Date(2026, 7, 8, 9, 10, 11, 0, time.FixedZone("east", 3600))
	f := s.createRunning(5)
	s.commit(f, store.Part{Key: "p", Rows: 2})
	for name, id := range map[string]string{"pending": s.create("a"), "running": f.JobID} {
		rec, err := s.Cancel(s.Context(), id, now, func(r *store.Record) {
			r.Job.JobCost, r.Job.Message = new(float64(r.Job.RowsDone)), "cancelled by its owner"
		})
		if err != nil {
			s.Fatalf("%s: %v", name, err)
		}
		if rec.Job.Status != rowmill.StatusCancelled || rec.Job.Completed == nil || !rec.Job.Completed.Equal(now) ||
			rec.Job.JobCost == nil || *rec.Job.JobCost != float64(rec.Job.RowsDone) || rec.Job.Message == "" {
			s.Errorf("%s: the cancelled record is %s, want the values of the change", name, asJSON(s, rec))
		}
		s.wantUnchanged(rec)
		again, err := s.Cancel(s.Context(), id, now.Add(time.Hour), func(r *store.Record) { r.Job.Message = "again" })
		if !errors.Is(err, rowmill.ErrTerminal) {
			s.Errorf("%s: a second cancel returns %v, want ErrTerminal", name, err)
		}
		s.wantSame("the record of the second cancel", rec, again)
	}
	if got := s.get(f.JobID).Job.RowsDone; got != 2 {
		s.Errorf("the cancelled job has %d rows done, want the 2 committed", got)
	}
	id := s.create("a")
	before := s.get(id)
	s.wantError("a cancel that changes the id is accepted", errAny)(s.Cancel(s.Context(), id, now, func(r *store.Record) { r.Job.ID = "job-other" }))
	s.wantError("a cancel that panics is accepted", errAny)(s.Cancel(s.Context(), id, now, func(*store.Record) { panic("a bug") }))
	s.wantUnchanged(before)
}

// testCancelRace cancels jobs while their owners finish them: exactly one of the two
// calls must succeed.
func testCancelRace(s *suite) {
	for range 5 {
		f := s.createRunning(0)
		var won atomic.Int32
		var wg sync.WaitGroup
		count := func(name string, rec store.Record, err error) {
			switch {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, rowmill.ErrTerminal):
				s.Errorf("%s: %v", name, err)
			case name == "cancel" && !rec.Job.Status.IsTerminal():
				s.Errorf("a cancel that was too late returns a record with status %q, want an ended job", rec.Job.Status)
			}
		}
		for range 8 {
			wg.Go(func() {
				rec, err := s.Cancel(s.Context(), f.JobID, s.start, nil)
				count("cancel", rec, err)
			})
		}
		wg.Go(func() {
			rec, err := s.Finish(s.Context(), f, func(r *store.Record) error { return moveThrough(r, rowmill.StatusSucceeded) })
			count("finish", rec, err)
		})
		wg.Wait()
		if won.Load() != 1 {
			s.Errorf("%d calls ended the job, want 1", won.Load())
		}
	}
}

func testAddArtifact(s *suite) {
	s.wantError("unknown job", rowmill.ErrNotFound)(s.AddArtifact(s.Context(), "job-none", "v", store.Artifact{Key: "k"}))
	f := s.createRunning(1)
	s.wantError("running job", rowmill.ErrConflict)(s.AddArtifact(s.Context(), f.JobID, "v", store.Artifact{Key: "k"}))
	before := s.finish(f, rowmill.StatusSucceeded)
	for _, variant := range []string{"v", "w"} {
		for i := range 2 {
			rec := must.Get(s.AddArtifact(s.Context(), f.JobID, variant, store.Artifact{Key: fmt.Sprint("k", i), Size: int64(i)}))(s)
			if got := rec.Artifacts[variant]; got != (store.Artifact{Key: "k0"}) {
				s.Errorf("after call %d the artifact is %+v, want the artifact of the first call", i, got)
			}
			s.wantUnchanged(rec)
		}
	}
	for _, status := range []rowmill.Status{rowmill.StatusFailed, rowmill.StatusCancelled} {
		ended := s.createRunning(1)
		s.end(ended, status)
		if rec, err := s.AddArtifact(s.Context(), ended.JobID, "v", store.Artifact{Key: "k"}); err != nil || rec.Artifacts["v"].Key != "k" {
			s.Errorf("the artifacts of a %s job are %v, %v; want the added one", status, rec.Artifacts, err)
		}
	}
	after := s.get(f.JobID)
	if len(after.Artifacts) != 2 {
		s.Errorf("the job has the artifacts %v, want 2", after.Artifacts)
	}
	s.wantSame("the job", before.Job, after.Job)
}

func testReplaceArtifact(s *suite) {
	f := s.createRunning(1)
	first, second := store.Artifact{Key: "first", Size: 1}, store.Artifact{Key: "second", Size: 2}
	s.wantError("of a running job", rowmill.ErrConflict)(s.ReplaceArtifact(s.Context(), f.JobID, "v", store.Artifact{}, first))
	s.finish(f, rowmill.StatusSucceeded)
	s.must(s.AddArtifact(s.Context(), f.JobID, "v", first))
	for _, change := range []struct{ was, is, want store.Artifact }{
		{second, store.Artifact{Key: "third"}, first}, // the variant does not have the artifact second
		{first, second, second},
		{first, second, second}, // a repeated call
	} {
		rec, err := s.ReplaceArtifact(s.Context(), f.JobID, "v", change.was, change.is)
		if err != nil || rec.Artifacts["v"] != change.want {
			s.Errorf("replace artifact %+v with %+v: the record has %+v, %v; want %+v", change.was, change.is, rec.Artifacts["v"], err, change.want)
		}
	}
}

func testAddArtifactRace(s *suite) {
	f := s.createRunning(1)
	s.finish(f, rowmill.StatusSucceeded)
	winners := make([]string, 8)
	s.callAtOnce(len(winners), func(i int) error {
		rec, err := s.AddArtifact(s.Context(), f.JobID, "v", store.Artifact{Key: fmt.Sprint("k", i)})
		winners[i] = rec.Artifacts["v"].Key
		return err
	})
	if distinct := slices.Compact(winners); len(distinct) != 1 {
		s.Errorf("the calls returned the artifacts %v, want the same one from all", distinct)
	}
}

// testArtifactCrowd adds many artifacts to one record at the same time. All must be
// stored.
func testArtifactCrowd(s *suite) {
	f := s.createRunning(1)
	s.finish(f, rowmill.StatusSucceeded)
	const crowd = 200
	s.callAtOnce(crowd, func(i int) error {
		return last(s.AddArtifact(s.Context(), f.JobID, fmt.Sprint("v", i), store.Artifact{Key: fmt.Sprint("k", i)}))
	})
	if got := len(s.get(f.JobID).Artifacts); got != crowd {
		s.Errorf("the record has %d of %d added artifacts, want all", got, crowd)
	}
}
