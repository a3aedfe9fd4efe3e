package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/loglimit"
	"github.com/rowmill/rowmill/internal/panics"
)

// Messages a server receives, beside steps.
type (
	leaveNode struct{} // node: give back waiting rows, then send engineLeft
	openQueue struct { // worker: I have rows of this job for you
		job *jobContext
		out *dispatch.Completions
	}
)

// Messages a server sends to its node.
type (
	engineChanged struct{ view engineView }
	engineLeft    struct{ name string } // the engine takes no more rows; the node can stop this actor
)

// Answers to openQueue.
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

// A server is the actor of an inference server. It probes the server's models and
// load, tells the node when they change, and opens queues. Its dispatcher shares
// the server among the jobs; health decides whether the server is in use.
type server struct {
	cfg          Config
	engine       engine.Engine
	name         string
	node         *actor.PID
	disp         *dispatch.Dispatcher
	health       dispatch.Health
	capabilities dispatch.Capabilities
	metrics      *engineMetrics
	tasks        taskGroup
	log          *slog.Logger
	timers       timers
	resting      map[engine.Route]string // routes that get no rows for a while, and why; other actors share the map: a change makes a new map
	soon         time.Duration           // time until the next probe after a crash; 0 for the usual time
	loggedReason string                  // the last logged reason why the server is not in use
	restLog      loglimit.Limit          // by route

	entry    *registry.Entry
	restarts prometheus.Counter
	left     bool      // the node is about to stop this actor
	faults   int       // panics, one soon after the other
	fault    time.Time // time of the last panic
}

// restLogEvery is the shortest time between two log lines about rests of one route. A
// server that limits its requests asks for a pause every few seconds, for as long as a
// job runs.
const restLogEvery = time.Minute

// Receive restarts the actor after a panic. The actor can get its state again from
// the inference server, and without this actor the node would lose the engine.
func (s *server) Receive(c actor.Context) {
	err := panics.Catch(func() error {
		s.receive(c)
		return nil
	})
	if err != nil {
		s.onPanicked(c, err)
	}
}

func (s *server) receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		s.onStarted(c)
	case step:
		m(c)
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
	take := func(next step) { root.Send(self, next) }
	s.disp.Watch(dispatch.Hooks{
		Opened: func(r engine.Route, pause time.Duration, err error) {
			take(func(c actor.Context) { s.onBreakerOpened(c, r, pause, err) })
		},
		Filled:   func() { take(s.onWindowFilled) },
		Suspect:  func(err error) { take(func(c actor.Context) { s.onSuspect(c, err) }) },
		Panicked: s.logPanic,
	})
	s.probe(c)
}

// logPanic logs a panic of this program that a row or its answer has caused.
func (s *server) logPanic(err error) {
	s.log.Error("a row failed because this program panicked", "err", err, "stack", stackOf(err))
}

// onPanicked restarts the actor, with a longer pause each time. Jobs learn that the
// server is down, and later open their queues again.
func (s *server) onPanicked(c actor.Context, err error) {
	s.log.Error("the actor of an engine panicked and restarts", "err", err, "stack", stackOf(err))
	s.entry.Restarted(err.Error())
	s.restarts.Inc()
	if _, stops := c.Message().(*actor.Stopping); stops || s.left {
		return
	}
	now := time.Now()
	if now.Sub(s.fault) > 10*mostPause {
		s.faults = 0
	}
	pause := min(time.Second<<min(s.faults, 10), mostPause)
	s.fault = now
	s.faults++
	s.timers.stop()
	s.tasks.cancel()
	s.tasks = newTaskGroup(context.Background(), s.tasks.all, s.entry)
	s.health = dispatch.Health{}
	s.capabilities.Interrupted()
	s.resting = nil
	s.takeDown()
	s.announce(c, err)
	s.timers.after(c, pause, "probe", s.probe)
}

// mostPause is the longest pause after a panic of the actor. The panics may go on, but
// they block no work of other engines.
const mostPause = time.Minute

// onSuspect probes the server at once after a connection to it broke.
func (s *server) onSuspect(c actor.Context, err error) {
	if s.health.Up() {
		s.log.Debug("a connection to an inference server broke", "err", err)
	}
	s.probe(c)
}

// probe probes the server, unless a probe is in progress.
func (s *server) probe(c actor.Context) {
	if !s.health.StartProbe() {
		return
	}
	began := time.Now()
	s.tasks.run(c, "probe the server", func(ctx context.Context) step {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.Servers.ProbeInterval)
		defer cancel()
		info, err := result(panics.Catch, func() (engine.Info, error) { return s.engine.Probe(ctx) })
		return func(c actor.Context) { s.onProbed(c, began, info, err) }
	})
}

func (s *server) onProbed(c actor.Context, began time.Time, info engine.Info, err error) {
	crashed, again := s.disp.Judge(began, dispatch.Gone(err))
	if crashed {
		s.log.Warn("the server crashed while it ran rows; the rows in flight run again, separate from other rows", "err", err)
	}
	answers := !crashed && s.disp.Alive(time.Now().Add(-s.cfg.Servers.ProbeInterval))
	change := s.health.Probed(info, err, answers)
	pause := s.cfg.Servers.ProbeInterval
	switch {
	case crashed:
		s.soon = soonAgain
	case err == nil:
		s.soon = 0
	}
	if s.soon > 0 {
		pause = min(pause, s.soon)
		s.soon *= 2
	}
	s.timers.after(c, pause, "probe", s.probe)
	if again { // a connection broke after this probe began
		s.probe(c)
	}
	switch change {
	case dispatch.Same:
		if err != nil && s.health.Up() {
			s.log.Debug("a probe failed, but the server may only be busy", "err", err)
		}
		s.sendTrial(c)
		return
	case dispatch.Fell:
		if said := err.Error(); said != s.loggedReason { // a server that was never up fails each probe with the same error
			s.loggedReason = said
			s.log.Warn("engine is down", "err", err)
		}
		s.takeDown()
	case dispatch.Renewed:
		s.loggedReason = ""
		s.endRest()
		s.disp.Renew(info.Slots)
		s.capabilities.Renew()
		s.bringUp(c)
	case dispatch.Altered:
		s.bringUp(c)
	}
	s.announce(c, err)
	s.sendTrial(c)
}

// soonAgain is the time until the next probe of a server that has just crashed. The time
// doubles with each probe, up to the usual time.
const soonAgain = 500 * time.Millisecond

func (s *server) bringUp(c actor.Context) {
	info := s.health.Info()
	s.log.Info("engine is up", "kind", info.Kind, "models", len(info.Models), "slots", info.Slots, "simulated", info.Simulated)
	s.metrics.up.Set(1)
	s.disp.Resume()
	if warm := s.cfg.Servers.Warm; warm != nil {
		s.tasks.run(c, "warm up", func(context.Context) step { warm(info.Models); return nil })
	}
	if s.health.Read(time.Now()) {
		s.readGauges(c)
	}
}

func (s *server) takeDown() {
	s.metrics.up.Set(0)
	s.disp.Pause()
}

// announce sends the node the state of the engine. err is the reason why the engine is
// down, if it is down.
func (s *server) announce(c actor.Context, err error) {
	c.Send(s.node, engineChanged{engineView{name: s.name, local: s.name, pid: c.Self(), up: s.health.Up(), info: s.capabilities.Settle(s.health.Info()), resting: s.resting, err: err}})
}

// lookAtLoad reads the gauges of a server that is in use.
func (s *server) lookAtLoad(c actor.Context) {
	limit, _, _ := s.disp.Load()
	s.metrics.window.Set(float64(limit))
	switch {
	case s.health.Read(time.Now()):
		s.readGauges(c)
	case !s.health.Up():
		s.timers.after(c, s.cfg.Servers.GaugeInterval, "gauges", s.lookAtLoad)
	}
}

// onWindowFilled reads the gauges early, because the window may be able to grow.
func (s *server) onWindowFilled(c actor.Context) {
	if s.health.ReadEarly(s.disp.NextReading(), time.Now()) {
		s.readGauges(c)
	}
}

func (s *server) readGauges(c actor.Context) {
	s.tasks.run(c, "read its gauges", func(ctx context.Context) step {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.Servers.GaugeInterval)
		defer cancel()
		g, err := result(panics.Catch, func() (engine.Gauges, error) { return s.engine.Gauges(ctx) })
		return func(c actor.Context) {
			s.health.HasRead()
			switch {
			case err == nil:
				s.disp.Observe(g, time.Now())
				s.metrics.waiting.Set(float64(g.Waiting))
			case !errors.Is(err, engine.ErrNoGauges):
				s.log.Debug("reading the gauges failed", "err", err)
			}
			s.timers.after(c, min(s.cfg.Servers.GaugeInterval, s.disp.NextReading()), "gauges", s.lookAtLoad)
		}
	})
}

// onBreakerOpened sends no rows to a route for a while, because the route's rows failed
// one after the other, or the server asked for a pause. The server may still answer
// probes and rows of other models. Meanwhile the rows go to other engines.
func (s *server) onBreakerOpened(c actor.Context, r engine.Route, pause time.Duration, err error) {
	if !s.health.Up() {
		return
	}
	if leftOut, due := s.restLog.Due(string(r), time.Now()); due {
		s.log.Warn("the engine gets no rows for a while", "route", string(r), "pause", pause, "err", err, "left_out", leftOut)
	}
	next := map[engine.Route]string{r: fmt.Sprintf("%s; it is asked again at %s", briefFault(err), time.Now().Add(pause).UTC().Format("15:04:05 UTC"))}
	for other, why := range s.resting {
		if other != r {
			next[other] = why
		}
	}
	s.resting = next
	s.metrics.opened.Inc()
	s.disp.Rest(r)
	s.announce(c, nil)
	s.timers.after(c, pause, "try "+string(r), func(c actor.Context) {
		if !s.health.Up() { // it will be tried when the server is up again
			return
		}
		s.log.Debug("the engine is tried again with one row", "route", string(r))
		s.endRest(r)
		s.disp.Try(r)
		s.announce(c, nil)
	})
}

// endRest takes the given resting routes into use again; all of them if none is given.
func (s *server) endRest(routes ...engine.Route) {
	if len(routes) == 0 {
		routes = slices.Collect(maps.Keys(s.resting))
	}
	next := maps.Clone(s.resting)
	for _, r := range routes {
		s.timers.cancel(due("try " + string(r)))
		delete(next, r)
	}
	s.resting = next
}

func (s *server) onOpenQueue(c actor.Context, m openQueue) {
	refuse := func(err error) { c.Respond(queueRefused{engine: s.engine.Name(), err: err}) }
	if _, ok := s.health.Info().Find(m.job.spec.Model); !s.health.Up() || !ok || s.resting[engine.RouteOf(m.job.spec)] != "" {
		refuse(&engine.Error{Class: engine.ServerFault, Message: "the engine does not serve the model now"})
		return
	}
	queue, err := s.disp.Open(m.job.dispatchJob(s.cfg), s.engine, m.out)
	if err != nil {
		refuse(fmt.Errorf("prepare for %s: %w", s.engine.Name(), err))
		return
	}
	c.Respond(queueOpened{engine: s.engine.Name(), queue: queue})
}

// onLeaveNode takes the server out of use for good. It opens no more queues, so the
// workers know all its queues when the node tells them that the engine is down. The node
// then stops this actor.
func (s *server) onLeaveNode(c actor.Context) {
	s.left = true
	s.health.Leave()
	s.takeDown()
	c.Send(s.node, engineLeft{name: s.engine.Name()})
}

// onStopping gives waiting rows back to their workers. Rows that workers send
// later stay in their queue until the job closes the queue.
func (s *server) onStopping() {
	s.timers.stop()
	s.tasks.cancel()
	s.takeDown()
	s.tasks.all.Add(1)
	go func() {
		defer s.tasks.all.Done()
		s.disp.Close()
		s.engine.Close()
	}()
}
