package actors

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/actors/order"
)

// This half of the worker decides what it sends and loads: never more than the
// engines want, than the node's budget has room for, and than a crash may run
// again.

// An enginePort is this job's way into one engine.
type enginePort struct {
	id          order.Port
	queue       *dispatch.Queue
	outstanding int
}

// room is how many more tasks an engine should get.
func (p *enginePort) room() int {
	return p.queue.Demand() - p.outstanding
}

// port is the open way that has a number; nil once it is closed.
func (w *worker) port(id order.Port) *enginePort {
	for _, p := range w.ports {
		if p.id == id {
			return p
		}
	}
	return nil
}

// firstAnswer is how many bytes an answer is taken to need before any has come.
const firstAnswer = 2 << 10

// learn moves the expected size of an answer towards one that came.
func (w *worker) learn(bytes int64) { w.answer += (bytes - w.answer) / 64 }

// pump keeps the pipeline moving: rows to engines, blocks to rows, spans to
// blocks.
func (w *worker) pump(c actor.Context) {
	if w.draining {
		w.finishDraining(c)
		return
	}
	if pause := w.rows.Wake(time.Now()); pause > 0 {
		w.timers.after(c, pause, retryDue{})
	}
	w.stall(w.atRisk(time.Now()))
	want := w.fill(c)
	if len(w.ports) > 0 && (w.rows.Ready() <= want || w.ahead()) {
		w.load(c)
	}
	idle := w.rows.Ready() == 0 && len(w.todo) == 0
	hungry := idle && want > 0
	if w.wants() && !w.asked && !w.exhausted || hungry && !w.hungry {
		w.asked, w.hungry = true, hungry
		w.report(c)
	}
	w.hungry = hungry
	if idle && w.outstanding == 0 && w.unwritten > 0 {
		w.flushAll(c) // nothing would come to be written with it
	}
}

// atRisk reports whether finished rows wait for longer to be committed than it
// takes to gather a part and, while most of the next gathers, to record it:
// because the bucket or the store is away, the job has no owner, or that owner
// has given this worker up. Its rows may then have to be run again, and no more
// of them are begun.
func (w *worker) atRisk(now time.Time) bool {
	gather, record := w.cfg.PartInterval, max(w.cfg.PartInterval, heartbeatInterval)*3/4 // a report may have to be repeated
	then := now.Add(-gather - record)
	for _, st := range w.shards {
		if st.waits(then) {
			return true
		}
	}
	return w.cut.waits(then)
}

// stall notes whether rows may be begun. Those that stand before an engine are
// not.
func (w *worker) stall(now bool) {
	if now == w.stalled {
		return
	}
	w.stalled = now
	if !now {
		w.metrics.stalled.Dec()
		w.log.Info("finished rows are committed again")
		return
	}
	w.metrics.stalled.Inc()
	w.log.Warn("finished rows cannot be committed, no more are begun")
	for _, p := range w.ports {
		w.withdraw(p)
	}
}

// withdraw takes back what waits before an engine. What is running there comes
// through the outbox as usual.
func (w *worker) withdraw(p *enginePort) {
	back := p.queue.Withdraw()
	w.outstanding -= len(back)
	p.outstanding -= len(back)
	for _, t := range back {
		w.unreserve(t)
	}
	w.rows.Return(back)
}

// wants reports whether there is room for more spans.
func (w *worker) wants() bool { return len(w.todo) < 2 && !w.draining }

// fill hands rows to the engines, to the least busy first and a few at a time
// where rows are short, and returns how many they had room for.
func (w *worker) fill(c actor.Context) (want int) {
	open := make([]*enginePort, 0, len(w.ports))
	rooms := make(map[*enginePort]int, len(w.ports))
	for _, p := range w.ports {
		room := p.room()
		want += max(room, 0)
		if room >= p.queue.Group() { // a few at a time is not worth a call
			open = append(open, p)
			rooms[p] = room
		}
	}
	for len(open) > 0 && w.rows.Ready() > 0 {
		least := 0
		for i, p := range open {
			if rooms[p] > rooms[open[least]] || rooms[p] == rooms[open[least]] && p.id < open[least].id {
				least = i
			}
		}
		p := open[least]
		share := max(w.rows.Ready()/(16*len(w.ports)), p.queue.Group(), 1)
		n := w.afford(c, min(rooms[p], share, w.rows.Ready()))
		tasks := w.rows.Take(p.id, n, len(w.ports) == 1)
		w.disown(n - len(tasks))
		w.send(p, tasks)
		if rooms[p] -= n; n == 0 || len(tasks) < n || rooms[p] < p.queue.Group() {
			open = append(open[:least], open[least+1:]...)
		}
	}
	return want
}

// Rows are loaded ahead of what the engines have room for, so that the longest
// of them can go first, up to aheadRows and as long as aheadShare of the
// node's memory is not in use.
const (
	aheadRows  = 16_384
	aheadShare = 0.25
)

func (w *worker) ahead() bool {
	return w.rows.Ready() < aheadRows && float64(w.budget.inUse()) < aheadShare*float64(w.budget.limit)
}

// disown gives back the room of answers to rows that were not there to send.
func (w *worker) disown(rows int) { w.hold(-int64(rows) * w.answer) }

// afford returns how many of n rows may go out, now that their answers need
// room. One always may, so that no job stands still, but none while what is
// finished cannot be committed.
func (w *worker) afford(c actor.Context, n int) int {
	if n == 0 || w.stalled || w.cut.bytes > 0 && w.unwritten+w.cut.bytes >= w.cfg.PartBytes {
		return 0
	}
	if !w.noSend {
		got := w.budget.acquire(n, w.answer, w.room(c, runShare))
		w.held += int64(got) * w.answer
		if got > 0 {
			return got
		}
		w.noSend = true
		w.flushAll(c) // our own finished rows may be what fills it
	}
	if w.outstanding > 0 {
		return 0
	}
	w.hold(w.answer)
	return 1
}

func (w *worker) room(c actor.Context, share float64) room {
	root, self := c.ActorSystem().Root, c.Self()
	return room{share: share, urgent: w.job.spec.Priority == 0, wake: func() { root.Send(self, budgetFreed{}) }}
}

// send gives tasks, whose answers have room, to an engine.
func (w *worker) send(p *enginePort, tasks []*dispatch.Task) {
	if len(tasks) == 0 {
		return
	}
	for _, t := range tasks {
		t.Port, t.Reserved = p.id, w.answer
	}
	p.outstanding += len(tasks)
	w.outstanding += len(tasks)
	p.queue.Put(tasks)
}

// unreserve gives back the room for the answer of a task that brought none.
func (w *worker) unreserve(t *dispatch.Task) {
	w.hold(-t.Reserved)
	t.Reserved = 0
}

// load brings in the next block, if there is one and the budget has room. A
// worker with nothing in memory always gets one, so that no job stands still.
func (w *worker) load(c actor.Context) {
	if w.loading || w.noLoad || len(w.todo) == 0 {
		return
	}
	s := w.todo[0]
	size := spanBytes(w.job.manifest.Shards[s.Shard], s)
	if w.outstanding == 0 && w.rows.Empty() && w.unwritten == 0 {
		w.hold(size)
	} else if w.budget.acquire(1, size, w.room(c, loadShare)) == 0 {
		w.noLoad = true
		return
	} else {
		w.held += size
	}
	w.loading = true
	st := w.shard(s.Shard)
	have := blockLoaded{span: s, size: size, input: st.input, block: st.block}
	w.work.run(c, func(ctx context.Context) any {
		var m blockLoaded
		_ = patiently(ctx, w.cfg.StoragePatience, w.log, "load rows", func() error {
			m = loadBlock(ctx, w.cfg.Blob, w.job, have)
			return m.err
		})
		return m
	})
}
