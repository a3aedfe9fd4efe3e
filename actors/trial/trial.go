// Package trial handles jobs that may crash the processes of their owners. It decides
// which of these jobs a node takes at the same time, and when a job is at fault. Package
// contain handles panics; this package is about ends that no process survives: out of
// memory, a fatal error of the runtime, a kill.
//
// The end of a single owner proves little: machines fail, and people stop processes, perhaps
// when hundreds of jobs have just been taken. If an owner ends before any part of a job
// is done, the job is only a suspect. Suspects are taken one at a time, with no other
// job. If an owner ends again during this, and its process had run for a while before,
// the job is at fault. After a crash with very many jobs, a few suspects at a time are
// taken first. This proves nothing against any job, but soon shows that most are
// innocent.
//
// It knows no actors, and of owners only their records.
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

	// Calm is how long a process must have run before it takes a suspect alone: a
	// process that ends sooner would probably end without the job too. It is as long as
	// a lost owner may still appear alive after the end of its lease.
	Calm = 2 * time.Second

	// Up to fewSuspects are taken one at a time; otherwise up to groupSize at a time.
	fewSuspects = 4
	groupSize   = 16

	// patience is how long other jobs wait after a suspect was last seen that must run
	// alone: several scans for jobs without an owner.
	patience = 5 * time.Second

	// atFault is the number of ended owners after which a job is at fault, if the last
	// one had only this job. atFaultAnyway is the number after which it is at fault in any
	// case.
	atFault       = 2
	atFaultAnyway = 5
)

// Trials has the jobs that a node watches.
type Trials struct {
	began        time.Time       // start time of this process
	watched      map[string]bool // jobs taken here recently; true for suspects
	alone        string          // the suspect that runs with no other job
	suspectCount int             // number of suspects
	waits        string          // the suspect that waits to run alone
	seen         time.Time       // when waits was last seen
}

// New returns Trials without jobs, for a process that started at began.
func New(began time.Time) Trials { return Trials{began: began, watched: make(map[string]bool)} }

// Count sets the number of suspects without an owner.
func (t *Trials) Count(suspects int) { t.suspectCount = suspects }

// Admits reports whether a job may be taken now, and if so, whether with no other job.
func (t *Trials) Admits(job string, suspect bool, now time.Time) (alone, ok bool) {
	switch {
	case t.alone != "":
		return false, false
	case !suspect:
		return false, t.waits == "" || now.Sub(t.seen) > patience
	case t.suspectCount > fewSuspects:
		return false, t.suspects() < groupSize
	}
	t.waits, t.seen = job, now
	return true, len(t.watched) == 0 && now.Sub(t.began) >= Calm
}

func (t *Trials) suspects() (n int) {
	for _, suspect := range t.watched {
		if suspect {
			n++
		}
	}
	return n
}

// Begin notes that a job is being taken.
func (t *Trials) Begin(job string, suspect, alone bool) {
	t.watched[job] = suspect
	if alone {
		t.alone, t.waits = job, ""
	}
}

// End notes that a job need not be watched any more, at least here. It reports whether
// other jobs may have waited for this.
func (t *Trials) End(job string) (waited bool) {
	suspect, watched := t.watched[job]
	delete(t.watched, job)
	if t.alone == job {
		t.alone = ""
	}
	return watched && (suspect || t.waits != "" && len(t.watched) == 0)
}

// Ended returns the owners with processes that have ended. Other owners have only lost
// their session, which proves nothing against a job.
func Ended(tried []store.Adopter, ended func(store.Adopter) bool) []store.Adopter {
	return slices.DeleteFunc(slices.Clone(tried), func(a store.Adopter) bool { return !ended(a) })
}

// AtFault reports whether a job has caused the end of its owners. tried has all owners
// since a row of the job was last done, and ended those with ended processes.
func AtFault(tried, ended []store.Adopter) bool {
	if len(ended) < atFault {
		return false
	}
	last := tried[len(tried)-1]
	return len(ended) >= atFaultAnyway || last.Alone && last == ended[len(ended)-1]
}
