package actors

import (
	"context"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/loglimit"
)

// Messages that the node actor receives about its engines.
type (
	attachEngine   struct{ server engine.Engine } // from the System: take this engine into use
	detachEngine   struct{ name string }          // from the System: take this engine out of use
	stoppedServers struct{ list []nodes.Engine }  // from the System: the servers that this node can start, and that do not run
)

func (n *node) onEngine(c actor.Context, message any) {
	switch m := message.(type) {
	case attachEngine:
		n.attach(c, m.server)
	case detachEngine:
		if v, ok := n.engines.detach(m.name); ok {
			c.Send(v.pid, leaveNode{})
		}
		return
	case engineChanged:
		if !n.engines.replace(m.view, time.Now()) {
			return // the message comes from an engine that was removed
		}
		n.announceEngines(c)
	case engineLeft:
		n.onEngineLeft(c, m)
	case stoppedServers:
		n.engines.stopped = m.list
		n.jobs.announceEngines(c)
	}
	n.publish()
}

// attach spawns the actor of an engine, unless its name is in use.
func (n *node) attach(c actor.Context, e engine.Engine) {
	name := e.Name()
	switch free, taken := n.engines.claimName(e); {
	case taken:
		n.log.Warn("the name of the engine is in use; the second engine is ignored", "engine", name)
		return
	case !free:
		return
	}
	m := n.metrics.engine(name)
	disp := dispatch.New(dispatch.Config{Engine: name, Node: n.cfg.Node, RowTimeout: n.cfg.Rows.Patience, Wait: n.cfg.Servers.Wait, Pace: n.cfg.Servers.Pace(name), Weights: n.cfg.Ownership.Weights, Metrics: m.Metrics})
	pid := c.SpawnPrefix(n.metrics.props(registry.ActorIdentity{Kind: "engine", Engine: name}, func(entry *registry.ActorEntry) actor.Actor {
		return &engineActor{
			cfg: n.cfg, engine: e, name: name, node: c.Self(), entry: entry, restarts: n.metrics.restarted.WithLabelValues("engine"), metrics: m, log: entry.Log(n.deps.log.With("engine", name)),
			disp: disp, capabilities: dispatch.NewCapabilities(n.cfg.Servers.MaxTrialModels, n.cfg.Servers.Known), tasks: newTaskGroup(context.Background(), n.all, entry),
			restLog: loglimit.Limit{Every: restLogEvery},
		}
	}), "engine-"+pathSafe(name))
	c.Watch(pid)
	n.engines.add(engineView{name: name, localName: name, pid: pid}, disp, time.Now())
}

// onEngineLeft stops the actor of an engine. Before that, it tells jobs and workers
// that the engine is down, so that they stop using the engine's queues.
func (n *node) onEngineLeft(c actor.Context, m engineLeft) {
	v := n.engines.markDown(m.name, time.Now())
	n.announceEngines(c)
	next := n.engines.remove(m.name)
	c.Stop(v.pid)
	all := n.metrics.engines
	for _, gauge := range []*prometheus.GaugeVec{all.up, all.window, all.inFlight, all.waiting} {
		gauge.DeleteLabelValues(m.name)
	}
	n.log.Info("engine detached", "engine", m.name)
	if next != nil {
		n.attach(c, next)
	}
}

// announceEngines sends the present engines to the workers and jobs of this node.
func (n *node) announceEngines(c actor.Context) {
	n.work.tellAll(c, enginesChanged{n.engines.own})
	n.jobs.announceEngines(c)
}

// pathSafe replaces the characters of a name that an actor's id must not contain.
func pathSafe(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r == '$' {
			return '-'
		}
		return r
	}, name)
}
