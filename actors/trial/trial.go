// Package trial decides what becomes of jobs that may be what ends the processes
// of their owners: which of them a node takes up beside which others, and when one
// is at fault. A panic is not its business (package contain), but what no process
// survives: memory that is used up, a fatal error of the runtime, a kill.
//
// An owner that ends proves little: machines fail, and people stop processes, while
// hundreds of jobs have just been taken up. So a job under which an owner has ended
// before anything of it was done is only a suspect, and suspects are taken up one at
// a time, with nothing else. A job under which an owner ends then as well is at
// fault, if the owner had lived for a while before. After a crash of very many, a
// few at a time are taken up first, which proves nothing against any, but finds
// most innocent soon.
//
// It knows no actors, and only what records say of owners.
package trial

import (
	"slices"
	"time"

	"github.com/rowmill/rowmill/store"
)

const (
	// Time is how long a job is watched after it is taken up, unless something of
	// it is done before: twice what an answered row waits for its part at most.
	Time = 10 * time.Second

	// Calm is how long a process has lived before it takes up a suspect alone: one
	// that ends sooner ends without it as well. It is as long as a lost owner may
	// go on being missed when its lease is over.
	Calm = 2 * time.Second

	// few suspects are taken up one after another; of more, group are at a time.
	few   = 4
	group = 16

	// patience is how long others are not taken up because a suspect waits to be
	// alone, from when it was last seen: some looks for orphans.
	patience = 5 * time.Second

	// atFault is how many owners must have ended, the last of them with nothing
	// but the job taken up. hopeless is how many whatever else they had.
	atFault  = 2
	hopeless = 5
)

// Trials are the jobs that a node watches.
type Trials struct {
	began   time.Time       // this process
	watched map[string]bool // taken up here not long ago; true for suspects
	alone   string          // a suspect beside which nothing is taken up
	crowd   int             // how many suspects there are
	waits   string          // a suspect that is to be alone
	seen    time.Time       // when it was last seen
}

// New returns trials of no jobs, for a process that has begun then.
func New(began time.Time) Trials { return Trials{began: began, watched: make(map[string]bool)} }

// Count says how many suspects are without an owner.
func (t *Trials) Count(suspects int) { t.crowd = suspects }

// Admits reports whether a job may be taken up now, and if so whether alone.
func (t *Trials) Admits(job string, suspect bool, now time.Time) (alone, ok bool) {
	switch {
	case t.alone != "":
		return false, false
	case !suspect:
		return false, t.waits == "" || now.Sub(t.seen) > patience
	case t.crowd > few:
		return false, t.suspects() < group
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

// Begin notes that a job is being taken up.
func (t *Trials) Begin(job string, suspect, alone bool) {
	t.watched[job] = suspect
	if alone {
		t.alone, t.waits = job, ""
	}
}

// End notes that a job needs not be watched any more, here at least. It reports
// whether others may have waited for that.
func (t *Trials) End(job string) (waited bool) {
	suspect, watched := t.watched[job]
	delete(t.watched, job)
	if t.alone == job {
		t.alone = ""
	}
	return watched && (suspect || t.waits != "" && len(t.watched) == 0)
}

// Ended returns those of the owners whose processes have ended. Others have only
// lost their session, and say nothing against a job.
func Ended(tried []store.Adopter, ended func(store.Adopter) bool) []store.Adopter {
	return slices.DeleteFunc(slices.Clone(tried), func(a store.Adopter) bool { return !ended(a) })
}

// AtFault reports whether a job is what ended these owners of it, which are all
// that have tried since something of it was done, or those who died of them.
func AtFault(tried, ended []store.Adopter) bool {
	if len(ended) < atFault {
		return false
	}
	last := tried[len(tried)-1]
	return len(ended) >= hopeless || last.Alone && last == ended[len(ended)-1]
}
