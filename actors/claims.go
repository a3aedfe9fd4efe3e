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
	"github.com/rowmill/rowmill/actors/poison"
	"github.com/rowmill/rowmill/internal/panics"
	"github.com/rowmill/rowmill/store"
)

// An ownedJob is the actor of a job that the node owns.
type ownedJob struct {
	store.Orphan // the job before the claim
	pid          *actor.PID
	fence        store.Fence
	writes       *sync.WaitGroup // tasks of the actor that may write objects
	log          *slog.Logger    // has the job's ID
}

// claims holds the jobs of a node: owned jobs, jobs with a claim in progress, and
// orphans that the node leaves to other nodes for a while. A node has places for a
// limited number of jobs (Config.Ownership): each owned job and each claim in
// progress takes one.
type claims struct {
	places   *fair.Shares
	trials   poison.Trials
	owned    map[string]ownedJob
	claiming map[string]store.Orphan
	unsure   map[string]store.Orphan // claims with an unknown result: the store may name this node as the owner, so scans may not find them
	orphans  map[string]time.Time    // when the node saw them first
}

func newClaims(places fair.Config) claims {
	return claims{
		places: fair.NewShares(places), trials: poison.New(), owned: make(map[string]ownedJob),
		claiming: make(map[string]store.Orphan), unsure: make(map[string]store.Orphan),
	}
}

// scanLimit returns how many orphans to read: one for each free place, and extraOrphans
// more. The accounts of these further jobs then count as waiting for a place.
func (s *claims) scanLimit() int {
	if s.places.Places+s.places.Kept == 0 {
		return 0
	}
	return s.places.Free() + extraOrphans
}

const extraOrphans = 16

// begin notes that the node is claiming a job, until markOwned or end is called. ok is
// false if the node must not claim the job: the account has no place, the node has the
// job already, or the job must wait because of another job that may crash its owners.
func (s *claims) begin(o store.Orphan, stage poison.Stage, now time.Time) (ok bool) {
	_, owned := s.owned[o.JobID]
	_, claiming := s.claiming[o.JobID]
	if owned || claiming || !s.trials.Admits(o.JobID, stage, now) || !s.places.Take(o.Account, o.Priority, now) {
		return false
	}
	s.trials.Begin(o.JobID, stage)
	s.claiming[o.JobID] = o
	return true
}

// markOwned notes that a claim has succeeded.
func (s *claims) markOwned(pid *actor.PID, fence store.Fence, writes *sync.WaitGroup, log *slog.Logger) {
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

// A placeWaits holds the accounts that waited for a place on a node at its last scan.
type placeWaits struct {
	places map[string]int // by waiting account: how many places it has
}

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

// due returns the orphans that this node claims now, after it has left them to other
// nodes for the time that delay returns. Jobs with the most ended owners come first: in
// a process that has just started, it is clear soonest whether such a job crashes the
// process.
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

// giveBack releases the jobs that the node could not drain. giveBack runs after the
// node actor has stopped. Because of the release, the end of this process does not
// count against the jobs.
func (s *claims) giveBack(ctx context.Context, jobs store.Jobs, log *slog.Logger) {
	var all sync.WaitGroup
	for id, o := range inOrder(s.owned) {
		all.Go(func() {
			err := panics.Catch(func() error { return jobs.Release(ctx, o.fence) })
			if err != nil && !rowmill.MustStop(err) {
				log.Warn("giving the job back failed; another node claims it after this node's session has ended", "job", id, "err", err)
			}
		})
	}
	all.Wait()
}
