package actors

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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
	store.Orphan // as the claim found it
	pid          *actor.PID
	fence        store.Fence
	writes       *sync.WaitGroup // tasks of the actor that may write objects
	log          *slog.Logger    // names the job
}

// claims holds the jobs of a node: owned jobs, jobs with a claim in progress, and
// orphans that the node leaves to other nodes for a while. An owned job and a claim
// in progress take one of the node's places each.
type claims struct {
	places   *fair.Shares
	trials   trial.Trials
	owned    map[string]ownedJob
	claiming map[string]store.Orphan
	unsure   map[string]store.Orphan // the claim may have taken effect, or may take effect later; these jobs are not orphans
	orphans  map[string]time.Time    // when the node saw them first
}

func newClaims(places fair.Config) claims {
	return claims{
		places: fair.NewShares(places), trials: trial.New(), owned: make(map[string]ownedJob),
		claiming: make(map[string]store.Orphan), unsure: make(map[string]store.Orphan),
	}
}

// scanLimit returns how many orphans to read: one for each free place, and some more.
// The accounts of the others then count as waiting.
func (s *claims) scanLimit() int {
	if s.places.Places+s.places.Kept == 0 {
		return 0
	}
	return s.places.Free() + lookFurther
}

const lookFurther = 16

// begin notes that the node claims a job, until own or end. ok is false if the node
// must not claim the job: the account has no place, the node has the job already,
// or the job must wait because of another job that may crash its owners.
func (s *claims) begin(o store.Orphan, stage trial.Stage, now time.Time) (ok bool) {
	_, owned := s.owned[o.JobID]
	_, claiming := s.claiming[o.JobID]
	if owned || claiming || !s.trials.Admits(o.JobID, stage, now) || !s.places.Take(o.Account, o.Priority, now) {
		return false
	}
	s.trials.Begin(o.JobID, stage)
	s.claiming[o.JobID] = o
	return true
}

// own notes that a claim has succeeded.
func (s *claims) own(pid *actor.PID, fence store.Fence, writes *sync.WaitGroup, log *slog.Logger) {
	job := fence.JobID
	s.owned[job] = ownedJob{s.claiming[job], pid, fence, writes, log}
	delete(s.claiming, job)
	delete(s.unsure, job)
}

// markUnsure notes that the result of a claim is unknown. The node repeats the claim
// until it has an answer.
func (s *claims) markUnsure(o store.Orphan) { s.unsure[o.JobID] = o }

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

// A placeWaits holds the accounts that last waited for a place on a node, and how many
// places each account has.
type placeWaits struct{ places map[string]int }

// message says to an account why its jobs wait; empty if the account does not wait.
func (w *placeWaits) message(node, account string) string {
	if w == nil {
		return ""
	}
	has, waits := w.places[account]
	if !waits {
		return ""
	}
	return fmt.Sprintf("Waiting for a place: node %s runs as many jobs as it may (jobs.max_active), %d of them of this account.", node, has)
}

// idle reports whether no job is owned or being claimed.
func (s *claims) idle() bool { return len(s.owned)+len(s.claiming) == 0 }

// due returns the orphans that this node claims now: the nodes before it have had
// their time. delay returns how long the node leaves a job to other nodes. Jobs with
// the most ended owners come first: in a process that has just begun, it is soonest
// clear whether they crash the process.
func (s *claims) due(orphans []store.Orphan, delay func(store.Orphan, time.Time) time.Duration, now time.Time) (due []store.Orphan) {
	seen := make(map[string]time.Time, len(orphans))
	for _, o := range orphans {
		since, known := s.orphans[o.JobID]
		if !known {
			since = now
		}
		seen[o.JobID] = since
		if now.Sub(since) >= delay(o, now) {
			due = append(due, o)
		}
	}
	s.orphans = seen
	slices.SortStableFunc(due, func(a, b store.Orphan) int { return len(b.Tried) - len(a.Tried) })
	return due
}

// firstClaim reports whether a job never had an owner before. version is the
// version of its record after the claim: the creation and the claim make two.
func firstClaim(version int64) bool { return version <= 2 }

// giveBack releases the jobs that the node could not drain. The node actor has
// stopped by then. The store then does not count the end of this process against
// the jobs.
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
