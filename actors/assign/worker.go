package assign

import (
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
)

// A Worker is the state of a job on a worker's node: the states of the worker's rows,
// and the parts that the owner has not acknowledged.
type Worker struct {
	name     string
	beats    int64  // number of heartbeats sent, to all owners
	epoch    int64  // epoch of the current owner
	session  string // session of the current owner
	fresh    bool   // the worker has no assignment of this epoch yet
	states   rowStates
	received int64 // number of the last batch of spans that the worker received
	revoked  int64 // number of the last Revocation that the worker carried out
	// back has the rows that heartbeats give back until the owner has taken them. Rows
	// that become free meanwhile follow in the next batch.
	back     RowsByShard
	batch    int64            // number of the batch of rows in back
	parts    map[string]Part  // parts that the owner has not acknowledged, by object key
	answered map[int][]uint32 // by shard: rows with answers that are not yet Finished in states
	suspects suspects         // rows to give back that may have crashed a server
}

// NewWorker returns a worker without rows, for the owner with this epoch and session.
func NewWorker(name string, epoch int64, session string) *Worker {
	return &Worker{
		name: name, epoch: epoch, session: session, fresh: true,
		states: rowStates{assigned: make(map[string]*RowsByShard)}, parts: make(map[string]Part),
		answered: make(map[int][]uint32), suspects: make(suspects),
	}
}

// SwitchOwner switches to another owner, and returns false if the owner is not new. A new
// owner has a later epoch. If the store lost the record of the epoch, a new owner may
// also have the same epoch with another session. The worker drops the rows that it was
// giving back: the new owner assigns them again, because no heartbeat lists them any
// more.
func (w *Worker) SwitchOwner(epoch int64, session string) bool {
	if epoch < w.epoch || epoch == w.epoch && session == w.session {
		return false
	}
	w.epoch, w.session, w.fresh, w.received, w.revoked = epoch, session, true, 0, 0
	w.back, w.states.free = RowsByShard{}, RowsByShard{}
	clear(w.suspects)
	return true
}

// FillHeartbeat fills in a heartbeat with the worker's current state.
func (w *Worker) FillHeartbeat(h *Heartbeat) {
	w.beats++
	h.Worker, h.Number = w.name, w.beats
	h.Epoch, h.Fresh, h.Received, h.Recalled = w.epoch, w.fresh, w.received, w.revoked
	if w.fresh {
		h.Holds = w.holds()
	}
	if w.back.Count() == 0 && w.states.free.Count() > 0 {
		w.back, w.states.free = w.states.free, RowsByShard{}
		w.batch++
	}
	h.Back, h.Batch = w.back.list(), w.batch
	h.Suspects = w.suspects.filter(w.back.has)
	for _, key := range slices.Sorted(maps.Keys(w.parts)) {
		h.Parts = append(h.Parts, w.parts[key])
	}
}

// holds returns all rows that are assigned to the worker, finished or written.
func (w *Worker) holds() []ShardRows {
	w.applyAnswered()
	var all RowsByShard
	for _, rows := range []*RowsByShard{w.states.assignedTo(w.name), &w.states.finished, &w.states.written} {
		for n, set := range rows.shards {
			all.Add(n, set)
		}
	}
	return all.list()
}

// ApplyAssignment applies an assignment and returns its new content: the spans to run, the keys of
// parts that are now acknowledged, and the number of rows to give back. ok is false if
// the assignment comes from another owner or is for another worker.
func (w *Worker) ApplyAssignment(m *Assignment) (spans []RowSpan, acked []string, back int, ok bool) {
	if m.Epoch != w.epoch || m.Worker != w.name {
		return nil, nil, 0, false
	}
	w.fresh = false
	for _, key := range m.Acked { // before the batches: a batch may contain rows of a dropped part again
		if p, waits := w.parts[key]; waits {
			w.states.removeUncommitted(p.Shard, p.Rows.Bitmap)
			delete(w.parts, key)
			acked = append(acked, key)
		}
	}
	for _, b := range m.Batches {
		if b.Number <= w.received {
			continue
		}
		w.received = b.Number
		for _, s := range b.Spans {
			w.states.assign(w.name, s.Shard, s.Rows())
		}
		spans = append(spans, b.Spans...)
	}
	if m.Taken >= w.batch {
		w.suspects.remove(w.back.has)
		w.back = RowsByShard{}
	}
	if m.Revoke.Number > w.revoked {
		w.revoked = m.Revoke.Number
		back = m.Revoke.Rows
	}
	return spans, acked, back, true
}

// MarkFinished records that a row has an answer. Changing the states is fast only for many
// rows at once, so MarkFinished collects the rows, and applyAnswered changes their states later.
func (w *Worker) MarkFinished(shard, row int) {
	w.answered[shard] = append(w.answered[shard], uint32(row))
}

// applyAnswered moves the rows that Finished has collected into the state Finished.
func (w *Worker) applyAnswered() {
	for n, rows := range w.answered {
		slices.Sort(rows)
		w.states.markFinished(w.name, n, roaring.BitmapOf(rows...))
	}
	clear(w.answered)
}

// MarkWritten adds a part that the worker has stored.
func (w *Worker) MarkWritten(p Part) {
	w.applyAnswered()
	w.parts[p.Key] = p
	w.states.markWritten(p.Shard, p.Rows.Bitmap)
}

// Suspect records that a row may have crashed a server. The worker must give this row
// back.
func (w *Worker) Suspect(s SuspectRow) { w.suspects.add(s) }

// GiveBack marks rows that the next heartbeats give back to the owner.
func (w *Worker) GiveBack(shard int, rows *roaring.Bitmap) { w.states.release(w.name, shard, rows) }

// CountUnfinished returns how many of the worker's rows in a shard have no answer yet.
func (w *Worker) CountUnfinished(shard int) int {
	return w.states.assignedTo(w.name).countOf(shard) - len(w.answered[shard])
}

// Idle reports whether the worker has no rows and no parts, and the owner knows this.
func (w *Worker) Idle() bool {
	w.applyAnswered()
	return w.states.assignedTo(w.name).Count() == 0 && w.states.finished.Count() == 0 && w.states.written.Count() == 0 &&
		len(w.parts) == 0 && w.back.Count() == 0 && w.states.free.Count() == 0
}
