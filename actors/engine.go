package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// Messages an engine receives.
type (
	probeDue struct{} // itself: look at the server again
	probed   struct { // its errand: what the server said
		info engine.Info
		err  error
	}
	gaugesDue  struct{} // itself: read the server's load
	gaugesRead struct {
		gauges engine.Gauges
		err    error
	}
	serverSuspect struct{ err error } // a lane: a connection broke
	openLane      struct {            // shard: I have rows of this job for you
		job *jobContext
		out *outbox
	}
)

// What openLane is answered with.
type (
	laneOpened struct {
		engine string
		lane   *lane
		disp   *dispatcher
	}
	laneRefused struct {
		engine string
		err    error
	}
)

// An engineActor stands for one inference server: it knows what the server
// serves and whether it answers, and opens lanes to it. Its dispatcher shares
// the server among the jobs.
type engineActor struct {
	cfg     Config
	server  engine.Engine
	node    *actor.PID
	disp    *dispatcher
	metrics *engineMetrics
	work    errand
	log     *slog.Logger

	known   bool // a probe has succeeded
	up      bool
	probing bool
	info    engine.Info
	timers  timers
}

// An engineView is what the rest of the node knows of an engine.
type engineView struct {
	name string
	pid  *actor.PID
	up   bool
	info engine.Info
	err  error // why it is not up
}

// serves reports whether the engine runs m now.
func (v engineView) serves(m rowmill.Model) (engine.ServedModel, bool) {
	if !v.up {
		return engine.ServedModel{}, false
	}
	return v.info.Find(m)
}

func (e *engineActor) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		e.onProbeDue(c)
	case probeDue:
		e.onProbeDue(c)
	case probed:
		e.onProbed(c, m)
	case gaugesDue:
		e.onGaugesDue(c)
	case gaugesRead:
		e.onGaugesRead(c, m)
	case serverSuspect:
		e.onServerSuspect(c, m)
	case openLane:
		e.onOpenLane(c, m)
	case *actor.Stopping:
		e.onStopping()
	default:
		unhandled(c, e.log)
	}
}

func (e *engineActor) onProbeDue(c actor.Context) {
	if e.probing {
		return
	}
	e.probing = true
	e.work.run(c, func(ctx context.Context) any {
		ctx, cancel := context.WithTimeout(ctx, e.cfg.ProbeInterval)
		defer cancel()
		info, err := e.server.Probe(ctx)
		return probed{info, err}
	})
}

func (e *engineActor) onProbed(c actor.Context, m probed) {
	e.probing = false
	e.timers.after(c, e.cfg.ProbeInterval, probeDue{})
	wasUp, before := e.up, e.info
	// A busy server may be too slow for a probe while it answers rows.
	if m.err != nil && wasUp && e.disp.alive(time.Now().Add(-e.cfg.ProbeInterval)) {
		e.log.Debug("probe failed, but rows are answered", "engine", e.server.Name(), "err", m.err)
		return
	}
	e.up = m.err == nil
	if e.up {
		e.info = m.info
	}
	if e.known && e.up == wasUp && (!e.up || sameModels(before, e.info)) {
		return
	}
	switch {
	case e.up:
		e.log.Info("engine is up", "engine", e.server.Name(), "kind", e.info.Kind, "models", len(e.info.Models), "slots", e.info.Slots, "simulated", e.info.Simulated)
		e.metrics.up.Set(1)
		e.disp.resume(e.info.Slots, !e.known || e.info.Slots != before.Slots)
		if !e.known {
			c.Send(c.Self(), gaugesDue{})
		}
		e.known = true
	case wasUp || !e.known:
		e.log.Warn("engine is down", "engine", e.server.Name(), "err", m.err)
		e.takeDown()
	}
	e.announce(c, m.err)
}

func (e *engineActor) takeDown() {
	e.metrics.up.Set(0)
	for l, tasks := range e.disp.pause() {
		for _, t := range tasks {
			t.verdict = unblamed
		}
		if len(tasks) > 0 {
			l.out.put(tasks...)
		}
	}
}

func (e *engineActor) announce(c actor.Context, err error) {
	c.Send(e.node, engineChanged{engineView{name: e.server.Name(), pid: c.Self(), up: e.up, info: e.info, err: err}})
}

func (e *engineActor) onGaugesDue(c actor.Context) {
	e.timers.after(c, e.cfg.GaugeInterval, gaugesDue{})
	limit, inFlight, _ := e.disp.load()
	e.metrics.window.Set(float64(limit))
	if !e.up || inFlight == 0 {
		return
	}
	e.work.run(c, func(ctx context.Context) any {
		ctx, cancel := context.WithTimeout(ctx, e.cfg.GaugeInterval)
		defer cancel()
		g, err := e.server.Gauges(ctx)
		return gaugesRead{g, err}
	})
}

func (e *engineActor) onGaugesRead(_ actor.Context, m gaugesRead) {
	if m.err != nil {
		if !errors.Is(m.err, engine.ErrNoGauges) {
			e.log.Debug("read gauges", "engine", e.server.Name(), "err", m.err)
		}
		return
	}
	e.disp.observe(m.gauges, time.Now())
}

// onServerSuspect looks at once whether the server still answers.
func (e *engineActor) onServerSuspect(c actor.Context, m serverSuspect) {
	if e.up && !e.probing {
		e.log.Debug("connection to engine broke", "engine", e.server.Name(), "err", m.err)
	}
	e.onProbeDue(c)
}

func (e *engineActor) onOpenLane(c actor.Context, m openLane) {
	refuse := func(err error) {
		c.Respond(laneRefused{engine: e.server.Name(), err: err})
	}
	served, ok := e.info.Find(m.job.spec.Model)
	if !e.up || !ok {
		refuse(&engine.Error{Class: engine.ServerFault, Message: "the engine does not serve the model now"})
		return
	}
	call, err := e.server.Prepare(m.job.params(served))
	if err != nil {
		refuse(fmt.Errorf("prepare for %s: %w", e.server.Name(), err))
		return
	}
	root, self := c.ActorSystem().Root, c.Self()
	c.Respond(laneOpened{engine: e.server.Name(), disp: e.disp, lane: &lane{
		job: m.job.id, account: m.job.spec.Account, priority: min(max(m.job.spec.Priority, 0), 1),
		group: m.job.group(e.cfg), model: m.job.spec.Model.ID, seed: m.job.seed,
		call: call, engine: e.server.Name(), judge: m.job.judge, out: m.out, ctx: m.job.ctx,
		suspect: func(err error) { root.Send(self, serverSuspect{err}) },
		metrics: e.metrics,
	}})
}

func (e *engineActor) onStopping() {
	e.timers.stop()
	e.work.cancel()
	e.disp.pause()
	e.work.all.Add(1)
	go func() {
		defer e.work.all.Done()
		e.disp.close()
		e.server.Close()
	}()
}

func sameModels(a, b engine.Info) bool {
	if len(a.Models) != len(b.Models) || a.Slots != b.Slots || a.Kind != b.Kind {
		return false
	}
	for i := range a.Models {
		if a.Models[i] != b.Models[i] {
			return false
		}
	}
	return true
}
