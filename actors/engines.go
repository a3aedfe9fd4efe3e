package actors

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/engine"
)

// An engineView is the state of an engine of this node or another, for the actors of
// this node.
type engineView struct {
	name      string     // unique in the cluster
	localName string     // name of the engine on its own node
	address   string     // address of the engine's node; empty for this node
	pid       *actor.PID // actor of the engine; nil if the engine is on another node
	up        bool
	info      engine.ServerInfo
	resting   map[engine.Route]string // by route that gets no rows for a while: the reason
	err       error                   // why the engine is down; nil if it is up
	startable bool                    // the node starts the server when its turn on the GPUs comes; then up is false
	failure   string                  // why the last run of a startable server ended; empty after an answer
}

// servedModel reports whether the engine runs rows of a job now, and returns the model as
// the engine serves it.
func (v engineView) servedModel(spec *rowmill.Spec) (engine.ServedModel, bool) {
	if !v.up || v.resting[engine.RouteOf(spec)] != "" {
		return engine.ServedModel{}, false
	}
	return v.info.FindModel(spec.Model)
}

// unusableReason returns the reason why an engine that has the job's model does not run the
// job's rows now; empty if the engine runs them or does not have the model.
func (v engineView) unusableReason(spec *rowmill.Spec) string {
	_, has := v.info.FindModel(spec.Model)
	why := v.resting[engine.RouteOf(spec)]
	switch {
	case !has:
		return ""
	case v.startable && v.failure != "":
		return v.name + " cannot start" + briefEnd(v.failure) + "."
	case v.startable:
		return fmt.Sprintf("%s starts when its turn comes.", v.name)
	case v.up && why != "":
		return fmt.Sprintf("%s takes no rows now: %s.", v.name, why)
	case !v.up && v.err != nil:
		return fmt.Sprintf("%s does not answer its probes (%s).", v.name, briefFault(v.err))
	}
	return ""
}

// enginesChanged is the message to jobs and workers with the present engines.
type enginesChanged struct{ engines []engineView }

// EngineStatus is the state of an inference server, as its node sees it.
type EngineStatus struct {
	Name  string
	Up    bool
	Since time.Time         // when the server came up or went down
	Info  engine.ServerInfo // answer to the last successful probe
	Err   error             // why the server is down; nil if it is up

	// Resting gives, for each route that gets no rows now, the reason and until when.
	Resting map[engine.Route]string

	engineLoad
}

// engineLoad reports the load of one engine with rows of this node. A *dispatch.Dispatcher
// implements it.
type engineLoad interface {
	// Load returns how many rows may be in flight at the engine (limit), how many are
	// in flight, and how many wait for the engine on this node.
	Load() (limit, inFlight, queued int)
	// AnsweredTokens returns the number of tokens of all answered requests.
	AnsweredTokens() int64
	// RateLimitMessage names the limit per minute that rows wait for now, and until when they
	// wait; empty if they do not wait for a limit.
	RateLimitMessage() string
}

// Waits returns the reasons why rows wait for an engine that is up, and until when
// they wait; empty if no rows wait.
func (e EngineStatus) Waits() []string {
	all := DescribeResting(e.Resting)
	if paced := e.RateLimitMessage(); e.Up && paced != "" {
		all = append(all, "rows wait: "+paced)
	}
	return all
}

// DescribeResting returns one text for each route that gets no rows now, with the reason and
// the end of the pause.
func DescribeResting(routes map[engine.Route]string) (all []string) {
	for _, r := range slices.Sorted(maps.Keys(routes)) {
		all = append(all, fmt.Sprintf("%s gets no rows now: %s", r, routes[r]))
	}
	return all
}

var (
	errNotProbed = errors.New("not probed yet")
	errDetached  = errors.New("the engine was taken out of use")
)

// engines holds the inference servers that a node knows: its own servers, and the
// servers in the states of other nodes.
type engines struct {
	own        []engineView            // engines of this node; jobs share the slice, so each change makes a new slice
	remote     []engineView            // engines of other nodes
	lastStates map[string]peerState    // last state of each other node, by node ID
	entries    map[string]*engineEntry // data about the engines in own, by engine name
	stopped    []nodes.Engine          // servers that this node can start, and that do not run
}

// An engineEntry holds data of an engine of this node that only the node actor needs,
// in addition to the engineView.
type engineEntry struct {
	since     time.Time // when the engine came up or went down
	sending   engineLoad
	detaching bool
	next      engine.Engine // the server that gets this name after the present engine is detached; nil if none
}

func newEngines() engines { return engines{entries: make(map[string]*engineEntry)} }

// claimName reports whether a new server can use its name at once (free). If an engine
// with this name is detaching, claimName keeps the server until remove returns it. If an
// engine with this name stays in use, or another server is kept, taken is true.
func (e *engines) claimName(server engine.Engine) (free, taken bool) {
	entry := e.entries[server.Name()]
	switch {
	case entry == nil:
		return true, false
	case entry.detaching && entry.next == nil:
		entry.next = server
		return false, false
	}
	return false, true
}

// add adds an engine of this node, which counts as down until its first probe.
func (e *engines) add(v engineView, s engineLoad, now time.Time) {
	v.err = errNotProbed
	e.entries[v.name] = &engineEntry{since: now, sending: s}
	e.own = append(slices.Clone(e.own), v)
}

// replace replaces the view of an engine; it returns false if the engine was removed.
func (e *engines) replace(v engineView, now time.Time) bool {
	i := e.index(v.name)
	if i < 0 || !e.own[i].pid.Equal(v.pid) {
		return false
	}
	if e.own[i].up != v.up {
		e.entries[v.name].since = now
	}
	e.own = slices.Clone(e.own)
	e.own[i] = v
	return true
}

// detach starts to take an engine out of use and returns its view. ok is false if
// there is no such engine, or detach has started already.
func (e *engines) detach(name string) (v engineView, ok bool) {
	entry := e.entries[name]
	if entry == nil || entry.detaching {
		return v, false
	}
	entry.detaching = true
	return e.own[e.index(name)], true
}

// markDown marks an engine as down and returns its view; the caller then removes the
// engine.
func (e *engines) markDown(name string, now time.Time) engineView {
	v := e.own[e.index(name)]
	v.up, v.err = false, errDetached
	e.replace(v, now)
	return v
}

// remove removes an engine, and returns the server that waits for the engine's name;
// nil if none.
func (e *engines) remove(name string) (next engine.Engine) {
	next = e.entries[name].next
	delete(e.entries, name)
	e.own = slices.DeleteFunc(slices.Clone(e.own), func(v engineView) bool { return v.name == name })
	return next
}

func (e *engines) index(name string) int {
	return slices.IndexFunc(e.own, func(v engineView) bool { return v.name == name })
}

// serves reports whether any of the node's own engines runs rows of a job now.
func (e *engines) serves(spec *rowmill.Spec) bool {
	return slices.ContainsFunc(e.own, func(v engineView) bool { _, ok := v.servedModel(spec); return ok })
}

// updateRemote reads the engines of the other nodes from their states, and reports
// whether any engine has changed. It does not read unchanged states again: of a
// thousand nodes, only a few change at the same time.
func (e *engines) updateRemote(members []cluster.Member) bool {
	said, changed := make(map[string]peerState, len(members)), false
	for _, m := range members {
		before := e.lastStates[m.ID]
		d := before
		if before.address != m.Peer || before.engines != m.Engines || !bytes.Equal(before.state, m.State) {
			d = readPeerState(m)
			changed = changed || !slices.EqualFunc(before.views, d.views, sameView)
		}
		said[m.ID] = d
	}
	for id, d := range e.lastStates {
		if _, here := said[id]; !here && len(d.views) > 0 {
			changed = true
		}
	}
	e.lastStates = said
	if !changed {
		return false
	}
	e.remote = nil
	for _, m := range members {
		e.remote = append(e.remote, said[m.ID].views...)
	}
	return true
}

// peerState holds the last state that another node has sent, and the engines in that
// state.
type peerState struct {
	address string
	engines bool
	state   []byte
	views   []engineView
}

func readPeerState(m cluster.Member) peerState {
	d := peerState{address: m.Peer, engines: m.Engines, state: m.State}
	if said, ok := nodes.DecodeState(m); ok && m.Engines {
		d.views = remoteViews(m, said)
	}
	return d
}

// remoteViews returns the engines of another node as views for jobs.
func remoteViews(m cluster.Member, said nodes.State) []engineView {
	out := make([]engineView, 0, len(said.Engines))
	for _, e := range said.Engines {
		out = append(out, engineView{
			name: m.ID + "/" + e.Name, localName: e.Name, address: m.Peer, up: !said.Draining && !e.Stopped, startable: !said.Draining && e.Stopped, failure: e.Failure,
			info: engine.ServerInfo{Kind: e.Kind, Simulated: e.Simulated, Models: e.Models}, resting: e.Resting,
		})
	}
	return out
}

func sameView(a, b engineView) bool {
	return a.name == b.name && a.address == b.address && a.up == b.up && a.startable == b.startable && a.failure == b.failure && a.info.EqualIgnoringVersion(b.info) && maps.Equal(a.resting, b.resting)
}

// usableEngines returns the engines that jobs of this node may use: the engines of other
// nodes and, unless this node drains, its own.
func (e *engines) usableEngines(draining bool) []engineView {
	if draining {
		return slices.Clone(e.remote)
	}
	usable := slices.Concat(e.own, e.remote)
	for _, s := range e.stopped {
		usable = append(usable, engineView{name: s.Name, localName: s.Name, info: engine.ServerInfo{Kind: s.Kind, Simulated: s.Simulated, Models: s.Models}, startable: true, failure: s.Failure})
	}
	return usable
}

// status returns the state of the node's own engines, for the API.
func (e *engines) status() []EngineStatus {
	out := make([]EngineStatus, len(e.own))
	for i, v := range e.own {
		entry := e.entries[v.name]
		out[i] = EngineStatus{Name: v.name, Up: v.up, Since: entry.since, Info: v.info, Err: v.err, Resting: v.resting, engineLoad: entry.sending}
	}
	return out
}

// states returns the node's own engines that other nodes may use, and servers that this node
// can start.
func (e *engines) states() (out []nodes.Engine) {
	for _, v := range e.own {
		if v.up {
			limit, inFlight, _ := e.entries[v.name].sending.Load()
			out = append(out, nodes.Engine{Name: v.name, Kind: v.info.Kind, Simulated: v.info.Simulated, Window: limit, InFlight: inFlight, Models: v.info.Models, Resting: v.resting})
		}
	}
	return append(out, e.stopped...)
}

// briefEnd returns the reason of a server's end for clients: without details, and empty if the
// reason may name files of the node.
func briefEnd(failure string) string {
	why, ended := strings.CutPrefix(failure, "the server ")
	if !ended {
		return ""
	}
	why, _, _ = strings.Cut(why, " (")
	return ": it " + why
}

// briefFault returns the fault of a server in words that every client may read. It
// leaves out the server's message, which may quote rows of another client.
func briefFault(err error) string {
	var fault *engine.Error
	switch {
	case !errors.As(err, &fault), fault.Status == 0 && fault.Code == "":
		return "no answer"
	case fault.Status == 0:
		return fault.Code
	case fault.Code == "":
		return fmt.Sprintf("HTTP %d", fault.Status)
	}
	return fmt.Sprintf("HTTP %d, %s", fault.Status, fault.Code)
}
