package assign

import (
	"cmp"
	"time"
)

// An Assignee is a worker of the job, as seen by the job's owner.
type Assignee struct {
	Worker  string
	Address string // of the worker's node; empty on the owner's own node

	heard   time.Time
	last    *Heartbeat // its newest heartbeat, without the rows that it lists
	sent    int64      // number of the last batch of spans
	unseen  []Batch    // batches that the worker has not confirmed yet
	parts   map[string]*reported
	taken   int64 // number of the last batch of rows taken back
	revoked Revocation
	counted counts // the worker's contribution to the owner's counts
}

// counts holds the number of workers in some states. The owner updates it with each
// heartbeat, so the cost of a heartbeat does not grow with the number of workers.
type counts struct {
	working int // have engines and do not drain
	hungry  int // could get rows now, and their engines have nothing to do
	idle    int // have rows to give back, and no engine
	away    int // cannot use the bucket
}

func (c counts) plus(d counts, times int) counts {
	return counts{c.working + times*d.working, c.hungry + times*d.hungry, c.idle + times*d.idle, c.away + times*d.away}
}

// A reported part is in the heartbeats of a worker until the worker receives its
// acknowledgement.
type reported struct {
	Part
	acked bool
}

func (a *Assignee) away() time.Duration {
	if a.last == nil {
		return 0
	}
	return time.Duration(a.last.Away) * time.Millisecond
}

func byName(a, b *Assignee) int { return cmp.Compare(a.Worker, b.Worker) }

// counts returns the part of the owner's counts that this worker adds.
func (a *Assignee) counts() (c counts) {
	if a.last == nil {
		return c
	}
	stays := a.last.Ports > 0 && !a.last.Leaves
	c.working = one(stays)
	c.hungry = one(a.servable() && a.last.Hungry)
	c.idle = one(a.last.Ports == 0 && a.revocable())
	c.away = one(a.away() > 0)
	return c
}

func one(is bool) int {
	if is {
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
