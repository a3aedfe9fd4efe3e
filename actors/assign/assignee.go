package assign

import (
	"cmp"
	"time"
)

// An Assignee is a worker of the job, as seen by the job's owner.
type Assignee struct {
	Worker  string
	Address string // of the worker's node; empty on the owner's own node

	heard       time.Time                // when the worker's last heartbeat arrived
	last        *Heartbeat               // the worker's newest heartbeat, without lists of rows, parts and suspects
	sent        int64                    // number of the last batch of spans that the owner assigned to the worker
	unconfirmed []Batch                  // batches that the worker has not confirmed yet
	parts       map[string]*reportedPart // parts that the worker has reported, by object key
	taken       int64                    // number of the last batch of rows that the owner took back
	revoked     Revocation               // the last request to the worker to give back rows
	counted     workerCounts             // the numbers that this worker adds to Owner.counts
}

// workerCounts has the number of workers in some states. The owner updates the numbers with
// each heartbeat, so the cost of a heartbeat does not grow with the number of workers.
type workerCounts struct {
	working int // workers with engines that do not drain
	hungry  int // workers that can get rows now, and whose engines are idle
	stuck   int // workers that have rows to give back, and no engine
	away    int // workers that cannot use the bucket
}

// plus returns c + times * d, for each number. times is 1 to add d, and -1 to subtract
// d.
func (c workerCounts) plus(d workerCounts, times int) workerCounts {
	return workerCounts{c.working + times*d.working, c.hungry + times*d.hungry, c.stuck + times*d.stuck, c.away + times*d.away}
}

// reportedPart is a part that a worker has reported. The worker reports the part in each
// heartbeat until the owner acknowledges it.
type reportedPart struct {
	Part
	acked bool // the part is committed or not needed; the next assignment acknowledges it
}

// bucketOutage returns how long the worker's node has been unable to use the bucket; 0 if the
// node can use the bucket.
func (a *Assignee) bucketOutage() time.Duration {
	if a.last == nil {
		return 0
	}
	return time.Duration(a.last.Away) * time.Millisecond
}

// byName orders workers by name.
func byName(a, b *Assignee) int { return cmp.Compare(a.Worker, b.Worker) }

// counts returns the numbers that this worker adds to the owner's counts.
func (a *Assignee) counts() (c workerCounts) {
	if a.last == nil {
		return c
	}
	stays := a.last.Engines > 0 && !a.last.Leaves
	c.working = oneIf(stays)
	c.hungry = oneIf(a.canGetRows() && a.last.Hungry)
	c.stuck = oneIf(a.last.Engines == 0 && a.canGiveBackRows())
	c.away = oneIf(a.bucketOutage() > 0)
	return c
}

// oneIf returns 1 if the condition is true, and 0 otherwise.
func oneIf(condition bool) int {
	if condition {
		return 1
	}
	return 0
}

// canGetRows reports whether the owner can assign rows to the worker now: the worker
// wants rows, has an engine, does not drain, and has confirmed all earlier batches.
func (a *Assignee) canGetRows() bool {
	return a.last != nil && !a.last.Leaves && len(a.unconfirmed) == 0 && a.last.Engines > 0 && a.last.Want
}

// canGiveBackRows reports whether the owner can ask the worker to give back rows: the worker
// has unsent rows, does not drain, and has carried out the last such request.
func (a *Assignee) canGiveBackRows() bool {
	return a.last != nil && !a.last.Leaves && a.last.Recalled >= a.revoked.Number && a.last.Ready > 0
}
