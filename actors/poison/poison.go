// Package poison handles jobs that may crash the processes of their owners. It decides
// which of these jobs a node takes at the same time, and when a job is parked: no node
// runs it for some time. Package panics handles panics. This package handles the end of a
// whole process: out of memory, a fatal error of the runtime, a kill.
//
// Most processes do not end because of a job: machines fail, and people stop processes.
// If the process of a job's owner ended before any row of the job was done, the job is
// therefore only a suspect. The next owner takes up to sixteen suspects together. Each job
// runs its first rows at once; when rows are done, the job is no suspect any more. If the
// process of a second owner has ended too, the suspect runs alone: the node takes no other
// job until rows of the suspect are done. An ended process counts against a job only if
// the job ran alone. After two such processes the job is parked, not failed, because the
// suspicion may still be wrong.
//
// The package uses no actors. It gets the owners of a job as store.Claim records.
package poison

import (
	"slices"
	"time"

	"github.com/rowmill/rowmill/store"
)

const (
	// Time is how long a node watches a new job, unless a row of the job is done earlier:
	// twice the longest time between the answer to a row and its part.
	Time = 10 * time.Second

	// ControlWait is how long a node waits before it takes a job after the process of another owner
	// ended while it ran only this job. If the machine was the cause, it probably ends this
	// process too, during the wait and without the job.
	ControlWait = 10 * time.Second

	// groupSize is the number of suspects of one ended owner that a node takes together.
	groupSize = 16

	// patience is how long other jobs wait for a suspect that must run alone, counted from the
	// last time that Admits was called for it. It is several scans for jobs without an owner.
	patience = 5 * time.Second

	// parked is the number of ended processes after which a job is parked. Only processes that
	// ran no other job count.
	parked = 2
)

// A Stage says which other jobs may run on a node at the same time as a job.
type Stage int

// The stages of a job, in the order of the number of owners whose process has ended.
const (
	Free  Stage = iota // the job may run with any other job
	Group              // the job may run with other suspects of this stage
	Alone              // the job may not run with a job that has made no progress
)

// StageOf returns the stage of a job. ended lists the owners of the job whose process
// has ended.
func StageOf(ended []store.Claim) Stage { return min(Stage(len(processes(ended))), Alone) }

// MustPark reports whether a job must be parked: enough processes have ended that ran only
// this job. ended lists the owners of the job whose process has ended.
func MustPark(ended []store.Claim) bool {
	alone := slices.DeleteFunc(slices.Clone(ended), func(a store.Claim) bool { return !a.Alone })
	return len(processes(alone)) >= parked
}

// processes returns the set of the owners' processes.
func processes(owners []store.Claim) map[string]bool {
	once := make(map[string]bool)
	for _, a := range owners {
		once[a.Process] = true
	}
	return once
}

// FilterEnded returns the owners in tried whose process has ended, as the function ended
// reports. Other owners have only lost their session, which proves nothing against a
// job.
func FilterEnded(tried []store.Claim, ended func(store.Claim) bool) []store.Claim {
	return slices.DeleteFunc(slices.Clone(tried), func(a store.Claim) bool { return !ended(a) })
}

// Trials has the jobs that a node watches because they may crash its process.
type Trials struct {
	watched map[string]Stage // by id: jobs that this node took recently and that have made no progress
	alone   string           // id of the suspect that runs with no other job; empty if there is none
	waits   string           // id of the suspect that waits to run alone; empty if there is none
	seen    time.Time        // when Admits was last called for the suspect in waits
}

// New returns a Trials without jobs.
func New() Trials { return Trials{watched: make(map[string]Stage)} }

// Admits reports whether the node may take a job of this stage now.
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

// suspects returns the number of watched jobs that are suspects.
func (t *Trials) suspects() (n int) {
	for _, stage := range t.watched {
		if stage != Free {
			n++
		}
	}
	return n
}

// Begin starts to watch a job that the node takes.
func (t *Trials) Begin(job string, stage Stage) {
	t.watched[job] = stage
	if stage == Alone {
		t.alone, t.waits = job, ""
	}
}

// End stops watching a job. waited is true if the node may now take jobs that had to
// wait.
func (t *Trials) End(job string) (waited bool) {
	stage, watched := t.watched[job]
	delete(t.watched, job)
	if t.alone == job {
		t.alone = ""
	}
	return watched && (stage != Free || t.waits != "" && len(t.watched) == 0)
}
