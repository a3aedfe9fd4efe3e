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
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/poison"
	"github.com/rowmill/rowmill/internal/panics"
	"github.com/rowmill/rowmill/store"
)

// An ownedJob is a job that this node owns, with the actor that runs the job.
type ownedJob struct {
	store.OrphanJob // the job as it was before the claim
	pid             *actor.PID
	fence           store.Fence
	writes          *sync.WaitGroup // tasks of the actor that may write objects
	log             *slog.Logger    // has the job's ID
	demand          nodes.Demand    // the job's unfinished rows; zero before the job has reported them
}

// claims holds the jobs of a node: owned jobs, jobs with a claim in progress, and
// orphans that the node leaves to other nodes for a while. The number of jobs on a node
// is limited (Config.Ownership): each owned job and each claim in progress takes one
// place.
type claims struct {
	places       *fair.SlotPool
	trials       poison.Trials
	owned        map[string]ownedJob        // by job ID
	claiming     map[string]store.OrphanJob // claims in progress, by job ID
	unsureClaims map[string]store.OrphanJob // by job ID: claims with an unknown result; scans may not find these jobs, because the store may name this node as their owner
	orphans      map[string]time.Time       // by job ID: when this node first saw the orphan
}

func newClaims(places fair.Config) claims {
	return claims{
		places: fair.NewSlotPool(places), trials: poison.New(), owned: make(map[string]ownedJob),
		claiming: make(map[string]store.OrphanJob), unsureClaims: make(map[string]store.OrphanJob),
	}
}

// scanLimit returns how many orphans a scan should read: one for each free place, and
// extraOrphans more. The accounts of the extra orphans then count as waiting for a
// place.
func (s *claims) scanLimit() int {
	if s.places.Places+s.places.Kept == 0 {
		return 0
	}
	return s.places.Free() + extraOrphans
}

const extraOrphans = 16

// beginClaim notes that the node is claiming a job, until markOwned or forgetJob is called.
// ok is false if the node must not claim the job: no place is free for the account, the
// node has the job already, or the job must wait because of another job that may crash its
// owners.
func (s *claims) beginClaim(o store.OrphanJob, stage poison.Stage, now time.Time) (ok bool) {
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
	s.owned[job] = ownedJob{OrphanJob: s.claiming[job], pid: pid, fence: fence, writes: writes, log: log}
	delete(s.claiming, job)
	delete(s.unsureClaims, job)
}

// markUnsure notes that the result of a claim is unknown. The node repeats the claim
// until it has an answer.
func (s *claims) markUnsure(o store.OrphanJob) { s.unsureClaims[o.JobID] = o }

// forgetJob forgets a job that is no longer claimed or owned.
func (s *claims) forgetJob(job string) {
	if o, claiming := s.claiming[job]; claiming {
		s.places.Leave(o.Account)
	}
	if o, owned := s.owned[job]; owned {
		s.places.Leave(o.Account)
	}
	s.trials.End(job)
	delete(s.claiming, job)
	delete(s.unsureClaims, job)
	delete(s.owned, job)
}

// A slotWaits holds the accounts that waited for a place on a node at its last scan.
type slotWaits struct {
	places map[string]int // by waiting account: how many places the account has
}

// message returns the text that tells an account why its jobs wait; empty if the
// account does not wait.
func (w *slotWaits) message(node, account string) string {
	if w == nil {
		return ""
	}
	has, waits := w.places[account]
	if !waits {
		return ""
	}
	return fmt.Sprintf("Waiting for a place: node %s runs as many jobs as it may (jobs.max_active), %d of them of this account.", node, has)
}

// setDemand stores what a job has reported about its unfinished rows.
func (s *claims) setDemand(m jobDemand) {
	if o, owned := s.owned[m.id]; owned {
		o.demand = m.demand
		s.owned[m.id] = o
	}
}

// demand returns the unfinished rows of the owned jobs, by model.
func (s *claims) demand() []nodes.Demand {
	var all []nodes.Demand
	for _, o := range sortedByKey(s.owned) {
		if o.demand.Tokens > 0 {
			all = append(all, o.demand)
		}
	}
	return nodes.SumDemand(all)
}

// isIdle reports whether no job is owned or being claimed.
func (s *claims) isIdle() bool { return len(s.owned)+len(s.claiming) == 0 }

// orphansToClaim returns the orphans that this node should claim now. delay returns how
// long the node leaves an orphan to other nodes, counted from the first scan that found
// the orphan. Jobs with the most earlier owners come first: a process with few other jobs
// shows soonest whether such a job crashes the process.
func (s *claims) orphansToClaim(orphans []store.OrphanJob, delay func(store.OrphanJob, time.Time) time.Duration, now time.Time) (due []store.OrphanJob) {
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
	slices.SortStableFunc(due, func(a, b store.OrphanJob) int { return len(b.Claims) - len(a.Claims) })
	return due
}

// isFirstClaim reports whether a claim was the first one of a job. version is the version
// of the job's record after the claim: the creation makes version 1, the first claim
// version 2.
func isFirstClaim(version int64) bool { return version <= 2 }

// releaseOwned releases the jobs that the node could not drain. It runs after the node
// actor has stopped. The end of this process then does not count as a crash that these
// jobs may have caused.
func (s *claims) releaseOwned(ctx context.Context, jobs store.Jobs, log *slog.Logger) {
	var all sync.WaitGroup
	for id, o := range sortedByKey(s.owned) {
		all.Go(func() {
			err := panics.Catch(func() error { return jobs.Release(ctx, o.fence) })
			if err != nil && !rowmill.ShouldStopJob(err) {
				log.Warn("giving the job back failed; another node claims it after this node's session has ended", "job", id, "err", err)
			}
		})
	}
	all.Wait()
}
