// Package poison handles jobs that may crash the processes of their owners. It decides
// which of these jobs a node takes at the same time, and when a job is parked: no node
// runs it for some time. Package panics handles panics. This package handles the end of a
// whole process: out of memory, a fatal error of the runtime, a kill.
//
// Most processes do not end because of a job: machines fail, and people stop processes.
// If the process of a job's owner ended before any row of the job was done, the job is
// therefore only a suspect. The next owner takes up to sixteen suspects together. Each
// runs its first rows at once; when rows are done, the job is no suspect any more. If the
// process of a second owner has ended too, the suspect runs alone: the node takes no other
// job until rows of the suspect are done. An ended process counts against a job only if
// the job ran alone. After two such processes the job is parked, not failed, because the
// suspicion may still be wrong.
//
// The package uses no actors, and of owners only their records.
package poison

import (
	"slices"
	"time"

	"github.com/rowmill/rowmill/store"
)

const (
	// Time is how long a new job is watched, unless one of its rows is done earlier:
	// twice the longest time between the answer to a row and its part.
	Time = 10 * time.Second

	// Control is how long a node waits before it takes a job, if another process ended
	// while it ran only this job. If the machine was at fault, it probably also ends this
	// process during the wait, without the job.
	Control = 10 * time.Second

	// groupSize is the number of suspects of one ended owner that a node takes together.
	groupSize = 16

	// patience is how long other jobs wait for a suspect that must run alone, after the
	// node last saw it: several scans for jobs without an owner.
	patience = 5 * time.Second

	// parked is the number of ended processes after which a job is parked. Only processes
	// in which the job ran alone count.
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
func StageOf(ended []store.Claim) Stage { return min(Stage(len(processes(ended))), Alone) }

// Parks reports whether a job must be parked: enough processes have ended while the job
// ran alone. ended lists the job's owners with ended processes.
func Parks(ended []store.Claim) bool {
	alone := slices.DeleteFunc(slices.Clone(ended), func(a store.Claim) bool { return !a.Alone })
	return len(processes(alone)) >= parked
}

// processes returns the processes of owners.
func processes(owners []store.Claim) map[string]bool {
	once := make(map[string]bool)
	for _, a := range owners {
		once[a.Process] = true
	}
	return once
}

// Ended returns the owners with processes that have ended. Other owners have only lost
// their session, which proves nothing against a job.
func Ended(tried []store.Claim, ended func(store.Claim) bool) []store.Claim {
	return slices.DeleteFunc(slices.Clone(tried), func(a store.Claim) bool { return !ended(a) })
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
