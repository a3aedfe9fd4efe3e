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

// Messages that a server receives, in addition to steps.
type (
	leaveNode struct{} // from the node: give back waiting rows, then send engineLeft
	openQueue struct { // from a worker, which has rows of this job for the server
		job *jobContext
		out *dispatch.Completions
	}
)

// Messages that a server sends to its node.
type (
	engineChanged struct{ view engineView } // the state of the engine has changed
	engineLeft    struct{ name string }     // the engine takes no more rows, so the node can stop this actor
)

// Answers to openQueue: the worker may send rows to queue, or the engine refuses the
// job.
type (
	queueOpened struct {
		engine string
		server string // see engine.ServerInfo.Describe
		queue  *dispatch.Queue
	}
	queueRefused struct {
		engine string
		err    error
	}
)

// An engineActor is the actor for one inference server. It probes the models and the load of
// the inference server, tells the node about changes, and opens queues for workers. The
// dispatcher shares the inference server among the jobs; health decides whether the
// inference server is in use.
type engineActor struct {
	cfg            Config
	engine         engine.Engine
	name           string
	node           *actor.PID
	disp           *dispatch.Dispatcher
	health         dispatch.ServerHealth
	capabilities   dispatch.Capabilities
	metrics        *engineMetrics
	tasks          taskGroup
	log            *slog.Logger
	timers         timers
	resting        map[engine.Route]string // by route that gets no rows for a while: the reason; other actors share the map, so each change makes a new map
	nextProbePause time.Duration           // pause before the next probe after a crash of the inference server; 0: the usual pause
	loggedReason   string                  // last logged reason why the inference server is down
	restLog        loglimit.Limit          // limits the log lines about rests, by route

	entry     *registry.ActorEntry
	restarts  prometheus.Counter
	isLeaving bool      // the engine was taken out of use, so the node will stop this actor
	faults    int       // panics of this actor in short succession
	lastPanic time.Time // time of this actor's last panic
}

// restLogEvery is the shortest time between two log lines about rests of one route. A
// server that limits its requests asks for a pause every few seconds, for as long as a
// job runs.
const restLogEvery = time.Minute

// Receive handles a message and restarts the actor after a panic. A restart is safe,
// because the actor gets its state again from the inference server. Without a restart
// the node would lose the engine.
func (s *engineActor) Receive(c actor.Context) {
	err := panics.Catch(func() error {
		s.receive(c)
		return nil
	})
	if err != nil {
		s.onPanicked(c, err)
	}
}

func (s *engineActor) receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		s.onStarted(c)
	case mailboxStep:
		m(c)
	case openQueue:
		s.onOpenQueue(c, m)
	case leaveNode:
		s.onLeaveNode(c)
	case *actor.Stopping:
		s.onStopping()
	default:
		logUnhandled(c, s.log)
	}
}

func (s *engineActor) onStarted(c actor.Context) {
	root, self := c.ActorSystem().Root, c.Self()
	take := func(next mailboxStep) { root.Send(self, next) }
	s.disp.SetHooks(dispatch.Hooks{
		Opened: func(r engine.Route, pause time.Duration, err error) {
			take(func(c actor.Context) { s.onBreakerOpened(c, r, pause, err) })
		},
		Filled:   func() { take(s.onWindowFilled) },
		Suspect:  func(err error) { take(func(c actor.Context) { s.onServerSuspected(c, err) }) },
		Panicked: s.logPanic,
	})
	s.probe(c)
}

// logPanic logs a panic in this program that a row or an answer has caused.
func (s *engineActor) logPanic(err error) {
	s.log.Error("a row failed because this program panicked", "err", err, "stack", stackOf(err))
}

// onPanicked restarts the actor, with a longer pause each time. Meanwhile the engine
// counts as down; later the workers open their queues again.
func (s *engineActor) onPanicked(c actor.Context, err error) {
	s.log.Error("the actor of an engine panicked and restarts", "err", err, "stack", stackOf(err))
	s.entry.MarkRestarted(err.Error())
	s.restarts.Inc()
	if _, stops := c.Message().(*actor.Stopping); stops || s.isLeaving {
		return
	}
	now := time.Now()
	if now.Sub(s.lastPanic) > 10*mostPause {
		s.faults = 0
	}
	pause := min(time.Second<<min(s.faults, 10), mostPause)
	s.lastPanic = now
	s.faults++
	s.timers.stop()
	s.tasks.cancel()
	s.tasks = newTaskGroup(context.Background(), s.tasks.all, s.entry)
	s.health = dispatch.ServerHealth{}
	s.capabilities.MarkTestLost()
	s.resting = nil
	s.markDown()
	s.announceState(c, err)
	s.timers.runAfter(c, pause, "probe", s.probe)
}

// mostPause is the longest pause after a panic of a server actor. Even if the panics go
// on, other engines work.
const mostPause = time.Minute

// onServerSuspected probes the server at once after a connection to it broke.
func (s *engineActor) onServerSuspected(c actor.Context, err error) {
	if s.health.Up() {
		s.log.Debug("a connection to an inference server broke", "err", err)
	}
	s.probe(c)
}

// probe probes the server, unless a probe is in progress.
func (s *engineActor) probe(c actor.Context) {
	if !s.health.StartProbe() {
		return
	}
	began := time.Now()
	s.tasks.run(c, "probe the server", func(ctx context.Context) mailboxStep {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.Servers.ProbeInterval)
		defer cancel()
		info, err := runWithResult(panics.Catch, func() (engine.ServerInfo, error) { return s.engine.Probe(ctx) })
		return func(c actor.Context) { s.onProbed(c, began, info, err) }
	})
}

func (s *engineActor) onProbed(c actor.Context, began time.Time, info engine.ServerInfo, err error) {
	crashed, again := s.disp.ResolveCrash(began, dispatch.IsServerGone(err))
	if crashed {
		s.log.Warn("the server crashed while it ran rows; the rows in flight run again, separate from other rows", "err", err)
	}
	answers := !crashed && s.disp.HasAnsweredSince(time.Now().Add(-s.cfg.Servers.ProbeInterval))
	change := s.health.RecordProbe(info, err, answers)
	pause := s.cfg.Servers.ProbeInterval
	switch {
	case crashed:
		s.nextProbePause = soonAgain
	case err == nil:
		s.nextProbePause = 0
	}
	if s.nextProbePause > 0 {
		pause = min(pause, s.nextProbePause)
		s.nextProbePause *= 2
	}
	s.timers.runAfter(c, pause, "probe", s.probe)
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
		if said := err.Error(); said != s.loggedReason { // log the same reason only once: a server that was never up fails each probe
			s.loggedReason = said
			s.log.Warn("engine is down", "err", err)
		}
		s.markDown()
	case dispatch.Renewed:
		s.loggedReason = ""
		s.resumeRoutes()
		s.disp.ResetWindow(info.Slots)
		s.capabilities.RetestAll()
		s.markUp(c)
	case dispatch.Altered:
		s.markUp(c)
	}
	s.announceState(c, err)
	s.sendTrial(c)
}

// soonAgain is the pause before the next probe of an inference server that has just
// crashed. The pause doubles with each probe, up to the usual pause.
const soonAgain = 500 * time.Millisecond

func (s *engineActor) markUp(c actor.Context) {
	info := s.health.Info()
	s.log.Info("engine is up", "kind", info.Kind, "models", len(info.Models), "slots", info.Slots, "simulated", info.Simulated)
	s.metrics.up.Set(1)
	s.disp.Resume()
	if warm := s.cfg.Servers.Warm; warm != nil {
		s.tasks.run(c, "warm up", func(context.Context) mailboxStep { warm(info.Models); return nil })
	}
	if s.health.StartReading(time.Now()) {
		s.readGauges(c)
	}
}

func (s *engineActor) markDown() {
	s.metrics.up.Set(0)
	s.disp.Pause()
}

// announceState sends the state of the engine to the node. err is the reason why the engine
// is down; nil if it is up.
func (s *engineActor) announceState(c actor.Context, err error) {
	c.Send(s.node, engineChanged{engineView{name: s.name, localName: s.name, pid: c.Self(), up: s.health.Up(), info: s.capabilities.WithResults(s.health.Info()), resting: s.resting, err: err}})
}

// gaugeInterval is the time between readings of the server's load while the server is up.
const gaugeInterval = time.Second

// onGaugesDue updates the metric of the window, and reads the gauges of the inference
// server if it is up.
func (s *engineActor) onGaugesDue(c actor.Context) {
	limit, _, _ := s.disp.Load()
	s.metrics.window.Set(float64(limit))
	switch {
	case s.health.StartReading(time.Now()):
		s.readGauges(c)
	case !s.health.Up():
		s.timers.runAfter(c, gaugeInterval, "gauges", s.onGaugesDue)
	}
}

// onWindowFilled reads the gauges early, because the window may be able to grow.
func (s *engineActor) onWindowFilled(c actor.Context) {
	if s.health.StartEarlyReading(s.disp.NextReading(), time.Now()) {
		s.readGauges(c)
	}
}

func (s *engineActor) readGauges(c actor.Context) {
	s.tasks.run(c, "read its gauges", func(ctx context.Context) mailboxStep {
		ctx, cancel := context.WithTimeout(ctx, gaugeInterval)
		defer cancel()
		g, err := runWithResult(panics.Catch, func() (engine.Gauges, error) { return s.engine.Gauges(ctx) })
		return func(c actor.Context) {
			s.health.EndReading()
			switch {
			case err == nil:
				s.disp.Observe(g, time.Now())
				s.metrics.waiting.Set(float64(g.Waiting))
			case !errors.Is(err, engine.ErrNoGauges):
				s.log.Debug("reading the gauges failed", "err", err)
			}
			s.timers.runAfter(c, min(gaugeInterval, s.disp.NextReading()), "gauges", s.onGaugesDue)
		}
	})
}

// onBreakerOpened sends no rows to a route for a while, because the route's rows failed
// one after the other, or the server asked for a pause. The server may still answer
// probes and rows of other models. Meanwhile the rows go to other engines.
func (s *engineActor) onBreakerOpened(c actor.Context, r engine.Route, pause time.Duration, err error) {
	if !s.health.Up() {
		return
	}
	if leftOut, due := s.restLog.ShouldLog(string(r), time.Now()); due {
		s.log.Warn("the engine gets no rows for a while", "route", string(r), "pause", pause, "err", err, "left_out", leftOut)
	}
	next := map[engine.Route]string{r: fmt.Sprintf("%s; next try at %s", briefFault(err), time.Now().Add(pause).UTC().Format("15:04:05 UTC"))}
	for other, why := range s.resting {
		if other != r {
			next[other] = why
		}
	}
	s.resting = next
	s.metrics.opened.Inc()
	s.disp.ReturnRestingRows(r)
	s.announceState(c, nil)
	s.timers.runAfter(c, pause, "try "+string(r), func(c actor.Context) {
		if !s.health.Up() { // the route is tried when the server comes up again
			return
		}
		s.log.Debug("the engine is tried again with one row", "route", string(r))
		s.resumeRoutes(r)
		s.disp.Try(r)
		s.announceState(c, nil)
	})
}

// resumeRoutes ends the pause of the given routes, or of all paused routes if none is given.
func (s *engineActor) resumeRoutes(routes ...engine.Route) {
	if len(routes) == 0 {
		routes = slices.Collect(maps.Keys(s.resting))
	}
	next := maps.Clone(s.resting)
	for _, r := range routes {
		s.timers.cancel(timerName("try " + string(r)))
		delete(next, r)
	}
	s.resting = next
}

func (s *engineActor) onOpenQueue(c actor.Context, m openQueue) {
	refuse := func(err error) { c.Respond(queueRefused{engine: s.engine.Name(), err: err}) }
	info := s.health.Info()
	served, ok := info.FindModel(m.job.spec.Model)
	if !s.health.Up() || !ok || s.resting[engine.RouteOf(m.job.spec)] != "" {
		refuse(&engine.Error{Class: engine.ServerFault, Message: "the engine does not serve the model now"})
		return
	}
	queue, err := s.disp.Open(m.job.toDispatchJob(s.cfg), s.engine, m.out)
	if err != nil {
		refuse(fmt.Errorf("prepare for %s: %w", s.engine.Name(), err))
		return
	}
	c.Respond(queueOpened{engine: s.engine.Name(), server: info.Describe(served), queue: queue})
}

// onLeaveNode takes the engine out of use for good: it opens no more queues and sends
// engineLeft. The node then tells the workers that the engine is down, and stops this
// actor.
func (s *engineActor) onLeaveNode(c actor.Context) {
	s.isLeaving = true
	s.health.Leave()
	s.markDown()
	c.Send(s.node, engineLeft{name: s.engine.Name()})
}

// onStopping gives waiting rows back to their workers. Rows that workers send later
// stay in the queue until the worker closes the queue.
func (s *engineActor) onStopping() {
	s.timers.stop()
	s.tasks.cancel()
	s.markDown()
	s.tasks.all.Go(func() {
		s.disp.Close()
		s.engine.Close()
	})
}
