package actors

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
)

// A named is an engine with nothing but a name.
type named struct {
	engine.Engine
	name string
}

func (n named) Name() string { return n.name }

// full is the sending interface of a busy engine.
type full struct{}

func (full) Load() (limit, inFlight, queued int) { return 8, 3, 1 }
func (full) AnsweredTokens() int64               { return 99 }
func (full) RateLimitMessage() string            { return "" }

// gpu returns the view of an engine after a probe.
func gpu(name, pid string, up bool) engineView {
	return engineView{name: name, localName: name, pid: actor.NewPID("", pid), up: up, info: engine.ServerInfo{Models: []engine.ServedModel{{Name: "m"}}}}
}

func TestAnEngineComesAndGoes(t *testing.T) {
	t.Parallel()
	e, began := newEngines(), time.Now()
	if free, taken := e.claimName(named{name: "gpu"}); !free || taken {
		t.Fatal("the first name is taken")
	}
	e.add(gpu("gpu", "1", false), full{}, began)
	if st := e.status(); len(st) != 1 || st[0].Up || !errors.Is(st[0].Err, errNotProbed) || !st[0].Since.Equal(began) {
		t.Errorf("status is %+v", st)
	}
	held := e.own
	if !e.replace(gpu("gpu", "1", true), began.Add(time.Second)) || held[0].up {
		t.Error("replace does not change the view, or it changes a slice that jobs hold")
	}
	if !e.replace(gpu("gpu", "1", true), began.Add(2*time.Second)) || !e.status()[0].Since.Equal(began.Add(time.Second)) {
		t.Error("Since is not the time when the engine came up")
	}
	m := rowmill.Model{ID: "m"}
	if !e.serves(&rowmill.Spec{Model: m}) || e.serves(&rowmill.Spec{Model: rowmill.Model{ID: "other"}}) {
		t.Error("serve is wrong about the models of the engine")
	}
	if s := e.states(); len(s) != 1 || s[0].Window != 8 || s[0].InFlight != 3 {
		t.Errorf("the state for other nodes is %+v", s)
	}
	if free, taken := e.claimName(named{name: "gpu"}); free || !taken {
		t.Error("its name is free")
	}
	if _, ok := e.detach("nobody"); ok {
		t.Error("an unknown engine is detached")
	}
	if v, ok := e.detach("gpu"); !ok || v.pid.Id != "1" {
		t.Error("it cannot be detached")
	}
	if _, ok := e.detach("gpu"); ok {
		t.Error("it is detached twice")
	}
	next := named{name: "gpu"}
	if free, taken := e.claimName(next); free || taken {
		t.Error("the next engine with this name does not wait")
	}
	if free, taken := e.claimName(named{name: "gpu"}); free || !taken {
		t.Error("two engines wait for one name")
	}
	if v := e.markDown("gpu", began); v.up || e.serves(&rowmill.Spec{Model: m}) || len(e.states()) != 0 || !errors.Is(e.status()[0].Err, errDetached) {
		t.Error("a detached engine is up")
	}
	if e.remove("gpu") != next || len(e.own) != 0 {
		t.Error("remove does not return the waiting engine")
	}
	e.add(gpu("gpu", "2", false), full{}, began)
	if e.replace(gpu("gpu", "1", true), began) || e.replace(gpu("gpu2", "1", true), began) {
		t.Error("the view of a removed engine is taken in")
	}
}

func TestEnginesOfOtherNodes(t *testing.T) {
	t.Parallel()
	e := newEngines()
	e.add(gpu("gpu", "1", true), full{}, time.Now())
	member := func(id string, s nodes.State) cluster.Member {
		doc := must.Get(json.Marshal(s))(t)
		return cluster.Member{ID: id, Peer: id + ":1", Engines: true, State: doc}
	}
	said := nodes.State{Engines: []nodes.Engine{{Name: "gpu", Window: 8, Models: []engine.ServedModel{{Name: "m"}}}}}
	if !e.updateRemote([]cluster.Member{member("b", said), {ID: "c", Engines: true}}) {
		t.Error("a new engine is no change")
	}
	all := e.usableEngines(false)
	if len(all) != 2 || all[0].address != "" || all[1].name != "b/gpu" || all[1].localName != "gpu" || all[1].address != "b:1" || !all[1].up {
		t.Errorf("jobs see %+v", all)
	}
	if all := e.usableEngines(true); len(all) != 1 || all[0].name != "b/gpu" {
		t.Errorf("jobs of a draining node see %+v", all)
	}
	said.Engines[0].InFlight = 7
	if e.updateRemote([]cluster.Member{member("b", said)}) {
		t.Error("a changed load counts as a change for jobs")
	}
	said.Draining = true
	if !e.updateRemote([]cluster.Member{member("b", said)}) || e.usableEngines(true)[0].up {
		t.Error("the engine of a draining node is up")
	}
	idle := member("b", said)
	idle.Engines = false
	if !e.updateRemote([]cluster.Member{idle}) || len(e.usableEngines(true)) != 0 {
		t.Error("a node without engines has some")
	}
}
