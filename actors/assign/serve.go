package assign

import "slices"

// spansPerBatch is how many spans a worker gets at a time: the one it works on
// and the next ones.
const spansPerBatch = 4

// Serve assigns rows to those who have room and of whom something is new, and to
// others where rows have become free; and it revokes some where a worker has
// nothing to do and another has rows waiting. It returns whose assignments have
// changed.
func (o *Owner) Serve() (changed []*Assignee) {
	if !o.Assigning {
		return nil
	}
	look := o.due
	if o.dueAll {
		look = slices.Clone(o.sorted)
	}
	o.due, o.dueAll = nil, false
	slices.SortStableFunc(look, func(a, b *Assignee) int { return b.counted.hungry - a.counted.hungry }) // those who have nothing to do first
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

// assign gives a worker its next spans; false when there are none.
func (o *Owner) assign(a *Assignee) bool {
	var spans []Span
	for most := o.most(a); most > 0 && len(spans) < spansPerBatch; {
		s, ok := o.plan.span(a.Worker, most)
		if !ok {
			break
		}
		o.book.assign(a.Worker, s.Shard, s.Rows())
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

// leastPart is the least part of what a worker has ready that is worth a message.
const leastPart = 4

// most is how many rows a worker may get now. One that has something to do gets
// no more than an equal share of all that is not written, with those who are on
// their way: when the owner dies nobody evens out who has how much. And it gets
// nothing where that is little beside what it has: near the end of a job a thousand
// workers would ask for a few rows dozens of times each, of as many shards, and those
// rows would not be there for who has none.
func (o *Owner) most(a *Assignee) int {
	workers := max(o.Working(), o.Nodes)
	most := o.plan.share(workers)
	if a.last.Hungry || workers < 2 {
		return most
	}
	open := o.book.free.Count() + o.book.held
	most = int(min(int64(most), open/int64(workers)-o.book.of(a.Worker).Count()))
	if most < max(leastBatch, a.last.Ready/leastPart) {
		return 0
	}
	return most
}

// Working is how many workers have engines and stay.
func (o *Owner) Working() int { return o.counts.working }

// leastRevoked is how many rows must wait with a worker to be worth a message.
const leastRevoked = 2

// revoke asks those back for rows who have most waiting, so that as many hungry
// workers get an equal share; and for all rows of a worker that has no engine
// while others have.
func (o *Owner) revoke() (changed []*Assignee) {
	if o.counts.idle > 0 && o.counts.working > 0 {
		for _, a := range o.sorted {
			if a.counted.idle > 0 {
				o.recall(a, a.last.Ready)
				changed = append(changed, a)
			}
		}
		return changed
	}
	hungry := o.counts.hungry
	if hungry == 0 || !o.Exhausted() {
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

// recall asks a worker for rows back.
func (o *Owner) recall(a *Assignee, rows int) {
	a.revoked = Revocation{a.revoked.Number + 1, rows}
	o.count(a, a.counts())
}
