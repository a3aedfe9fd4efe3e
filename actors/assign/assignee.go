package assign

import (
	"cmp"
	"time"
)

// An Assignee is a worker of the job, as seen by the job's owner.
type Assignee struct {
	Worker  string
	Address string // of the worker's node; empty on the owner's own node

	heard   time.Time            // when its last heartbeat arrived
	last    *Heartbeat           // its newest heartbeat, without lists of rows, parts and suspects
	sent    int64                // number of the last batch of spans for the worker
	unseen  []Batch              // batches that the worker has not confirmed yet
	parts   map[string]*reported // by key
	taken   int64                // number of the last batch of rows that the owner took back
	revoked Revocation           // the last revocation
	counted counts               // the numbers that this worker adds to the owner's counts
}

// counts holds the number of workers in some states. The owner updates it with each
// heartbeat, so the cost of a heartbeat does not grow with the number of workers.
type counts struct {
	working int // have engines and do not drain
	hungry  int // could get rows now, and their engines have nothing to do
	stuck   int // have rows to give back, and no engine
	away    int // cannot use the bucket
}

// plus returns c with d added this many times; -1 subtracts d.
func (c counts) plus(d counts, times int) counts {
	return counts{c.working + times*d.working, c.hungry + times*d.hungry, c.stuck + times*d.stuck, c.away + times*d.away}
}

// reported is a part in the heartbeats of a worker. The worker repeats it until it
// receives the owner's acknowledgement.
type reported struct {
	Part
	acked bool
}

// away returns for how long the worker's node has not been able to use the bucket; 0
// while it can.
func (a *Assignee) away() time.Duration {
	if a.last == nil {
		return 0
	}
	return time.Duration(a.last.Away) * time.Millisecond
}

func byName(a, b *Assignee) int { return cmp.Compare(a.Worker, b.Worker) }

// counts returns the numbers that this worker adds to the owner's counts.
func (a *Assignee) counts() (c counts) {
	if a.last == nil {
		return c
	}
	stays := a.last.Ports > 0 && !a.last.Leaves
	c.working = oneIf(stays)
	c.hungry = oneIf(a.servable() && a.last.Hungry)
	c.stuck = oneIf(a.last.Ports == 0 && a.revocable())
	c.away = oneIf(a.away() > 0)
	return c
}

func oneIf(condition bool) int {
	if condition {
		return 1
	}
	return 0
}

// servable reports whether the worker can get rows now.
func (a *Assignee) servable() bool {
	return a.last != nil && !a.last.Leaves && len(a.unseen) == 0 && a.last.Ports > 0 && a.last.Want
}

// revocable reports whether the owner can ask the worker to give rows back.
func (a *Assignee) revocable() bool {
	return a.last != nil && !a.last.Leaves && a.last.Recalled >= a.revoked.Number && a.last.Ready > 0
}
