// Package trial handles jobs that may crash the processes of their owners. It decides
// which of these jobs a node takes at the same time, and when a job is parked. Package
// contain handles panics; this package is about ends that no process survives: out of
// memory, a fatal error of the runtime, a kill.
//
// Most ended processes were not ended by a job: machines fail, and people stop processes.
// A job whose owner ended before any row was done is therefore only a suspect. The next
// owner takes up to sixteen suspects together, and each runs its first rows at once,
// which acquits it. A suspect of a second ended owner runs alone: the node takes no other
// job until rows of the suspect are done. Only ends during which the job ran alone count
// against the job. After two of them the job is parked, not failed, because this may
// still be wrong.
//
// The package knows no actors, and of owners only their records.
package trial

import (
	"slices"
	"time"

	"github.com/rowmill/rowmill/store"
)

const (
	// Time is how long a new job is watched, unless one of its rows is done earlier:
	// twice the longest time between the answer to a row and its part.
	Time = 10 * time.Second

	// Control is how long a node runs without a job before it takes the job, if a process
	// ended while it ran only this job. Perhaps the machine was at fault. Then it also
	// ends this process during that time, without the job.
	Control = 10 * time.Second

	// groupSize is the number of suspects of one ended owner that a node takes together.
	groupSize = 16

	// patience is how long other jobs wait after a suspect was last seen that must run
	// alone: several scans for jobs without an owner.
	patience = 5 * time.Second

	// parked is the number of processes after which a job is parked, if they ended while
	// the job ran alone.
	parked = 2
)

// A Stage says which other jobs may run on a node together with a job.
type Stage int

// The stages of a job, by the number of its ended owners.
const (
	Free  Stage = iota // with any other job
	Group              // with other suspects of this stage
	Alone              // with no job that has made no progress
)

// StageOf returns the stage of a job. ended lists the job's owners with ended
// processes.
func StageOf(ended []store.Adopter) Stage { return min(Stage(len(processes(ended))), Alone) }

// Parks reports whether a job must be parked: enough processes have ended while the job
// ran alone. ended lists the job's owners with ended processes.
func Parks(ended []store.Adopter) bool {
	alone := slices.DeleteFunc(slices.Clone(ended), func(a store.Adopter) bool { return !a.Alone })
	return len(processes(alone)) >= parked
}

func processes(owners []store.Adopter) map[string]bool {
	once := make(map[string]bool)
	for _, a := range owners {
		once[a.Process] = true
	}
	return once
}

// Ended returns the owners with processes that have ended. Other owners have only lost
// their session, which proves nothing against a job.
func Ended(tried []store.Adopter, ended func(store.Adopter) bool) []store.Adopter {
	return slices.DeleteFunc(slices.Clone(tried), func(a store.Adopter) bool { return !ended(a) })
}

// Trials has the jobs that a node watches.
type Trials struct {
	watched map[string]Stage // jobs taken here recently that have made no progress
	alone   string           // the suspect that runs with no other job
	waits   string           // the suspect that waits to run alone
	seen    time.Time        // when waits was last seen
}

// New returns Trials without jobs.
func New() Trials { return Trials{watched: make(map[string]Stage)} }

// Admits reports whether the node may take a job now.
func (t *Trials) Admits(job string, stage Stage, now time.Time) bool {
	switch {
	case t.alone != "":
		return false
	case stage == Alone:
		t.waits, t.seen = job, now
		return len(t.watched) == 0
	case t.waits != "" && now.Sub(t.seen) <= patience:
		return false
	}
	return stage == Free || t.suspects() < groupSize
}

func (t *Trials) suspects() (n int) {
	for _, stage := range t.watched {
		if stage != Free {
			n++
		}
	}
	return n
}

// Begin notes that a job is being taken.
func (t *Trials) Begin(job string, stage Stage) {
	t.watched[job] = stage
	if stage == Alone {
		t.alone, t.waits = job, ""
	}
}

// End notes that a job need not be watched any more, at least here. It reports whether
// other jobs may have waited for this.
func (t *Trials) End(job string) (waited bool) {
	stage, watched := t.watched[job]
	delete(t.watched, job)
	if t.alone == job {
		t.alone = ""
	}
	return watched && (stage != Free || t.waits != "" && len(t.watched) == 0)
}
