package assign

import "time"

// A NodeProgress is one node's part of the work on a job.
type NodeProgress struct {
	Address  string   // of the node; empty for the owner's own node
	Assigned int64    // rows that the node's workers have and that are not committed
	Done     int64    // rows of the node's workers that were committed under this owner
	Rate     *float64 // committed rows per second over the last minute; nil before the first 5 seconds
}

// ProgressByNode returns the share of each node that has a worker. The cost of a call does not
// grow with the number of rows.
func (o *Owner) ProgressByNode(now time.Time) []NodeProgress {
	var shares []NodeProgress
	at := make(map[string]int) // by address
	for _, a := range o.sorted {
		i, known := at[a.Address]
		if !known {
			i = len(shares)
			at[a.Address] = i
			done := o.nodes[a.Address]
			shares = append(shares, NodeProgress{Address: a.Address, Done: done.all, Rate: done.rate(now)})
		}
		shares[i].Assigned += o.states.assignedTo(a.Worker).Count()
		for _, p := range a.parts {
			if !p.acked { // the rows of p are no longer assigned, and not committed yet
				shares[i].Assigned += int64(p.Rows.GetCardinality())
			}
		}
	}
	return shares
}

// CountCompleteShards returns how many shards have all rows committed, and the number of all
// shards.
func (o *Owner) CountCompleteShards() (complete, all int) { return o.complete, len(o.plan.shards) }

// commit moves the rows of a recorded part into the state Committed, and counts them
// for the node of the worker that wrote the part.
func (o *Owner) commit(worker string, p Part, now time.Time) {
	before, whole := o.states.committed.Count(), o.isShardCommitted(p.Shard)
	o.states.markCommitted(p.Shard, p.Rows.Bitmap)
	o.suspects.remove(func(shard, row int) bool { return shard == p.Shard && p.Rows.ContainsInt(row) })
	if !whole && o.isShardCommitted(p.Shard) {
		o.complete++
	}
	if done := o.paces[worker]; done != nil {
		done.add(o.states.committed.Count()-before, now)
	}
}

// isShardCommitted reports whether all rows of a shard are committed.
func (o *Owner) isShardCommitted(shard int) bool {
	return o.states.committed.countOf(shard) == o.plan.shards[shard].Rows
}

// nodeCommitRate returns the counter of committed rows for a worker's node. All workers of the
// node share this counter.
func (o *Owner) nodeCommitRate(a *Assignee, now time.Time) *commitRate {
	if o.nodes[a.Address] == nil {
		o.nodes[a.Address] = &commitRate{began: now}
	}
	return o.nodes[a.Address]
}
