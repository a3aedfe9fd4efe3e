package assign

import "slices"

// spansPerBatch is the number of spans that a worker gets at a time: one to work on, and
// the next ones.
const spansPerBatch = 4

// Serve assigns rows to workers with room: to all of them if rows have become free, else
// only to workers with a new heartbeat or a newly committed part. It revokes rows if one
// worker has nothing to do while rows of another worker wait. It returns the workers
// with changed assignments.
func (o *Owner) Serve() (changed []*Assignee) {
	if !o.Assigning {
		return nil
	}
	look := o.due
	if o.dueAll {
		look = slices.Clone(o.sorted)
	}
	o.due, o.dueAll = nil, false
	slices.SortStableFunc(look, func(a, b *Assignee) int { return b.counted.hungry - a.counted.hungry }) // workers with nothing to do go first
	for _, a := range look {
		if o.Exhausted() {
			break
		}
		if o.workers[a.Worker] == a && a.servable() && o.assign(a) {
			o.count(a, a.counts())
			changed = append(changed, a)
		}
	}
	return append(changed, o.revoke()...)
}

// assign gives a worker its next spans; it returns false if there are none.
func (o *Owner) assign(a *Assignee) bool {
	var spans []Span
	for most := o.most(a); most > 0 && len(spans) < spansPerBatch; {
		s, ok := o.plan.span(a.Worker, most)
		if !ok {
			break
		}
		o.states.assign(a.Worker, s.Shard, s.Rows())
		s.Suspects = o.suspects.in(func(shard, row int) bool { return shard == s.Shard && s.From <= row && row < s.To && s.Has(row) })
		spans = append(spans, s)
		most -= s.Count()
	}
	if len(spans) == 0 {
		return false
	}
	a.sent++
	a.unseen = append(a.unseen, Batch{a.sent, spans})
	return true
}

// waryRows is the maximum number of rows that a worker has while the owner is wary (see
// Owner.Wary). When a worker has no other rows, it writes its finished rows, so they are
// committed at once.
const waryRows = 4

// Trust ends the limit of waryRows: the job no longer counts as a job that may crash
// servers or nodes.
func (o *Owner) Trust() { o.Wary, o.dueAll = false, true }

// leastPart is the divisor for the smallest batch: fewer new rows than a quarter of the
// worker's ready rows are not worth a message.
const leastPart = 4

// most returns how many rows a worker may get now. A worker that still has rows gets at
// most an equal share of all rows that are not written, counting the nodes that may
// still join: if the owner crashes, no owner balances the rows for a while. The worker
// gets nothing if its share is small compared with its ready rows. Otherwise, near the
// end of a job, a thousand workers would ask dozens of times for a few rows each, from
// many shards, and these rows would be missing for workers without rows.
func (o *Owner) most(a *Assignee) int {
	if o.Wary {
		return int(max(0, waryRows-o.states.of(a.Worker).Count()))
	}
	workers := max(o.Working(), o.Nodes)
	most := o.plan.share(workers)
	if a.last.Hungry || workers < 2 {
		return most
	}
	open := o.states.free.Count() + o.states.held
	most = int(min(int64(most), open/int64(workers)-o.states.of(a.Worker).Count()))
	if most < max(leastBatch, a.last.Ready/leastPart) {
		return 0
	}
	return most
}

// Working returns the number of workers that have engines and do not drain.
func (o *Owner) Working() int { return o.counts.working }

// leastRevoked is the smallest number of waiting rows that is worth a revocation.
const leastRevoked = 2

// revoke asks the worker with the most waiting rows to give some back, so that the
// hungry workers get an equal share. But if some workers have no engine while others
// have one, revoke asks for all waiting rows of the workers without an engine.
func (o *Owner) revoke() (changed []*Assignee) {
	if o.counts.stuck > 0 && o.counts.working > 0 {
		for _, a := range o.sorted {
			if a.counted.stuck > 0 {
				o.recall(a, a.last.Ready)
				changed = append(changed, a)
			}
		}
		return changed
	}
	hungry := o.counts.hungry
	if hungry == 0 || o.Wary || !o.Exhausted() { // while the owner is wary, a hungry worker may already have waryRows rows, all finished
		return nil
	}
	var most *Assignee
	for _, a := range o.sorted {
		if a.revocable() && (most == nil || a.last.Ready > most.last.Ready) {
			most = a
		}
	}
	if most == nil || most.last.Ready < leastRevoked {
		return nil
	}
	o.recall(most, most.last.Ready*hungry/(hungry+1))
	return append(changed, most)
}

// recall asks a worker to give rows back.
func (o *Owner) recall(a *Assignee, rows int) {
	a.revoked = Revocation{a.revoked.Number + 1, rows}
	o.count(a, a.counts())
}
