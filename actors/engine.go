package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/engine"
)

// Messages an engine receives.
type (
	probeDue struct{} // itself: look at the server again
	probed   struct { // its errand: what the server said
		info engine.Info
		err  error
	}
	gaugesDue    struct{} // itself: read the server's load
	windowFilled struct{} // its dispatcher: it could grow, if the gauges say so
	gaugesRead   struct {
		gauges engine.Gauges
		err    error
	}
	serverSuspect struct{ err error } // its dispatcher: a connection broke
	breakerOpened struct {            // its dispatcher: too many failures in a row
		pause time.Duration
		err   error
	}
	restOver  struct{} // itself: the breaker may close
	leaveNode struct{} // node: give back what waits, then say so
	openQueue struct { // worker: I have rows of this job for you
		job *jobContext
		out *dispatch.Outbox
	}
)

// What openQueue is answered with.
type (
	queueOpened struct {
		engine string
		queue  *dispatch.Queue
	}
	queueRefused struct {
		engine string
		err    error
	}
)

// An engineActor stands for one inference server: it knows what the server
// serves and whether it answers, and opens queues to it. Its dispatcher shares
// the server among the jobs.
type engineActor struct {
	cfg     Config
	server  engine.Engine
	node    *actor.PID
	disp    *dispatch.Dispatcher
	metrics *engineMetrics
	work    errand
	log     *slog.Logger

	known   bool // a probe has succeeded
	left    bool // it was detached, and opens no queue any more
	up      bool
	probing bool
	info    engine.Info
	resting bool      // the breaker is open
	reading bool      // gauges are being read
	read    time.Time // since when, or when they were last
	timers  timers
}

// An engineView is what the rest of the node knows of an engine.
type engineView struct {
	name    string     // unique in the cluster
	local   string     // its name on its node
	address string     // of its node; empty for this one
	pid     *actor.PID // on this node
	up      bool
	info    engine.Info
	err     error // why it is not up
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
		root, self := c.ActorSystem().Root, c.Self()
		e.disp.Watch(dispatch.Hooks{
			Opened:  func(pause time.Duration, err error) { root.Send(self, breakerOpened{pause, err}) },
			Filled:  func() { root.Send(self, windowFilled{}) },
			Suspect: func(err error) { root.Send(self, serverSuspect{err}) },
		})
		e.onProbeDue(c)
	case probeDue:
		e.onProbeDue(c)
	case probed:
		e.onProbed(c, m)
	case gaugesDue:
		e.onGaugesDue(c)
	case windowFilled:
		if time.Since(e.read) >= e.disp.NextReading() { // the window was not full at the last reading
			e.onGaugesDue(c)
		}
	case gaugesRead:
		e.onGaugesRead(c, m)
	case serverSuspect:
		e.onServerSuspect(c, m)
	case breakerOpened:
		e.onBreakerOpened(c, m)
	case restOver:
		e.onRestOver(c)
	case openQueue:
		e.onOpenQueue(c, m)
	case leaveNode:
		e.onLeaveNode(c)
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
	if e.resting || e.left {
		return
	}
	wasUp, before := e.up, e.info
	// A busy server may be too slow for a probe while it answers rows.
	if m.err != nil && wasUp && e.disp.Alive(time.Now().Add(-e.cfg.ProbeInterval)) {
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
		if !wasUp || e.info.Slots != before.Slots { // it may have been started anew
			e.disp.Renew(e.info.Slots)
		}
		e.disp.Resume()
		e.readGauges(c)
		e.known = true
	case wasUp || !e.known:
		e.log.Warn("engine is down", "engine", e.server.Name(), "err", m.err)
		e.takeDown()
	}
	e.announce(c, m.err)
}

func (e *engineActor) takeDown() {
	e.metrics.up.Set(0)
	e.disp.Pause()
}

func (e *engineActor) announce(c actor.Context, err error) {
	c.Send(e.node, engineChanged{engineView{name: e.server.Name(), local: e.server.Name(), pid: c.Self(), up: e.up, info: e.info, err: err}})
}

func (e *engineActor) onGaugesDue(c actor.Context) {
	limit, _, _ := e.disp.Load()
	e.metrics.window.Set(float64(limit))
	if e.up {
		e.readGauges(c)
		return
	}
	e.timers.after(c, e.cfg.GaugeInterval, gaugesDue{})
}

func (e *engineActor) readGauges(c actor.Context) {
	if e.reading {
		return
	}
	e.reading, e.read = true, time.Now()
	e.work.run(c, func(ctx context.Context) any {
		ctx, cancel := context.WithTimeout(ctx, e.cfg.GaugeInterval)
		defer cancel()
		g, err := e.server.Gauges(ctx)
		return gaugesRead{g, err}
	})
}

func (e *engineActor) onGaugesRead(c actor.Context, m gaugesRead) {
	e.reading = false
	switch {
	case m.err == nil:
		e.disp.Observe(m.gauges, time.Now())
		e.metrics.waiting.Set(float64(m.gauges.Waiting))
	case !errors.Is(m.err, engine.ErrNoGauges):
		e.log.Debug("read gauges", "engine", e.server.Name(), "err", m.err)
	}
	e.timers.after(c, min(e.cfg.GaugeInterval, e.disp.NextReading()), gaugesDue{})
}

// onBreakerOpened lets a server rest that fails row after row, although it
// answers probes. Its rows go elsewhere meanwhile.
func (e *engineActor) onBreakerOpened(c actor.Context, m breakerOpened) {
	if !e.up || e.resting {
		return
	}
	e.up, e.resting = false, true
	e.log.Warn("engine rests", "engine", e.server.Name(), "err", m.err)
	e.takeDown()
	e.announce(c, m.err)
	e.timers.after(c, m.pause, restOver{})
}

func (e *engineActor) onRestOver(c actor.Context) {
	e.resting = false
	e.onProbeDue(c)
}

// onServerSuspect looks at once whether the server still answers.
func (e *engineActor) onServerSuspect(c actor.Context, m serverSuspect) {
	if e.up && !e.probing {
		e.log.Debug("connection to engine broke", "engine", e.server.Name(), "err", m.err)
	}
	e.onProbeDue(c)
}

func (e *engineActor) onOpenQueue(c actor.Context, m openQueue) {
	refuse := func(err error) {
		c.Respond(queueRefused{engine: e.server.Name(), err: err})
	}
	if _, ok := e.info.Find(m.job.spec.Model); !e.up || !ok {
		refuse(&engine.Error{Class: engine.ServerFault, Message: "the engine does not serve the model now"})
		return
	}
	queue, err := e.disp.Open(m.job.dispatched(e.cfg), e.server, m.out)
	if err != nil {
		refuse(fmt.Errorf("prepare for %s: %w", e.server.Name(), err))
		return
	}
	c.Respond(queueOpened{engine: e.server.Name(), queue: queue})
}

// onLeaveNode goes down by itself, so that no queue it has opened is unknown to
// the jobs that are told; the node then stops it.
func (e *engineActor) onLeaveNode(c actor.Context) {
	e.left, e.up = true, false
	e.takeDown()
	c.Send(e.node, engineLeft{name: e.server.Name()})
}

// onStopping gives back what still waits. What comes even later stays in its
// queue until the job lets go of it.
func (e *engineActor) onStopping() {
	e.timers.stop()
	e.work.cancel()
	e.takeDown()
	e.work.all.Add(1)
	go func() {
		defer e.work.all.Done()
		e.disp.Close()
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
