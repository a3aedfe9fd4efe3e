package actors

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// This half of the worker decides what it sends and loads: never more than the
// engines want, than the node's budget has room for, and than a crash may lose.

// An enginePort is this job's way into one engine.
type enginePort struct {
	lane        *lane
	disp        *dispatcher
	outstanding int
}

// room is how many more tasks an engine should get: enough to fill its window
// and half as many waiting, so that it never idles for want of a message.
func (p *enginePort) room() int {
	limit, _, _ := p.disp.load()
	want := limit + max(limit/2, 8)
	if p.lane.group > 1 {
		want = max(want, 4*p.lane.group)
	}
	return want - p.outstanding
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
	if pause := w.rows.wake(time.Now()); pause > 0 {
		w.timers.after(c, pause, retryDue{})
	}
	want := 0
	for _, p := range w.ports {
		room := p.room()
		want += max(room, 0)
		if room < p.lane.group { // a few at a time is not worth a call
			continue
		}
		w.send(p, w.rows.take(w.afford(c, min(room, w.rows.ready()))))
	}
	if len(w.ports) > 0 && w.rows.ready() <= want {
		w.load(c)
	}
	if len(w.todo) < 2 && !w.asked && !w.exhausted {
		w.asked = true
		c.Request(w.owner, wantSpans{})
	}
}

// afford returns how many of n rows may go out, now that their answers need
// room. One always may, so that no job stands still.
func (w *worker) afford(c actor.Context, n int) int {
	if n == 0 || w.uncommitted > 0 && w.unwritten+w.uncommitted >= w.cfg.PartBytes {
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
func (w *worker) send(p *enginePort, tasks []*task) {
	if len(tasks) == 0 {
		return
	}
	for _, t := range tasks {
		t.via, t.reserved = p, w.answer
	}
	p.outstanding += len(tasks)
	w.outstanding += len(tasks)
	p.disp.put(p.lane, tasks)
}

// unreserve gives back the room for the answer of a task that brought none.
func (w *worker) unreserve(t *task) {
	w.hold(-t.reserved)
	t.reserved = 0
}

// load brings in the next block, if there is one and the budget has room. A
// worker with nothing in memory always gets one, so that no job stands still.
func (w *worker) load(c actor.Context) {
	if w.loading || w.noLoad || len(w.todo) == 0 {
		return
	}
	s := w.todo[0]
	size := w.job.manifest.Shards[s.shard].spanBytes(s)
	if w.outstanding == 0 && w.rows.empty() && w.unwritten == 0 {
		w.hold(size)
	} else if w.budget.acquire(1, size, w.room(c, loadShare)) == 0 {
		w.noLoad = true
		return
	} else {
		w.held += size
	}
	w.loading = true
	st := w.shard(s.shard)
	have := blockLoaded{span: s, size: size, input: st.input, block: st.block}
	w.work.run(c, func(ctx context.Context) any { return loadBlock(ctx, w.cfg.Blob, w.job, have) })
}
