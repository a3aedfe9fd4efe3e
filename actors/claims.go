package actors

import (
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/store"
)

// An ownedJob is the actor of a job that the node owns.
type ownedJob struct {
	pid    *actor.PID
	fence  store.Fence
	writes *sync.WaitGroup // tasks of the actor that may write objects
}

// claims are the jobs of a node: those it owns, those it is claiming, and the
// orphans that it leaves to other nodes for a while.
type claims struct {
	limit    int // how many it may own
	owned    map[string]ownedJob
	claiming map[string]bool
	unsure   map[string]bool      // a claim may have taken effect, or may yet: then they are no orphans
	orphans  map[string]time.Time // when they were first seen
}

func newClaims(limit int) claims {
	return claims{limit: limit, owned: make(map[string]ownedJob), claiming: make(map[string]bool), unsure: make(map[string]bool)}
}

// free is how many more jobs may be claimed.
func (s *claims) free() int { return s.limit - len(s.owned) - len(s.claiming) }

// begin notes that a job is being claimed, until own or end. It returns false
// where it must not be: there is no place, or the job is here already.
func (s *claims) begin(job string) bool {
	if _, here := s.owned[job]; here || s.claiming[job] || s.free() < 1 {
		return false
	}
	s.claiming[job] = true
	return true
}

// own notes that a claim has succeeded.
func (s *claims) own(job string, o ownedJob) {
	delete(s.claiming, job)
	delete(s.unsure, job)
	s.owned[job] = o
}

// doubt notes that it is not known whether a claim has taken effect: it is to be
// made again until that is.
func (s *claims) doubt(job string) { s.unsure[job] = true }

// end forgets a job that is no longer claimed or owned.
func (s *claims) end(job string) {
	delete(s.claiming, job)
	delete(s.unsure, job)
	delete(s.owned, job)
}

// idle reports whether no job is owned or being claimed.
func (s *claims) idle() bool { return len(s.owned)+len(s.claiming) == 0 }

// claimStagger is how long a node leaves an orphan to each of those that stand
// before it.
const claimStagger = 300 * time.Millisecond

// due returns those of the orphans there are now that this node is to claim:
// another that stands before it has had its time. rank is how many do.
func (s *claims) due(orphans []store.Orphan, rank func(job string) int, now time.Time) (jobs []string) {
	seen := make(map[string]time.Time, len(orphans))
	for _, o := range orphans {
		since, known := s.orphans[o.JobID]
		if !known {
			since = now
		}
		seen[o.JobID] = since
		if now.Sub(since) >= time.Duration(rank(o.JobID))*claimStagger {
			jobs = append(jobs, o.JobID)
		}
	}
	s.orphans = seen
	return jobs
}

// firstClaim reports whether nobody has owned a job before, by the version that
// its record has after a claim: it was created and claimed.
func firstClaim(version int64) bool { return version <= 2 }
