package actors

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/engine"
)

// EngineStatus is what a node knows of one of its inference servers.
type EngineStatus struct {
	Name  string
	Up    bool
	Since time.Time   // when it came up, or went down
	Info  engine.Info // of the last probe that succeeded
	Err   error       // why it is not up

	// Load reads how many rows the engine may have in flight, has in flight,
	// and how many wait for it on this node.
	Load func() (limit, inFlight, queued int)
}

var (
	errNotProbed = errors.New("not probed yet")
	errDetached  = errors.New("the engine was taken out of use")
)

// A berth is an engine's place at its node, beside what jobs need to know.
type berth struct {
	since   time.Time // when its engine came up, or went down
	load    func() (limit, inFlight, queued int)
	leaving bool
	next    engine.Engine // attached under the name of one that is leaving
}

// attach spawns the actor of an engine, unless its name is in use.
func (n *node) attach(c actor.Context, server engine.Engine) {
	name := server.Name()
	if b := n.berths[name]; b != nil {
		if b.leaving && b.next == nil {
			b.next = server
		} else {
			n.log.Warn("engine of that name is in use already, the second is ignored", "engine", name)
		}
		return
	}
	m := n.metrics.engine(name)
	disp := dispatch.New(dispatch.Config{Engine: name, RowTimeout: n.cfg.RowPatience, Metrics: m.Metrics})
	props := n.metrics.props("engine", func() actor.Actor {
		return &engineActor{
			cfg: n.cfg, server: server, node: c.Self(), metrics: m, log: n.log,
			disp: disp, work: newErrand(context.Background(), n.all),
		}
	})
	pid := c.SpawnPrefix(props, "engine-"+pathSafe(name))
	c.Watch(pid)
	n.berths[name] = &berth{since: time.Now(), load: disp.Load}
	n.engines = append(slices.Clone(n.engines), engineView{name: name, local: name, pid: pid, err: errNotProbed})
}

func (n *node) onAttachEngine(c actor.Context, m attachEngine) {
	n.attach(c, m.server)
	n.publish()
}

func (n *node) onDetachEngine(c actor.Context, m detachEngine) {
	b := n.berths[m.name]
	if b == nil || b.leaving {
		return
	}
	b.leaving = true
	c.Send(n.view(m.name).pid, leaveNode{})
}

func (n *node) onEngineChanged(c actor.Context, m engineChanged) {
	old := n.view(m.view.name)
	if old == nil || !old.pid.Equal(m.view.pid) {
		return // of an engine that has left
	}
	if old.up != m.view.up {
		n.berths[m.view.name].since = time.Now()
	}
	n.tell(c, m.view)
	n.publish()
}

// onEngineLeft stops an engine whose jobs hear first that it is down: they
// then hold no queue of it.
func (n *node) onEngineLeft(c actor.Context, m engineLeft) {
	left, next := *n.view(m.name), n.berths[m.name].next
	left.up, left.err = false, errDetached
	n.tell(c, left)
	n.engines = slices.DeleteFunc(slices.Clone(n.engines), func(v engineView) bool { return v.name == m.name })
	delete(n.berths, m.name)
	c.Stop(left.pid)
	for _, gauge := range []interface{ DeleteLabelValues(...string) bool }{n.metrics.up, n.metrics.window, n.metrics.inFlight, n.metrics.waiting} {
		gauge.DeleteLabelValues(m.name)
	}
	n.log.Info("engine detached", "engine", m.name)
	if next != nil {
		n.attach(c, next)
	}
	n.publish()
}

// view returns what is known of an engine, nil where there is none of the name.
func (n *node) view(name string) *engineView {
	for i := range n.engines {
		if n.engines[i].name == name {
			return &n.engines[i]
		}
	}
	return nil
}

// tell replaces a view and passes all of them to the jobs.
func (n *node) tell(c actor.Context, changed engineView) {
	n.engines = slices.Clone(n.engines) // jobs hold the old slice
	*n.view(changed.name) = changed
	for _, w := range n.workers {
		c.Send(w.pid, enginesChanged{n.engines})
	}
	n.tellJobs(c)
}

// tellJobs passes all views to the jobs.
func (n *node) tellJobs(c actor.Context) {
	all := n.everyEngine()
	for _, pid := range n.jobs {
		c.Send(pid, enginesChanged{all})
	}
}

// everyEngine are the engines of this node and of all others.
func (n *node) everyEngine() []engineView {
	if n.draining {
		return slices.Clone(n.remote)
	}
	return slices.Concat(n.engines, n.remote)
}

// publish lets the world outside see the engines.
func (n *node) publish() {
	status := make([]EngineStatus, len(n.engines))
	for i, v := range n.engines {
		b := n.berths[v.name]
		status[i] = EngineStatus{Name: v.name, Up: v.up, Since: b.since, Info: v.info, Err: v.err, Load: b.load}
	}
	n.system.engines.Store(&status)
	n.publishState()
}

// pathSafe makes a name usable in an actor's id.
func pathSafe(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r == '$' {
			return '-'
		}
		return r
	}, name)
}
