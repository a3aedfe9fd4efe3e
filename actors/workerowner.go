package actors

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/dispatch"
)

// This file has the worker's messages to and from the owner of its job. It also decides
// which rows the worker gives back, and when the worker ends.

// heartbeat sends the owner the complete state of the worker: its rows, its parts, and
// what it needs.
func (w *worker) heartbeat(c actor.Context) {
	outage, away := w.storage.ObjectsOutage()
	w.report.warnings = appendMissing(w.report.warnings, w.sender.Warnings())
	h := &assign.Heartbeat{
		Job: w.job.id, Address: w.address, Away: outage.Lasts.Milliseconds(),
		Want: w.loader.WantsSpans() && w.phase == workerRuns && !away, Hungry: w.report.hungry && !away, Ready: w.countUnsentRows(), Engines: w.sender.CountServers(),
		Leaves: w.phase != workerRuns, Left: w.hasNothingLeft(),
		Waits:    w.report.waits.update(w.waitReason(), time.Now()),
		Warnings: w.report.warnings, Servers: w.report.servers, Refused: maps.Clone(w.report.refused), Fault: w.report.fault,
	}
	w.rows.FillHeartbeat(h)
	w.owner.send(c, w.tasks, h)
}

// waitReason returns the reason why this worker waits for rows of other jobs now; empty
// if it does not wait.
func (w *worker) waitReason() string {
	switch sent, running := w.sender.Sent(), w.sender.Running(); {
	case w.phase != workerRuns:
	case sent == 0 && w.writing.isWaiting():
		return assign.WaitsForWrite
	case sent > 0 && running == 0:
		return assign.WaitsForServer
	case sent <= 1 && w.memory.IsWaiting():
		return assign.WaitsForMemory
	}
	return ""
}

// countUnsentRows returns how many rows were not sent to engines, so that the worker could give
// them back.
func (w *worker) countUnsentRows() int {
	return w.sender.Rows.CountReturnable() + w.loader.CountQueuedRows()
}

// hasNothingLeft reports whether a draining worker has no rows and no unwritten parts.
func (w *worker) hasNothingLeft() bool {
	return w.phase != workerRuns && w.sender.Sent() == 0 && !w.loader.Loading() && w.flusher.Idle() && w.rows.Idle()
}

// lookUpAfter is how long the owner may be silent before the worker reads the job's
// record to learn whether the job has ended.
const lookUpAfter = 3 * heartbeatInterval

func (w *worker) onHeartbeatDue(c actor.Context) {
	if w.phase == workerOver {
		return
	}
	silent := time.Since(w.report.heard)
	if silent > w.cfg.Ownership.AdoptionTimeout {
		w.log.Warn("no new owner claimed the job; its worker drops its rows", "after", silent)
		w.askToStop(c)
		return
	}
	if w.hasNothingLeft() {
		if w.phase == workerLeft { // the last heartbeat has told the owner that nothing is left
			w.askToStop(c)
			return
		}
		w.phase = workerLeft
	}
	w.timers.runAfter(c, heartbeatInterval, "heartbeat", w.onHeartbeatDue)
	if silent > lookUpAfter {
		w.stopIfJobEnded(c)
	}
	if _, away := w.storage.ObjectsOutage(); away {
		w.giveBack(w.countUnsentRows()) // so that a worker that can use the bucket may run these rows
	}
	w.heartbeat(c)
}

// stopIfJobEnded reads the job's record, and stops the worker if the job has ended.
func (w *worker) stopIfJobEnded(c actor.Context) {
	w.tasks.run(c, "look up a job", func(ctx context.Context) mailboxStep {
		ctx, cancel := context.WithTimeout(ctx, lookUpAfter)
		defer cancel()
		rec, err := w.cfg.Store.Get(ctx, w.job.id)
		if errors.Is(err, rowmill.ErrNotFound) || err == nil && rec.Job.Status.IsTerminal() {
			return mailboxStep(w.askToStop)
		}
		return nil
	})
}

// askToStop asks the node to stop this worker.
func (w *worker) askToStop(c actor.Context) {
	if w.phase != workerOver {
		w.phase = workerOver
		c.Send(w.node, workerEnded{job: w.job.id, worker: w.name})
	}
}

// onAdopt switches to the owner in the message, if this owner is newer than the present
// one, and sends a heartbeat.
func (w *worker) onAdopt(c actor.Context, m adopt) {
	if w.rows.SwitchOwner(m.epoch, m.session) {
		w.log.Info("the job has a new owner, and the worker continues", "epoch", m.epoch)
		w.owner, w.report.heard = m.owner, time.Now()
	}
	w.heartbeat(c)
}

func (w *worker) onAssignment(c actor.Context, m *assign.Assignment) {
	spans, acked, back, ok := w.rows.ApplyAssignment(m)
	if !ok {
		return
	}
	w.report.heard = time.Now()
	if m.Stop {
		w.askToStop(c)
		return
	}
	for _, key := range acked {
		w.flusher.MarkAcked(key)
	}
	if len(spans) > 0 {
		w.report.asked = false
	}
	w.loader.Add(spans, m.Exhausted)
	if back > 0 {
		w.giveBack(back)
		w.heartbeat(c)
	}
	w.startReadyWork(c)
}

// giveBack gives the owner up to n rows that were not sent to engines: first rows that are
// not loaded, then the rows that would be sent next, which another worker can start at
// once.
func (w *worker) giveBack(n int) {
	for _, s := range w.loader.Revoke(n) {
		n -= s.Count()
		w.returnRows(s.Shard, s.Rows())
	}
	w.giveBackTasks(w.sender.Rows.Remove(n))
}

// returnRows gives rows of a shard back to the owner, and counts the rows in the
// metrics.
func (w *worker) returnRows(shard int, rows *roaring.Bitmap) {
	w.rows.GiveBack(shard, rows)
	w.metrics.returned.WithLabelValues("back").Add(float64(rows.GetCardinality()))
}

// giveBackTasks gives rows that are loaded but not sent back to the owner. The owner also
// learns which of these rows may have crashed a server.
func (w *worker) giveBackTasks(tasks []*dispatch.RowTask) {
	var gone assign.RowsByShard
	for _, t := range tasks {
		gone.Add(t.Shard, roaring.BitmapOf(uint32(t.Rel)))
		if group, crashes := t.SuspectInfo(); group > 0 {
			w.rows.Suspect(assign.SuspectRow{Shard: t.Shard, Row: t.Rel, Group: group, Crashes: crashes})
		}
	}
	for n, rows := range gone.All() {
		w.returnRows(n, rows)
	}
	w.memory.Free(tasks)
}

// onDrain starts to drain the worker: it gives back rows that have not started, and
// lets running rows finish.
func (w *worker) onDrain(c actor.Context) {
	w.phase = max(w.phase, workerDrains)
	w.sender.CloseAll()
	w.finishDraining(c)
	w.heartbeat(c)
}

// finishDraining gives back rows that have not started and writes finished rows. It
// sends a heartbeat at once if it gives back rows, or if nothing is left.
func (w *worker) finishDraining(c actor.Context) {
	later := w.sender.Rows.RemoveLater()
	back := w.countUnsentRows() + len(later)
	w.giveBack(w.countUnsentRows())
	w.giveBackTasks(later)
	if w.sender.Sent() == 0 && !w.loader.Loading() {
		w.writeParts(c, w.flusher.CutAll())
	}
	if w.report.shouldTellDrain(back, w.hasNothingLeft()) {
		w.heartbeat(c)
	}
}
