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

// Messages a server receives.
type (
	probeDue struct{ why error } // itself: look at the server again; its dispatcher: a connection broke
	probed   struct {            // its errand: what the server said
		info engine.Info
		err  error
	}
	gaugesDue    struct{} // itself: read the server's load
	windowFilled struct{} // its dispatcher: it could grow, if the gauges say so
	gaugesRead   struct { // its errand
		gauges engine.Gauges
		err    error
	}
	breakerOpened struct { // its dispatcher: too many failures in a row
		pause time.Duration
		err   error
	}
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

// A server stands for one inference server: it asks what it serves and how busy
// it is, tells the node when that changes, and opens queues to it. Its
// dispatcher shares it among the jobs; health decides whether it is in use.
type server struct {
	cfg     Config
	engine  engine.Engine
	node    *actor.PID
	disp    *dispatch.Dispatcher
	health  dispatch.Health
	metrics *engineMetrics
	work    errand
	log     *slog.Logger
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

func (s *server) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		s.onStarted(c)
	case probeDue:
		s.onProbeDue(c, m)
	case probed:
		s.onProbed(c, m)
	case gaugesDue:
		s.onGaugesDue(c)
	case windowFilled:
		s.onWindowFilled(c)
	case gaugesRead:
		s.onGaugesRead(c, m)
	case breakerOpened:
		s.onBreakerOpened(c, m)
	case openQueue:
		s.onOpenQueue(c, m)
	case leaveNode:
		s.onLeaveNode(c)
	case *actor.Stopping:
		s.onStopping()
	default:
		unhandled(c, s.log)
	}
}

func (s *server) onStarted(c actor.Context) {
	root, self := c.ActorSystem().Root, c.Self()
	s.disp.Watch(dispatch.Hooks{
		Opened:  func(pause time.Duration, err error) { root.Send(self, breakerOpened{pause, err}) },
		Filled:  func() { root.Send(self, windowFilled{}) },
		Suspect: func(err error) { root.Send(self, probeDue{err}) },
	})
	s.onProbeDue(c, probeDue{})
}

func (s *server) onProbeDue(c actor.Context, m probeDue) {
	if !s.health.Probe() {
		return
	}
	if m.why != nil && s.health.Up() {
		s.log.Debug("a connection broke", "err", m.why)
	}
	s.work.run(c, func(ctx context.Context) any {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.ProbeInterval)
		defer cancel()
		info, err := s.engine.Probe(ctx)
		return probed{info, err}
	})
}

func (s *server) onProbed(c actor.Context, m probed) {
	now := time.Now()
	answers := s.disp.Alive(now.Add(-s.cfg.ProbeInterval))
	change := s.health.Probed(m.info, m.err, answers, now)
	s.timers.after(c, s.health.NextProbe(s.cfg.ProbeInterval, now), probeDue{})
	switch change {
	case dispatch.Same:
		if m.err != nil && s.health.Up() {
			s.log.Debug("a probe failed, but rows are answered", "err", m.err)
		}
		return
	case dispatch.Fell:
		s.log.Warn("engine is down", "err", m.err)
		s.takeDown()
	case dispatch.Renewed:
		s.disp.Renew(m.info.Slots)
		s.bringUp(c)
	case dispatch.Altered:
		s.bringUp(c)
	}
	s.announce(c, m.err)
}

func (s *server) bringUp(c actor.Context) {
	info := s.health.Info()
	s.log.Info("engine is up", "kind", info.Kind, "models", len(info.Models), "slots", info.Slots, "simulated", info.Simulated)
	s.metrics.up.Set(1)
	s.disp.Resume()
	if s.health.Read(time.Now()) {
		s.readGauges(c)
	}
}

func (s *server) takeDown() {
	s.metrics.up.Set(0)
	s.disp.Pause()
}

func (s *server) announce(c actor.Context, err error) {
	name := s.engine.Name()
	c.Send(s.node, engineChanged{engineView{name: name, local: name, pid: c.Self(), up: s.health.Up(), info: s.health.Info(), err: err}})
}

func (s *server) onGaugesDue(c actor.Context) {
	limit, _, _ := s.disp.Load()
	s.metrics.window.Set(float64(limit))
	switch {
	case s.health.Read(time.Now()):
		s.readGauges(c)
	case !s.health.Up():
		s.timers.after(c, s.cfg.GaugeInterval, gaugesDue{})
	}
}

func (s *server) onWindowFilled(c actor.Context) {
	if s.health.ReadEarly(s.disp.NextReading(), time.Now()) {
		s.readGauges(c)
	}
}

func (s *server) readGauges(c actor.Context) {
	s.work.run(c, func(ctx context.Context) any {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.GaugeInterval)
		defer cancel()
		g, err := s.engine.Gauges(ctx)
		return gaugesRead{g, err}
	})
}

func (s *server) onGaugesRead(c actor.Context, m gaugesRead) {
	s.health.HasRead()
	switch {
	case m.err == nil:
		s.disp.Observe(m.gauges, time.Now())
		s.metrics.waiting.Set(float64(m.gauges.Waiting))
	case !errors.Is(m.err, engine.ErrNoGauges):
		s.log.Debug("reading the gauges failed", "err", m.err)
	}
	s.timers.after(c, min(s.cfg.GaugeInterval, s.disp.NextReading()), gaugesDue{})
}

// onBreakerOpened takes a server out of use that fails row after row, although
// it answers probes. Its rows go elsewhere meanwhile.
func (s *server) onBreakerOpened(c actor.Context, m breakerOpened) {
	if !s.health.Opened(m.pause, time.Now()) {
		return
	}
	s.log.Warn("the breaker of the engine opened", "err", m.err)
	s.takeDown()
	s.announce(c, m.err)
	s.timers.after(c, m.pause, probeDue{})
}

func (s *server) onOpenQueue(c actor.Context, m openQueue) {
	refuse := func(err error) { c.Respond(queueRefused{engine: s.engine.Name(), err: err}) }
	if _, ok := s.health.Info().Find(m.job.spec.Model); !s.health.Up() || !ok {
		refuse(&engine.Error{Class: engine.ServerFault, Message: "the engine does not serve the model now"})
		return
	}
	queue, err := s.disp.Open(m.job.dispatched(s.cfg), s.engine, m.out)
	if err != nil {
		refuse(fmt.Errorf("prepare for %s: %w", s.engine.Name(), err))
		return
	}
	c.Respond(queueOpened{engine: s.engine.Name(), queue: queue})
}

// onLeaveNode goes down by itself, so that no queue it has opened is unknown to
// the jobs that are told; the node then stops it.
func (s *server) onLeaveNode(c actor.Context) {
	s.health.Leave()
	s.takeDown()
	c.Send(s.node, engineLeft{name: s.engine.Name()})
}

// onStopping gives back what still waits. What comes even later stays in its
// queue until the job lets go of it.
func (s *server) onStopping() {
	s.timers.stop()
	s.work.cancel()
	s.takeDown()
	s.work.all.Add(1)
	go func() {
		defer s.work.all.Done()
		s.disp.Close()
		s.engine.Close()
	}()
}
