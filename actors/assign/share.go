package assign

import "time"

// A Share is what the workers on one node have of a job.
type Share struct {
	Address  string   // of the node; empty for the owner's own
	Assigned int64    // rows that they have and that are not committed
	Done     int64    // rows of theirs that were committed under this owner
	Rate     *float64 // rows a second of the last minute; nil before that is known
}

// Shares are those of all nodes that have a worker. What it costs does not grow with
// the rows.
func (o *Owner) Shares(now time.Time) []Share {
	var shares []Share
	at := make(map[string]int) // by address
	for _, a := range o.sorted {
		i, known := at[a.Address]
		if !known {
			i = len(shares)
			at[a.Address] = i
			done := o.nodes[a.Address]
			shares = append(shares, Share{Address: a.Address, Done: done.all, Rate: done.rate(now)})
		}
		shares[i].Assigned += o.book.of(a.Worker).Count()
		for _, p := range a.parts {
			if !p.acked { // out of the book of the worker, and not committed yet
				shares[i].Assigned += int64(p.Rows.GetCardinality())
			}
		}
	}
	return shares
}

// Complete is how many shards have all their rows committed, and how many there are.
func (o *Owner) Complete() (complete, all int) { return o.complete, len(o.plan.shards) }

// commit enters rows that are recorded, for the node whose worker had them.
func (o *Owner) commit(worker string, p Part, now time.Time) {
	before, whole := o.book.committed.Count(), o.whole(p.Shard)
	o.book.commit(p.Shard, p.Rows.Bitmap)
	o.suspects.remove(func(shard, row int) bool { return shard == p.Shard && p.Rows.ContainsInt(row) })
	if !whole && o.whole(p.Shard) {
		o.complete++
	}
	if done := o.paces[worker]; done != nil {
		done.add(o.book.committed.Count()-before, now)
	}
}

// whole reports whether all rows of a shard are committed.
func (o *Owner) whole(shard int) bool {
	return o.book.committed.countOf(shard) == o.plan.shards[shard].Rows
}

// pace is where the rows of a worker are counted: with those of others of its node.
func (o *Owner) pace(a *Assignee, now time.Time) *pace {
	if o.nodes[a.Address] == nil {
		o.nodes[a.Address] = &pace{began: now}
	}
	return o.nodes[a.Address]
}
