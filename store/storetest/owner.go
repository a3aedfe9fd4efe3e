package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

func testSessions(s *suite) {
	seen := map[string]bool{}
	for range 20 {
		id := s.session()
		if id == "" || seen[id] {
			s.Fatalf("the session id %q is empty or was used before, want a new one", id)
		}
		seen[id] = true
	}
	id := s.session()
	if n, err := s.CountLiveSessions(s.Context()); n != 21 || err != nil {
		s.Errorf("LiveSessions returns %d, %v; want 21", n, err)
	}
	s.must(s.RenewSession(s.Context(), id))
	s.wantError("renew an unknown session", rowmill.ErrLeaseLost)(s.RenewSession(s.Context(), "unknown"))
	for range 2 {
		s.must(s.CloseSession(s.Context(), id))
	}
	s.must(s.CloseSession(s.Context(), "unknown"))
	s.wantError("renew a closed session", rowmill.ErrLeaseLost)(s.RenewSession(s.Context(), id))
	s.wantError("a session without a ttl is accepted", errAny)(s.OpenSession(s.Context(), "node", 0))
}

func testSessionExpires(s *suite) {
	id := must.Get(s.OpenSession(s.Context(), "node", s.TTL))(s)
	f := s.claim(s.create("a"), id)
	for range 3 { // a renewed session lives longer than its ttl
		s.Advance(s.TTL * 6 / 10)
		s.must(s.RenewSession(s.Context(), id))
	}
	s.update(f, func(*store.Record) error { return nil })
	before := s.get(f.JobID)
	s.Advance(s.TTL * 2)
	s.wantLeaseLost("after its session expired", f)
	s.wantError("renew an expired session", rowmill.ErrLeaseLost)(s.RenewSession(s.Context(), id))
	s.wantLeaseLost("after a renewal that came too late", f)
	s.wantError("claim with an expired session", rowmill.ErrLeaseLost)(s.Claim(s.Context(), s.create("a"), id, store.Claim{}))
	s.wantUnchanged(before)
	if got := s.claim(f.JobID, s.session()); got.Epoch <= f.Epoch {
		s.Errorf("the new owner has epoch %d after epoch %d, want a larger one", got.Epoch, f.Epoch)
	}
}

// wantLeaseLost checks that every write under f returns ErrLeaseLost.
func (s *suite) wantLeaseLost(when string, f store.Fence) {
	s.Helper()
	nothing := func(*store.Record) error { return nil }
	_, update := s.Update(s.Context(), f, nothing)
	_, finish := s.Finish(s.Context(), f, func(r *store.Record) error { return moveThrough(r, rowmill.StatusFailed) })
	for name, err := range map[string]error{
		"Update":       update,
		"Finish":       finish,
		"Release":      s.Release(s.Context(), f),
		"CommitParts":  s.CommitParts(s.Context(), f, []store.Part{{Key: "late", Rows: 1}}),
		"ReplaceParts": s.ReplaceParts(s.Context(), f, store.Part{Key: "late", Rows: 1, Complete: true}),
	} {
		if !errors.Is(err, rowmill.ErrLeaseLost) {
			s.Errorf("%s %s: %v, want ErrLeaseLost", name, when, err)
		}
	}
}

func testClaim(s *suite) {
	id, session := s.create("a"), s.session()
	created := s.get(id)
	rec := must.Get(s.Claim(s.Context(), id, session, store.Claim{}))(s)
	if rec.Session != session || rec.Epoch <= created.Epoch || rec.Job.Status != rowmill.StatusSubmitted || rec.Version <= created.Version {
		s.Errorf("the claimed record has session %q, epoch %d, status %s, version %d; want the session, a larger epoch, submitted, a larger version", rec.Session, rec.Epoch, rec.Job.Status, rec.Version)
	}
	s.wantSame("specification", created.Spec, rec.Spec)
	s.wantUnchanged(rec)

	// A job with progress keeps its status under its next owner.
	f := store.Fence{JobID: id, Session: session, Epoch: rec.Epoch}
	s.update(f, func(r *store.Record) error { return moveThrough(r, rowmill.StatusStarting) })
	s.must(s.CloseSession(s.Context(), session))
	next := must.Get(s.Claim(s.Context(), id, s.session(), store.Claim{}))(s)
	if next.Job.Status != rowmill.StatusStarting || next.Epoch <= rec.Epoch {
		s.Errorf("the next owner gets status %s and epoch %d, want starting and an epoch above %d", next.Job.Status, next.Epoch, rec.Epoch)
	}
}

func testClaimRefuses(s *suite) {
	session := s.session()
	f := s.claim(s.create("a"), session)
	before := s.get(f.JobID)
	for _, by := range []string{session, s.session()} {
		s.wantError("claim of a job with a live owner", rowmill.ErrConflict)(s.Claim(s.Context(), f.JobID, by, store.Claim{}))
	}
	s.wantUnchanged(before)
	for _, by := range []string{"unknown", ""} {
		s.wantError(fmt.Sprintf("claim with session %q", by), rowmill.ErrLeaseLost)(s.Claim(s.Context(), s.create("a"), by, store.Claim{}))
	}
	s.wantError("claim of an unknown job", rowmill.ErrNotFound)(s.Claim(s.Context(), "job-none", session, store.Claim{}))
	ended := s.create("a")
	s.must(s.Cancel(s.Context(), ended, s.start, nil))
	s.wantError("claim of a cancelled job", rowmill.ErrTerminal)(s.Claim(s.Context(), ended, session, store.Claim{}))
}

func testClaimRace(s *suite) {
	id := s.create("a")
	sessions := make([]string, 16)
	for i := range sessions {
		sessions[i] = s.session()
	}
	won := s.countWinners(len(sessions), rowmill.ErrConflict, func(i int) error {
		return last(s.Claim(s.Context(), id, sessions[i], store.Claim{}))
	})
	if won != 1 {
		s.Errorf("%d sessions own the job, want 1", won)
	}
}

func testRelease(s *suite) {
	session := s.session()
	f := s.claim(s.create("a"), session)
	s.must(s.Release(s.Context(), f))
	s.wantLeaseLost("after the release", f)
	if got := s.orphans(10); !slices.Equal(got, []string{f.JobID}) {
		s.Errorf("the orphans are %v, want the released job", got)
	}
	again := s.claim(f.JobID, session)
	if again.Epoch <= f.Epoch {
		s.Errorf("the epoch is %d after epoch %d, want a larger one", again.Epoch, f.Epoch)
	}
	s.wantLeaseLost("with the epoch before the release", f)
}

func testFencing(s *suite) {
	f := s.createClaimed("a")
	before := s.get(f.JobID)
	for name, makeInvalid := range map[string]func(*store.Fence){
		"with an older epoch":     func(f *store.Fence) { f.Epoch-- },
		"with a later epoch":      func(f *store.Fence) { f.Epoch++ },
		"with another session":    func(f *store.Fence) { f.Session = s.session() },
		"with an unknown session": func(f *store.Fence) { f.Session = "unknown" },
		"without a session":       func(f *store.Fence) { f.Session = "" },
		"as the owner of another job": func(g *store.Fence) {
			*g = store.Fence{JobID: f.JobID, Session: s.createClaimed("b").Session, Epoch: 1}
		},
	} {
		invalid := f
		makeInvalid(&invalid)
		s.wantLeaseLost(name, invalid)
	}
	unowned := store.Fence{JobID: s.create("a")}
	s.wantLeaseLost("without a session on a job that has none", unowned)
	s.wantUnchanged(before)
	unknown := store.Fence{JobID: "job-none", Session: f.Session, Epoch: 1}
	s.wantError("update of an unknown job", rowmill.ErrNotFound)(s.Update(s.Context(), unknown, func(*store.Record) error { return nil }))
}

// orphans returns the ids of up to limit orphans.
func (s *suite) orphans(limit int) []string {
	s.Helper()
	found := must.Get(s.Orphans(s.Context(), limit))(s)
	out := []string{}
	for _, o := range found {
		out = append(out, o.JobID)
	}
	return out
}

func testOrphansFair(s *suite) {
	if got := s.orphans(5); len(got) != 0 {
		s.Errorf("an empty store has the orphans %v, want none", got)
	}
	byAccount := map[string][]string{}
	for range 5 {
		byAccount["big"] = append(byAccount["big"], s.create("big"))
	}
	for range 2 {
		byAccount["small"] = append(byAccount["small"], s.create("small"))
		byAccount["tiny"] = append(byAccount["tiny"], s.create("tiny"))
	}
	ended := s.create("small")
	s.must(s.Cancel(s.Context(), ended, s.start, nil))
	found := must.Get(s.Orphans(s.Context(), 100))(s)
	// The n-th orphan of each account comes before all n+1-th orphans, and the orphans of
	// an account come oldest first.
	rank := map[string]int{}
	last := 0
	for _, o := range found {
		if o.Status != rowmill.StatusPending {
			s.Errorf("orphan %s has the status %s, want pending", o.JobID, o.Status)
		}
		n := rank[o.Account]
		if n < last {
			s.Errorf("orphan %d of account %s comes after orphan %d of another account, want the accounts in turn: %v", n, o.Account, last, found)
		}
		last = n
		rank[o.Account]++
		if want := byAccount[o.Account]; n >= len(want) || want[n] != o.JobID {
			s.Errorf("orphan %d of account %s is job %s, want the order %v", n, o.Account, o.JobID, want)
		}
	}
	if len(found) != 9 {
		s.Errorf("%d orphans, want 9", len(found))
	}
	for limit := range 10 {
		if got := s.orphans(limit); len(got) != limit {
			s.Errorf("limit %d: %d orphans", limit, len(got))
		}
	}
}

// testOrphansPriority checks that orphans have the priority of their jobs.
func testOrphansPriority(s *suite) {
	want := map[string]rowmill.Priority{}
	for _, priority := range rowmill.Priorities() {
		for _, released := range []bool{false, true} {
			rec := s.newRecord(fmt.Sprint("account-", priority))
			rec.Job.Priority, rec.Spec.Priority = priority, priority
			s.must(s.Create(s.Context(), rec, nil))
			want[rec.Job.ID] = priority
			if released {
				claimed := s.claim(rec.Job.ID, s.session())
				s.must(s.Release(s.Context(), claimed))
			}
		}
	}
	found, err := s.Orphans(s.Context(), 100)
	if err != nil || len(found) != len(want) {
		s.Fatalf("%d orphans, %v, want %d", len(found), err, len(want))
	}
	for _, o := range found {
		if o.Priority != want[o.JobID] || o.Account != fmt.Sprint("account-", o.Priority) {
			s.Errorf("the orphan is %+v, want priority %d", o, want[o.JobID])
		}
	}
}

// testOrphansTakeTurns claims one job at a time, like a node with few slots.
func testOrphansTakeTurns(s *suite) {
	for name, ended := range map[string]bool{"jobs that last": false, "jobs that end at once": true} {
		big, small := name+" big", name+" small"
		var backlog []string
		for range 6 {
			backlog = append(backlog, s.create(big))
		}
		late := s.create(small)
		session := s.session()
		claimed := []string{}
		for range 2 {
			next := s.orphans(1)
			if len(next) != 1 {
				s.Fatalf("%s: orphans %v", name, next)
			}
			f := s.claim(next[0], session)
			claimed = append(claimed, f.JobID)
			if ended {
				s.finish(f, rowmill.StatusFailed)
			}
		}
		if !slices.Contains(claimed, late) {
			s.Errorf("%s: claimed %v while the job of account %q waits", name, claimed, small)
		}
		for _, id := range append(backlog, late) { // cancel all jobs, so that none is left for the next round
			if _, err := s.Cancel(s.Context(), id, s.start, nil); err != nil && !errors.Is(err, rowmill.ErrTerminal) {
				s.Fatal(err)
			}
		}
	}
}

func testOrphansOfTheDead(s *suite) {
	expiring := must.Get(s.OpenSession(s.Context(), "node", s.TTL))(s)
	closed, live := s.session(), s.session()
	a := s.claim(s.create("a"), expiring)
	b := s.claim(s.create("a"), closed)
	s.claim(s.create("a"), live)
	d := s.create("a")
	if got := s.orphans(10); !slices.Equal(got, []string{d}) {
		s.Errorf("the orphans are %v, want the unclaimed job", got)
	}
	s.Advance(2 * s.TTL)
	s.must(s.CloseSession(s.Context(), closed))
	s.wantEqual("orphans", []string{a.JobID, b.JobID, d}, s.orphans(10))
	found, err := s.Orphans(s.Context(), 1)
	if err != nil || len(found) != 1 || found[0].JobID != a.JobID || found[0].Account != "a" || found[0].Status != rowmill.StatusSubmitted {
		s.Errorf("the first orphan is %+v, %v; want the submitted job %s of account a", found, err, a.JobID)
	}
	s.claim(a.JobID, live)
	s.wantEqual("orphans after a claim", []string{b.JobID, d}, s.orphans(10))
}

// testOneOwner simulates nodes that crash, restart and write late, and compares the
// store with a model of the job's owner.
func testOneOwner(s *suite) {
	rapid.Check(s.T, func(t *rapid.T) {
		id := s.create("a")
		var fences []store.Fence // fences of all claims so far
		owner := -1              // index in fences of the valid fence; -1 for none
		epoch := int64(0)
		alive := map[string]bool{}
		var open []string
		for step := range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"open", "close", "claim", "release", "write"}).Draw(t, fmt.Sprint("step", step)) {
			case "open":
				session := s.session()
				open, alive[session] = append(open, session), true
			case "close":
				if len(open) > 0 {
					session := rapid.SampledFrom(open).Draw(t, "closed")
					must.Succeed(t, s.CloseSession(s.Context(), session))
					alive[session] = false
				}
			case "claim":
				if len(open) == 0 {
					continue
				}
				session := rapid.SampledFrom(open).Draw(t, "claimer")
				rec, err := s.Claim(s.Context(), id, session, store.Claim{})
				held := owner >= 0 && alive[fences[owner].Session]
				switch {
				case !alive[session]:
					if !errors.Is(err, rowmill.ErrLeaseLost) {
						t.Fatalf("claim with a dead session: %v", err)
					}
				case held:
					if !errors.Is(err, rowmill.ErrConflict) {
						t.Fatalf("claim of an owned job: %v", err)
					}
				case err != nil || rec.Epoch <= epoch:
					t.Fatalf("claim: epoch %d after epoch %d, %v; want a larger epoch", rec.Epoch, epoch, err)
				default:
					epoch = rec.Epoch
					owner = len(fences)
					fences = append(fences, store.Fence{JobID: id, Session: session, Epoch: epoch})
				}
			case "release", "write":
				if len(fences) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(fences)-1).Draw(t, "writer")
				release := rapid.Bool().Draw(t, "release")
				var err error
				if release {
					err = s.Release(s.Context(), fences[i])
				} else {
					err = s.CommitParts(s.Context(), fences[i], nil)
				}
				if allowed := i == owner && alive[fences[i].Session]; allowed != (err == nil) || err != nil && !errors.Is(err, rowmill.ErrLeaseLost) {
					t.Fatalf("write with epoch %d while the job has epoch %d: %v; allowed: %v", fences[i].Epoch, epoch, err, allowed)
				}
				if release && err == nil {
					owner = -1
				}
			}
		}
		must.Get(s.Cancel(s.Context(), id, time.Now(), nil))(t)
	})
}

// testRevisions compares the results of Revisions with the records, also for a missing
// record.
func testRevisions(s *suite) {
	f, waiting := s.createRunning(3), s.create("b")
	ended := s.createRunning(1)
	s.finish(ended, rowmill.StatusFailed)
	marks, err := s.Revisions(s.Context(), []string{waiting, "job-none", f.JobID, ended.JobID}, "nobody")
	if err != nil || len(marks) != 4 {
		s.Fatalf("Revisions returns %d marks, %v; want 4", len(marks), err)
	}
	for i, id := range []string{waiting, "", f.JobID, ended.JobID} {
		var want store.Revision
		if id != "" {
			rec := s.get(id)
			want = store.Revision{Version: rec.Version, Session: rec.Session, Epoch: rec.Epoch, Status: rec.Job.Status}
		}
		if marks[i] != want {
			s.Errorf("mark %d is %+v, want %+v", i, marks[i], want)
		}
	}
	if marks, err := s.Revisions(s.Context(), nil, "nobody"); err != nil || len(marks) != 0 {
		s.Errorf("marks of no jobs: %v, %v", marks, err)
	}
}
