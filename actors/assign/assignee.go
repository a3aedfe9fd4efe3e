package assign

import (
	"cmp"
	"time"
)

// An Assignee is a worker of the job as its owner knows it.
type Assignee struct {
	Worker  string
	Address string // of its node; empty for the owner's own

	heard   time.Time
	last    *Heartbeat // its newest, but for the rows it names
	sent    int64      // number of the last batch of spans
	unseen  []Batch    // those that it has not said it received
	parts   map[string]*reported
	taken   int64 // number of the last batch of rows taken back
	revoked Revocation
	counted counts // what the owner's counts have of it
}

// counts are how many workers are in some states. With them a heartbeat costs the
// same however many workers there are.
type counts struct {
	working int // have engines and stay
	hungry  int // could get rows now, and have nothing to do
	idle    int // have rows that could be given back, and no engine
	away    int // cannot use the bucket
}

func (c counts) plus(d counts, times int) counts {
	return counts{c.working + times*d.working, c.hungry + times*d.hungry, c.idle + times*d.idle, c.away + times*d.away}
}

// A reported part is one of which a worker has not heard yet that it may forget
// it.
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

// counts are those of one worker.
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

// servable reports whether a worker could get rows now.
func (a *Assignee) servable() bool {
	return a.last != nil && !a.last.Leaves && len(a.unseen) == 0 && a.last.Ports > 0 && a.last.Want
}

// revocable reports whether a worker has rows that could be asked back.
func (a *Assignee) revocable() bool {
	return a.last != nil && !a.last.Leaves && a.last.Recalled >= a.revoked.Number && a.last.Ready > 0
}
