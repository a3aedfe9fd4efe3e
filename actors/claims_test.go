package actors

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/actors/fair"
	"github.com/rowmill/rowmill/actors/poison"
	"github.com/rowmill/rowmill/store"
)

// After any sequence of calls, a job is claimed or owned once, and claims never
// exceed the places.
func TestClaimsKeepTheirLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(0, 3).Draw(t, "limit")
		s := newClaims(fair.Config{Places: limit})
		claiming, owned := map[string]bool{}, map[string]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if free := limit - len(claiming) - len(owned); s.places.Free() != free || free < 0 {
					t.Fatalf("%d places are free, want %d", s.places.Free(), free)
				}
				if s.isIdle() != (len(claiming)+len(owned) == 0) {
					t.Fatalf("idle is %v", s.isIdle())
				}
			},
			"begin": func(t *rapid.T) {
				job := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "job")
				may := !claiming[job] && !owned[job] && len(claiming)+len(owned) < limit
				if ok := s.beginClaim(store.OrphanJob{JobID: job, Account: "account"}, poison.Free, time.Now()); ok != may {
					t.Fatalf("claiming %s was allowed: %v", job, !may)
				}
				if may {
					claiming[job] = true
				}
			},
			"own": func(t *rapid.T) {
				for job := range claiming {
					s.markOwned(nil, store.Fence{JobID: job}, nil, nil)
					delete(claiming, job)
					owned[job] = true
					if o := s.owned[job]; o.fence.JobID != job || o.JobID != job || o.Account != "account" {
						t.Fatalf("%s is not owned", job)
					}
					return
				}
			},
			"end": func(t *rapid.T) {
				job := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "job")
				s.forgetJob(job)
				delete(claiming, job)
				delete(owned, job)
			},
		})
	})
}

// An orphan is left for a while to each node that comes before this one. If another
// node takes it meanwhile, the time starts again.
func TestOrphansAreLeftToEarlierNodes(t *testing.T) {
	t.Parallel()
	delay := func(o store.OrphanJob, _ time.Time) time.Duration {
		return claimStagger * map[string]time.Duration{"mine": 0, "next": 1, "last": 2}[o.JobID]
	}
	orphans := func(jobs ...string) (out []store.OrphanJob) {
		for _, job := range jobs {
			out = append(out, store.OrphanJob{JobID: job})
		}
		return out
	}
	s, began := newClaims(fair.Config{Places: 8}), time.Now()
	for _, step := range []struct {
		at   time.Duration
		seen []store.OrphanJob
		due  []string
	}{
		{0, orphans("mine", "next", "last"), []string{"mine"}},
		{claimStagger - 1, orphans("next", "last"), nil},
		{claimStagger, orphans("next", "last"), []string{"next"}},
		{claimStagger * 3 / 2, orphans("next"), []string{"next"}}, // another node has taken last
		{claimStagger * 2, orphans("last"), nil},                  // and lost it again
		{claimStagger * 4, orphans("last"), []string{"last"}},
	} {
		var due []string
		for _, o := range s.orphansToClaim(step.seen, delay, began.Add(step.at)) {
			due = append(due, o.JobID)
		}
		if !slices.Equal(due, step.due) {
			t.Errorf("after %v %q are due, want %q", step.at, due, step.due)
		}
	}
}
