package actors

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/fair"
	"github.com/rowmill/rowmill/actors/trial"
	"github.com/rowmill/rowmill/internal/contain"
	"github.com/rowmill/rowmill/store"
)

// An ownedJob is the actor of a job that the node owns.
type ownedJob struct {
	store.Orphan // what it was
	pid          *actor.PID
	fence        store.Fence
	writes       *sync.WaitGroup // tasks of the actor that may write objects
	log          *slog.Logger    // names the job
}

// claims are the jobs of a node: those it owns, those it is claiming, and the
// orphans that it leaves to other nodes for a while. Each of the first two has one
// of the node's places.
type claims struct {
	places   *fair.Shares
	trials   trial.Trials
	owned    map[string]ownedJob
	claiming map[string]store.Orphan
	unsure   map[string]store.Orphan // a claim may have taken effect, or may yet: then they are no orphans
	orphans  map[string]time.Time    // when they were first seen
}

func newClaims(places fair.Config) claims {
	return claims{
		places: fair.NewShares(places), trials: trial.New(time.Now()), owned: make(map[string]ownedJob),
		claiming: make(map[string]store.Orphan), unsure: make(map[string]store.Orphan),
	}
}

// look is how many orphans are to be looked at: as many as there are places, and
// some more, of further accounts, who then count as waiting.
func (s *claims) look() int {
	if s.places.Places+s.places.Kept == 0 {
		return 0
	}
	return s.places.Free() + lookFurther
}

const lookFurther = 16

// begin notes that a job is being claimed, until own or end. It returns false
// where it must not be: there is no place for its account, the job is here
// already, or has to wait for what is suspected of ending its owners, as it may be
// itself. alone says that nothing else is claimed until more is known of it.
func (s *claims) begin(o store.Orphan, suspect bool, now time.Time) (alone, ok bool) {
	_, owned := s.owned[o.JobID]
	_, claiming := s.claiming[o.JobID]
	if owned || claiming {
		return false, false
	}
	if alone, ok = s.trials.Admits(o.JobID, suspect, now); !ok || !s.places.Take(o.Account, o.Priority, now) {
		return false, false
	}
	s.trials.Begin(o.JobID, suspect, alone)
	s.claiming[o.JobID] = o
	return alone, true
}

// own notes that a claim has succeeded.
func (s *claims) own(pid *actor.PID, fence store.Fence, writes *sync.WaitGroup, log *slog.Logger) {
	job := fence.JobID
	s.owned[job] = ownedJob{s.claiming[job], pid, fence, writes, log}
	delete(s.claiming, job)
	delete(s.unsure, job)
}

// doubt notes that it is not known whether a claim has taken effect: it is to be
// made again until that is.
func (s *claims) doubt(o store.Orphan) { s.unsure[o.JobID] = o }

// end forgets a job that is no longer claimed or owned.
func (s *claims) end(job string) {
	if o, claiming := s.claiming[job]; claiming {
		s.places.Leave(o.Account)
	}
	if o, owned := s.owned[job]; owned {
		s.places.Leave(o.Account)
	}
	s.trials.End(job)
	delete(s.claiming, job)
	delete(s.unsure, job)
	delete(s.owned, job)
}

// A crowd is who last waited for a place on a node, and how many each has.
type crowd struct{ has map[string]int }

// message says to an account why the jobs of it that wait do; empty where none is
// known to.
func (w *crowd) message(node, account string) string {
	if w == nil {
		return ""
	}
	has, waits := w.has[account]
	if !waits {
		return ""
	}
	return fmt.Sprintf("Waiting for a place: node %s runs as many jobs as it may (jobs.max_active), %d of them of this account.", node, has)
}

// idle reports whether no job is owned or being claimed.
func (s *claims) idle() bool { return len(s.owned)+len(s.claiming) == 0 }

// claimStagger is how long a node leaves an orphan to each of those that stand
// before it.
const claimStagger = 300 * time.Millisecond

// due returns those of the orphans there are now that this node is to claim:
// another that stands before it has had its time. rank is how many do.
func (s *claims) due(orphans []store.Orphan, rank func(job string) int, now time.Time) (due []store.Orphan) {
	seen := make(map[string]time.Time, len(orphans))
	for _, o := range orphans {
		since, known := s.orphans[o.JobID]
		if !known {
			since = now
		}
		seen[o.JobID] = since
		if now.Sub(since) >= time.Duration(rank(o.JobID))*claimStagger {
			due = append(due, o)
		}
	}
	s.orphans = seen
	return due
}

// firstClaim reports whether nobody has owned a job before, by the version that
// its record has after a claim: it was created and claimed.
func firstClaim(version int64) bool { return version <= 2 }

// suspect reports whether a job may be what has ended an owner of it. missed says
// whose process is not there.
func suspect(o store.Orphan, missed func(store.Adopter) bool) bool {
	return len(trial.Ended(o.Tried, missed)) > 0
}

// countSuspects looks how many suspects there are among all that have no owner.
func (s *claims) countSuspects(orphans []store.Orphan, missed func(store.Adopter) bool) {
	suspects := 0
	for _, o := range orphans {
		if suspect(o, missed) {
			suspects++
		}
	}
	s.trials.Count(suspects)
}

// giveBack gives back what could not be drained, after the actor has stopped: that
// this process ends says nothing against those jobs.
func (s *claims) giveBack(ctx context.Context, jobs store.Jobs, log *slog.Logger) {
	var all sync.WaitGroup
	for id, o := range inOrder(s.owned) {
		all.Go(func() {
			err := contain.Run(func() error { return jobs.Release(ctx, o.fence) })
			if err != nil && !rowmill.MustStop(err) {
				log.Warn("giving the job back failed", "job", id, "err", err)
			}
		})
	}
	all.Wait()
}
