package assign

import "slices"

// spansPerBatch is the maximum number of spans in one batch: one that the worker runs,
// and the next spans.
const spansPerBatch = 4

// AssignRows assigns free rows to workers that want rows. It examines all workers if rows
// have become free, and otherwise only workers with a new heartbeat or a newly
// committed part. If one worker has nothing to do while rows of another worker wait,
// AssignRows also asks the other worker to give back rows. It returns the workers whose
// assignments have changed.
func (o *Owner) AssignRows() (changed []*Assignee) {
	switch {
	case !o.Assigning:
		return nil
	case o.Recalling:
		return o.recall()
	}
	look := o.toServe
	if o.dueAll {
		look = slices.Clone(o.sorted)
	}
	o.toServe, o.dueAll = nil, false
	slices.SortStableFunc(look, func(a, b *Assignee) int { return b.counted.hungry - a.counted.hungry }) // workers with nothing to do go first
	for _, a := range look {
		if o.Exhausted() {
			break
		}
		if o.workers[a.Worker] == a && a.canGetRows() && o.assign(a) {
			o.updateCounts(a, a.counts())
			changed = append(changed, a)
		}
	}
	return append(changed, o.revoke()...)
}

// assign assigns the next spans to a worker. It returns false if there are none.
func (o *Owner) assign(a *Assignee) bool {
	var spans []RowSpan
	for most := o.maxRows(a); most > 0 && len(spans) < spansPerBatch; {
		s, ok := o.plan.nextSpan(a.Worker, most)
		if !ok {
			break
		}
		o.states.assign(a.Worker, s.Shard, s.Rows())
		s.Suspects = o.suspects.filter(func(shard, row int) bool { return shard == s.Shard && s.From <= row && row < s.To && s.Has(row) })
		spans = append(spans, s)
		most -= s.Count()
	}
	if len(spans) == 0 {
		return false
	}
	a.sent++
	a.unconfirmed = append(a.unconfirmed, Batch{a.sent, spans})
	return true
}

// waryRows is the maximum number of rows that a worker has while Owner.Wary is set. A
// worker that has no other rows writes its finished rows, so these few rows are
// committed at once.
const waryRows = 4

// LiftWaryLimit ends the limit of waryRows rows for each worker: the job is no longer suspected
// of crashing servers or nodes.
func (o *Owner) LiftWaryLimit() { o.Wary, o.dueAll = false, true }

// minBatchDivisor limits how small a batch may be: a batch with fewer rows than 1/minBatchDivisor
// of the rows that the worker has ready is not worth a message.
const minBatchDivisor = 4

// maxRows returns how many rows a worker may get now. A worker that still has rows gets at
// most an equal share of all rows that are not written. This share also counts nodes
// that may still join, because after a crash of the owner no owner balances the rows
// for a while. The worker gets nothing if its share is small compared with its ready
// rows. Otherwise, near the end of a job, a thousand workers would ask dozens of times
// for a few rows each, from many shards, and workers without rows would not get these
// rows.
func (o *Owner) maxRows(a *Assignee) int {
	if o.Wary {
		return int(max(0, waryRows-o.states.assignedTo(a.Worker).Count()))
	}
	workers := max(o.CountActiveWorkers(), o.Nodes)
	most := o.plan.fairRowShare(workers)
	if a.last.Hungry || workers < 2 {
		return most
	}
	open := o.states.free.Count() + o.states.assignedCount
	most = int(min(int64(most), open/int64(workers)-o.states.assignedTo(a.Worker).Count()))
	if most < max(leastBatch, a.last.Ready/minBatchDivisor) {
		return 0
	}
	return most
}

// CountActiveWorkers returns the number of workers that have engines and do not drain.
func (o *Owner) CountActiveWorkers() int { return o.counts.working }

// leastRevoked is the minimum number of rows that a worker must have ready before the
// owner asks it to give back rows.
const leastRevoked = 2

// revoke asks the worker with the most ready rows to give some back, so that workers
// without rows get an equal share. But if some workers have no engine and others have
// one, revoke asks for all ready rows of the workers without an engine. It returns the
// workers that it asked.
func (o *Owner) revoke() (changed []*Assignee) {
	if o.counts.stuck > 0 && o.counts.working > 0 {
		for _, a := range o.sorted {
			if a.counted.stuck > 0 {
				o.requestRowsBack(a, a.last.Ready)
				changed = append(changed, a)
			}
		}
		return changed
	}
	hungry := o.counts.hungry
	// If Wary is set, a hungry worker may already have waryRows rows, all finished.
	if hungry == 0 || o.Wary || !o.Exhausted() {
		return nil
	}
	var most *Assignee
	for _, a := range o.sorted {
		if a.canGiveBackRows() && (most == nil || a.last.Ready > most.last.Ready) {
			most = a
		}
	}
	if most == nil || most.last.Ready < leastRevoked {
		return nil
	}
	o.requestRowsBack(most, most.last.Ready*hungry/(hungry+1))
	return append(changed, most)
}

// recall asks all workers to give back all rows that they have not sent. It returns the workers
// that it asked.
func (o *Owner) recall() (changed []*Assignee) {
	for _, a := range o.sorted {
		if a.canGiveBackRows() {
			o.requestRowsBack(a, a.last.Ready)
			changed = append(changed, a)
		}
	}
	return changed
}

// requestRowsBack asks a worker to give back this many rows.
func (o *Owner) requestRowsBack(a *Assignee, rows int) {
	a.revoked = Revocation{a.revoked.Number + 1, rows}
	o.updateCounts(a, a.counts())
}
