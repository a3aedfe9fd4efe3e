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

// This half of the worker speaks with the owner of its job: reports go out,
// orders come in.

// report tells the owner how things stand.
func (w *worker) report(c actor.Context) {
	r := &assign.Heartbeat{
		Job: w.job.id, Address: w.self,
		Want: w.wants(), Hungry: w.hungry, Ready: w.ready(), Ports: len(w.ports),
		Leaves: w.draining, Left: w.left(),
		Warnings: w.warnings, Refused: maps.Clone(w.refused), Fault: w.fault,
	}
	w.agreed.Report(r)
	w.owner.send(c, w.work, parcel{r.Job, r.Epoch, r})
}

// ready is how many rows could be given back.
func (w *worker) ready() int {
	n := w.rows.Ready()
	for i, s := range w.todo {
		if i > 0 || !w.loading {
			n += s.Count()
		}
	}
	return n
}

// lookUpAfter is how long an owner may be silent before the record is asked
// whether the job is over.
const lookUpAfter = 3 * heartbeatInterval

func (w *worker) onReportDue(c actor.Context) {
	if w.over {
		return
	}
	silent := time.Since(w.heard)
	if silent > w.cfg.AdoptionTimeout {
		w.log.Warn("no owner of the job took its rows over, they are let go", "after", silent)
		w.end(c)
		return
	}
	if w.left() {
		if w.done { // the owner has been told, and there is nothing to wait for
			w.end(c)
			return
		}
		w.done = true
	}
	w.timers.after(c, heartbeatInterval, reportDue{})
	if silent > lookUpAfter {
		w.lookUp(c)
	}
	w.report(c)
}

// lookUp asks the store whether the job is over.
func (w *worker) lookUp(c actor.Context) {
	w.work.run(c, func(ctx context.Context) any {
		ctx, cancel := context.WithTimeout(ctx, lookUpAfter)
		defer cancel()
		rec, err := w.cfg.Store.Get(ctx, w.job.id)
		return jobLookedUp{over: errors.Is(err, rowmill.ErrNotFound) || err == nil && rec.Job.Status.Terminal()}
	})
}

func (w *worker) onJobLookedUp(c actor.Context, m jobLookedUp) {
	if m.over {
		w.end(c)
	}
}

// end asks the node to stop this worker.
func (w *worker) end(c actor.Context) {
	if !w.over {
		w.over = true
		c.Send(w.node, workerOver{job: w.job.id, worker: w.name})
	}
}

// onAdopt turns to the job's new owner, or tells the same one again what it
// asks for.
func (w *worker) onAdopt(c actor.Context, m adopt) {
	if w.agreed.Adopt(m.epoch, m.session) {
		w.log.Info("job has another owner", "epoch", m.epoch)
		w.owner, w.heard = m.owner, time.Now()
	}
	w.report(c)
}

func (w *worker) onAssignment(c actor.Context, o *assign.Assignment) {
	spans, acked, back, ok := w.agreed.Obey(o)
	if !ok {
		return
	}
	w.heard = time.Now()
	if o.Stop {
		w.end(c)
		return
	}
	for _, key := range acked {
		w.cut.settle(key)
	}
	w.exhausted = o.Exhausted
	if len(spans) > 0 {
		w.asked = false
	}
	for _, s := range spans {
		w.shard(s.Shard)
		w.latest = s.Shard
	}
	w.todo = append(w.todo, spans...)
	if back > 0 {
		w.giveBack(back)
		w.report(c)
	}
	w.pump(c)
}

// giveBack lets go of up to n rows that were not sent: those that are not even
// loaded, then those that would go next, which another worker can begin with.
func (w *worker) giveBack(n int) {
	for len(w.todo) > 0 && !(len(w.todo) == 1 && w.loading) {
		last := w.todo[len(w.todo)-1]
		if last.Count() > n {
			break
		}
		n -= last.Count()
		w.todo = w.todo[:len(w.todo)-1]
		w.agreed.GiveBack(last.Shard, last.Rows())
	}
	w.surrender(w.rows.Remove(n))
}

// giveBackAll lets go of all that is not with an engine or being loaded.
func (w *worker) giveBackAll() {
	w.giveBack(w.ready())
	w.surrender(w.rows.RemoveLater())
}

func (w *worker) surrender(tasks []*dispatch.Task) {
	var gone assign.Rows
	for _, t := range tasks {
		gone.Add(t.Shard, roaring.BitmapOf(uint32(t.Rel)))
	}
	for n, rows := range gone.All() {
		w.agreed.GiveBack(n, rows)
	}
	w.release(tasks)
}

// broke tells the owner that this worker cannot go on.
func (w *worker) broke(c actor.Context, err error) {
	if w.job.ctx.Err() == nil {
		w.fail(c, &assign.Fault{Row: -1, Message: err.Error(), Err: err})
	}
}

// fail reports the first fault.
func (w *worker) fail(c actor.Context, f *assign.Fault) {
	if w.fault == nil {
		w.fault = f
		w.report(c)
	}
}
