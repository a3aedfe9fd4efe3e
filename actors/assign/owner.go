package assign

import (
	"maps"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
)

// An Owner is the state of a job on its owner's node: the states of all rows, the
// workers, and the plan for free rows.
type Owner struct {
	// Assigning is true if the owner may assign rows: it has a heartbeat of every earlier
	// worker, or has stopped waiting for the missing heartbeats.
	Assigning bool
	Nodes     int // number of known nodes that could run rows of the job
	// Wary is true if the job may crash its owners. Each worker then has at most waryRows
	// rows at a time, until LiftWaryLimit is called.
	Wary bool
	// Recalling is true if the job must stop: AssignRows assigns no rows, and asks each worker to
	// give back its unsent rows.
	Recalling bool

	rows    int64 // number of rows in all shards
	states  *rowStates
	plan    *spanPlanner
	workers map[string]*Assignee
	sorted  []*Assignee            // workers, sorted by name
	at      map[string][]*Assignee // workers by address of their node
	counts  workerCounts           // sums over all workers
	toServe []*Assignee            // workers that the next call of AssignRows examines
	dueAll  bool                   // the next call of AssignRows examines all workers, because rows have become free
	retired map[string]bool        // names of removed or refused workers: they must drop their rows
	split   time.Time              // since when only some nodes can use the bucket; zero if all or none can
	known   map[string]bool        // keys of the parts that earlier owners recorded
	copies  copyTracker

	suspects suspects // rows given back by workers that may have crashed a server

	complete int                    // number of shards with all rows committed
	nodes    map[string]*commitRate // committed rows, by address of the node
	paces    map[string]*commitRate // the entry of nodes for each worker, including removed workers
}

// A PartProposal is a part that a worker has reported, and the record with which the store
// can commit the part.
type PartProposal struct {
	Worker string
	Part
	Record store.Part // the record to be committed
	Repeat bool       // another part has some of these rows, so the whole part is dropped
}

// NewOwner returns the owner's state for a job with these shards and recorded parts. It
// returns an error if a part record does not fit the shards.
func NewOwner(shards []shard.ManifestEntry, parts []store.Part) (*Owner, error) {
	b, err := newRowStates(shards, parts)
	if err != nil {
		return nil, err
	}
	o := &Owner{
		rows: rowsIn(shards), states: b, plan: newSpanPlanner(shards, &b.free),
		workers: make(map[string]*Assignee), at: make(map[string][]*Assignee), retired: make(map[string]bool), known: make(map[string]bool),
		nodes: make(map[string]*commitRate), paces: make(map[string]*commitRate), suspects: make(suspects),
	}
	for n := range shards {
		if o.isShardCommitted(n) {
			o.complete++
		}
	}
	for _, p := range parts {
		o.known[p.Key] = true
	}
	return o, nil
}

// SetRowGroups makes the owner assign the first rows of the job by prefix (see partition).
// groups has one byte for each of these rows: the group of the row (see order.PrefixGrouper).
// Rows that workers already have stay with them.
func (o *Owner) SetRowGroups(groups []byte) {
	if len(groups) > 0 {
		o.plan.partition = newPartition(o.plan.shards, o.plan.free, groups)
	}
}

// Append adds the next shards of a job while the input is still being read. copies has,
// for each new shard, the rows that are copies; nil means none.
func (o *Owner) Append(shards []shard.ManifestEntry, copies []*roaring.Bitmap) {
	for i, info := range shards {
		o.states.free.Add(len(o.plan.shards)+i, rowRange(0, info.Rows))
		if i < len(copies) {
			o.states.setCopies(len(o.plan.shards)+i, copies[i])
		}
	}
	o.plan.addShards(shards)
	o.rows += rowsIn(shards)
	o.dueAll = true
}

// rowsIn returns the number of rows in shards.
func rowsIn(shards []shard.ManifestEntry) (rows int64) {
	for _, s := range shards {
		rows += int64(s.Rows)
	}
	return rows
}

// CountShards returns the number of shards that the owner knows.
func (o *Owner) CountShards() int { return len(o.plan.shards) }

// HandleHeartbeat processes a heartbeat that arrived at now. It returns the worker, and a proposal
// for each part that the owner did not know. If a is nil, the worker must stop.
func (o *Owner) HandleHeartbeat(h *Heartbeat, now time.Time) (a *Assignee, parts []PartProposal) {
	if o.retired[h.Worker] || !o.isPlausible(h) {
		return nil, nil
	}
	behind := false
	if a = o.workers[h.Worker]; a == nil {
		if a = o.addWorker(h); a == nil {
			o.retired[h.Worker] = true
			return nil, nil
		}
		o.paces[h.Worker] = o.nodeCommitRate(a, now)
		behind = o.hasRowsCommittedByOthers(h)
	}
	a.heard = now
	if a.last != nil && h.Number <= a.last.Number { // a newer heartbeat arrived first
		return a, nil
	}
	newest := *h
	newest.Holds, newest.Back, newest.Parts, newest.Suspects = nil, nil, nil, nil
	a.last = &newest
	a.unconfirmed = slices.DeleteFunc(a.unconfirmed, func(b Batch) bool { return b.Number <= h.Received })
	if h.Batch > a.taken {
		a.taken = h.Batch
		for _, s := range h.Back {
			o.release(a.Worker, s.Shard, s.Rows.Bitmap)
		}
		for _, s := range h.Suspects {
			o.suspects.add(s)
		}
	}
	parts = o.proposeNewParts(a, h.Parts)
	if behind && h.Ready > 0 {
		o.requestRowsBack(a, h.Ready)
	}
	o.queueForAssignment(a)
	return a, parts
}

// hasRowsCommittedByOthers reports whether some rows that a worker has were already committed for other
// workers, for example while the worker's node was suspended. The owner then takes back
// all rows that the worker has not sent, and assigns the uncommitted rows again.
func (o *Owner) hasRowsCommittedByOthers(h *Heartbeat) bool {
	var own RowsByShard
	for _, p := range h.Parts {
		own.Add(p.Shard, p.Rows.Bitmap)
	}
	return slices.ContainsFunc(h.Holds, func(s ShardRows) bool {
		done := o.states.committed.intersect(s.Shard, s.Rows.Bitmap)
		if mine := own.inShard(s.Shard); mine != nil {
			done.AndNot(mine)
		}
		return !done.IsEmpty()
	})
}

// StrandedWorkers returns the workers on nodes that could not use the bucket for at least
// patience while other nodes could use it. Such a worker cannot write its finished
// rows, so other workers should run these rows. Call StrandedWorkers regularly.
func (o *Owner) StrandedWorkers(patience time.Duration, now time.Time) (stranded []*Assignee) {
	for _, a := range o.sorted {
		if a.bucketOutage() >= patience && patience > 0 {
			stranded = append(stranded, a)
		}
	}
	switch away := o.CountCutOffWorkers(); {
	case away == 0 || away == len(o.workers): // all nodes can use the bucket, or none can
		o.split = time.Time{}
	case o.split.IsZero():
		o.split = now
	}
	if o.split.IsZero() || now.Sub(o.split) < patience {
		return nil
	}
	return stranded
}

// CountCutOffWorkers returns the number of workers whose nodes cannot use the bucket.
func (o *Owner) CountCutOffWorkers() int { return o.counts.away }

// WaitReason returns the reason why the job waits: the reason of the first waiting worker,
// if all workers with servers wait. It returns "" if a worker with servers does not
// wait.
func (o *Owner) WaitReason() (waits string) {
	for _, a := range o.sorted {
		switch {
		case a.last == nil || a.last.Engines == 0:
		case a.last.Waits == "":
			return ""
		case waits == "":
			waits = a.last.Waits
		}
	}
	return waits
}

// IsFullyCommitted reports whether all rows are committed.
func (o *Owner) IsFullyCommitted() bool { return o.states.committed.Count() == o.rows }

// proposeNewParts processes the parts in a heartbeat, and returns a proposal for each new
// part. It also forgets acknowledged parts that the heartbeat no longer lists.
func (o *Owner) proposeNewParts(a *Assignee, parts []Part) (fresh []PartProposal) {
	named := make(map[string]bool, len(parts))
	for _, p := range parts {
		named[p.Key] = true
		switch {
		case a.parts[p.Key] != nil:
		case o.known[p.Key]:
			a.parts[p.Key] = &reportedPart{p, true}
		default:
			proposal := o.propose(a, p)
			a.parts[p.Key] = &reportedPart{p, proposal.Repeat}
			fresh = append(fresh, proposal)
		}
	}
	maps.DeleteFunc(a.parts, func(key string, p *reportedPart) bool { return p.acked && !named[key] })
	return fresh
}

// propose returns a proposal for a reported part. If another part has some of its rows,
// the proposal is a Repeat, and the rows of the part become free.
func (o *Owner) propose(a *Assignee, p Part) PartProposal {
	if o.states.anyWritten(p.Shard, p.Rows.Bitmap) {
		o.release(a.Worker, p.Shard, p.Rows.Bitmap)
		return PartProposal{Worker: a.Worker, Part: p, Repeat: true}
	}
	return o.acceptPart(a.Worker, p)
}

// acceptPart returns the proposal to commit a part, and marks the part's rows as written.
// The caller has checked that no other part has these rows.
func (o *Owner) acceptPart(worker string, p Part) PartProposal {
	o.states.markWritten(p.Shard, p.Rows.Bitmap)
	rec := store.Part{Key: p.Key, Shard: p.Shard, Rows: int64(p.Rows.GetCardinality()), Totals: p.Totals, Size: p.Size}
	if rec.Complete = rec.Rows == int64(o.plan.shards[p.Shard].Rows); !rec.Complete {
		rec.Accepted, _ = p.Rows.ToBytes() // writing to memory cannot fail
	}
	return PartProposal{Worker: worker, Part: p, Record: rec}
}

// isPlausible reports whether the heartbeat can be true: all its rows exist in the job,
// and it gives back all its suspects.
func (o *Owner) isPlausible(h *Heartbeat) bool {
	return o.plan.allRowsExist(h.Holds) && o.plan.allRowsExist(h.Back) && h.suspectsGivenBack() &&
		!slices.ContainsFunc(h.Parts, func(p Part) bool { return !o.plan.rowsExist(p.Shard, p.Rows.Bitmap) })
}

// addWorker adds the sender of a heartbeat as a new worker. It returns nil if another worker
// has some of its rows, or if the sender has assignments of this epoch.
func (o *Owner) addWorker(h *Heartbeat) *Assignee {
	if !h.Fresh { // the worker has assignments of this epoch that this owner did not send
		return nil
	}
	holds := rowsOf(h.Holds)
	for n, rows := range holds.shards {
		o.plan.markBegun(n)
		free, done := o.states.free.intersect(n, rows), o.states.committed.intersect(n, rows)
		free.Or(o.states.copies.intersect(n, rows))
		if free.GetCardinality()+done.GetCardinality() != rows.GetCardinality() {
			return nil
		}
	}
	for n, rows := range holds.shards {
		have := o.states.free.intersect(n, rows)
		have.Or(o.states.copies.intersect(n, rows))
		o.states.assign(h.Worker, n, have)
	}
	a := &Assignee{Worker: h.Worker, Address: h.Address, parts: make(map[string]*reportedPart)}
	o.workers[h.Worker] = a
	o.at[a.Address] = append(o.at[a.Address], a)
	at, _ := slices.BinarySearchFunc(o.sorted, a, byName)
	o.sorted = slices.Insert(o.sorted, at, a)
	return a
}

// release makes rows of a worker free, so that any worker can get them.
func (o *Owner) release(worker string, shard int, rows *roaring.Bitmap) {
	o.states.release(worker, shard, rows)
	o.plan.markBegun(shard)
	o.dueAll = true
}

// queueForAssignment updates the counts of a worker, and makes the next call of AssignRows
// examine the worker.
func (o *Owner) queueForAssignment(a *Assignee) {
	o.updateCounts(a, a.counts())
	o.toServe = append(o.toServe, a)
}

// updateCounts replaces the numbers that a worker adds to the owner's counts by current.
func (o *Owner) updateCounts(a *Assignee, current workerCounts) {
	o.counts = o.counts.plus(a.counted, -1).plus(current, 1)
	a.counted = current
}

// MarkCommitted processes the news that the store has recorded part p of a worker. It
// returns the worker, or nil if the worker was removed.
func (o *Owner) MarkCommitted(worker string, p Part, now time.Time) *Assignee {
	o.commit(worker, p, now)
	a := o.workers[worker]
	if a == nil {
		return nil
	}
	if a.parts[p.Key] != nil {
		a.parts[p.Key].acked = true
	}
	o.toServe = append(o.toServe, a) // the worker has fewer rows than before
	return a
}

// Assignment returns the current full state that the owner sends to a worker.
func (o *Owner) Assignment(a *Assignee) *Assignment {
	m := &Assignment{
		Worker: a.Worker, Batches: slices.Clone(a.unconfirmed), Exhausted: o.Exhausted(), Taken: a.taken, Revoke: a.revoked,
	}
	for _, key := range slices.Sorted(maps.Keys(a.parts)) {
		if a.parts[key].acked {
			m.Acked = append(m.Acked, key)
		}
	}
	return m
}

// Remove removes a worker. The worker's rows become free, except rows in reported
// parts. again is the number of rows that will run again.
func (o *Owner) Remove(a *Assignee) (again int64) {
	o.plan.forget(a.Worker)
	delete(o.workers, a.Worker)
	if there := slices.DeleteFunc(o.at[a.Address], func(b *Assignee) bool { return b == a }); len(there) > 0 {
		o.at[a.Address] = there
	} else {
		delete(o.at, a.Address)
	}
	if at, found := slices.BinarySearchFunc(o.sorted, a, byName); found {
		o.sorted = slices.Delete(o.sorted, at, at+1)
	}
	o.updateCounts(a, workerCounts{})
	o.retired[a.Worker] = true
	o.dueAll = true
	for n := range o.states.assignedTo(a.Worker).shards {
		o.plan.markBegun(n)
	}
	return o.states.releaseAll(a.Worker)
}

// MarkAllHeard counts every worker as heard at the given time or later, because the owner
// could not process heartbeats before that time.
func (o *Owner) MarkAllHeard(at time.Time) {
	for _, a := range o.workers {
		if a.heard.Before(at) {
			a.heard = at
		}
	}
}

// SilentWorkers returns the workers with no heartbeat since the given time. Even a worker on
// the owner's node may be silent: in a split store, another node may have become the
// owner and taken over the worker.
func (o *Owner) SilentWorkers(since time.Time) []*Assignee {
	return slices.DeleteFunc(o.Workers(), func(a *Assignee) bool { return !a.heard.Before(since) })
}

// WorkerAt returns a worker on the node with this address, or nil if the node has no worker.
func (o *Owner) WorkerAt(address string) *Assignee {
	if there := o.at[address]; len(there) > 0 {
		return there[0]
	}
	return nil
}

// Exhausted reports whether no row is free.
func (o *Owner) Exhausted() bool { return o.plan.exhausted() }

// HasAssignedRows reports whether a worker has rows that are not in a reported part.
func (o *Owner) HasAssignedRows() bool { return o.states.assignedCount > 0 }

// CountOpenRows returns the number of rows that are not committed.
func (o *Owner) CountOpenRows() int64 { return o.rows - o.states.committed.Count() }

// CountFreeRows returns the number of free rows in all shards that the owner knows.
func (o *Owner) CountFreeRows() int64 { return o.states.free.Count() }

// Workers returns all workers, sorted by name.
func (o *Owner) Workers() []*Assignee { return slices.Clone(o.sorted) }

// A RowLocation is the state of a row, and the worker that has the row.
type RowLocation struct {
	State  RowState `json:"state"`
	Worker string   `json:"worker,omitempty"` // name of the worker; empty unless the row is assigned
}

// LocateRow returns the state and the worker of a row. row is the row's number in the
// input.
func (o *Owner) LocateRow(row int64) (p RowLocation) {
	n, found := slices.BinarySearchFunc(o.plan.shards, row, func(s shard.ManifestEntry, row int64) int {
		switch {
		case row < s.First:
			return 1
		case row >= s.First+int64(s.Rows):
			return -1
		}
		return 0
	})
	p.State = Elsewhere
	if found {
		p.State, p.Worker = o.states.stateOf(n, int(row-o.plan.shards[n].First))
	}
	return p
}
