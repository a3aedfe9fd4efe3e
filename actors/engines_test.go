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
)

// A named engine is only its name.
type named struct {
	engine.Engine
	name string
}

func (n named) Name() string { return n.name }

// full is a server that is sent rows.
type full struct{}

func (full) Load() (limit, inFlight, queued int) { return 8, 3, 1 }
func (full) Paced() string                       { return "" }

// gpu is the view of an engine that has probed.
func gpu(name, pid string, up bool) engineView {
	return engineView{name: name, local: name, pid: actor.NewPID("", pid), up: up, info: engine.Info{Models: []engine.ServedModel{{Name: "m"}}}}
}

func TestAnEngineComesAndGoes(t *testing.T) {
	t.Parallel()
	e, began := newEngines(), time.Now()
	if free, taken := e.free(named{name: "gpu"}); !free || taken {
		t.Fatal("the first name is taken")
	}
	e.add(gpu("gpu", "1", false), full{}, began)
	if st := e.status(); len(st) != 1 || st[0].Up || !errors.Is(st[0].Err, errNotProbed) || !st[0].Since.Equal(began) {
		t.Errorf("status is %+v", st)
	}
	held := e.own
	if !e.replace(gpu("gpu", "1", true), began.Add(time.Second)) || held[0].up {
		t.Error("a change is not taken in, or it is seen by who has the slice")
	}
	if !e.replace(gpu("gpu", "1", true), began.Add(2*time.Second)) || !e.status()[0].Since.Equal(began.Add(time.Second)) {
		t.Error("it is up since its last change")
	}
	m := rowmill.Model{ID: "m"}
	if !e.serve(&rowmill.Spec{Model: m}) || e.serve(&rowmill.Spec{Model: rowmill.Model{ID: "other"}}) {
		t.Error("it serves what it does not, or not what it does")
	}
	if s := e.states(); len(s) != 1 || s[0].Window != 8 || s[0].InFlight != 3 {
		t.Errorf("the others hear %+v", s)
	}
	if free, taken := e.free(named{name: "gpu"}); free || !taken {
		t.Error("its name is free")
	}
	if _, ok := e.detach("nobody"); ok {
		t.Error("nobody is detached")
	}
	if v, ok := e.detach("gpu"); !ok || v.pid.Id != "1" {
		t.Error("it cannot be detached")
	}
	if _, ok := e.detach("gpu"); ok {
		t.Error("it is detached twice")
	}
	next := named{name: "gpu"}
	if free, taken := e.free(next); free || taken {
		t.Error("the next of its name does not wait")
	}
	if free, taken := e.free(named{name: "gpu"}); free || !taken {
		t.Error("two wait for one name")
	}
	if v := e.down("gpu", began); v.up || e.serve(&rowmill.Spec{Model: m}) || len(e.states()) != 0 || !errors.Is(e.status()[0].Err, errDetached) {
		t.Error("it is up while it goes")
	}
	if e.remove("gpu") != next || len(e.own) != 0 {
		t.Error("the next of its name is forgotten")
	}
	e.add(gpu("gpu", "2", false), full{}, began)
	if e.replace(gpu("gpu", "1", true), began) || e.replace(gpu("gpu2", "1", true), began) {
		t.Error("one that has gone still speaks")
	}
}

func TestEnginesOfOtherNodes(t *testing.T) {
	t.Parallel()
	e := newEngines()
	e.add(gpu("gpu", "1", true), full{}, time.Now())
	member := func(id string, s nodes.State) cluster.Member {
		doc, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return cluster.Member{ID: id, Peer: id + ":1", Engines: true, State: doc}
	}
	said := nodes.State{Engines: []nodes.Engine{{Name: "gpu", Window: 8, Models: []engine.ServedModel{{Name: "m"}}}}}
	if !e.hear([]cluster.Member{member("b", said), {ID: "c", Engines: true}}) {
		t.Error("an engine that came changes nothing")
	}
	all := e.all(false)
	if len(all) != 2 || all[0].address != "" || all[1].name != "b/gpu" || all[1].local != "gpu" || all[1].address != "b:1" || !all[1].up {
		t.Errorf("jobs see %+v", all)
	}
	if all := e.all(true); len(all) != 1 || all[0].name != "b/gpu" {
		t.Errorf("jobs of a node that drains see %+v", all)
	}
	said.Engines[0].InFlight = 7
	if e.hear([]cluster.Member{member("b", said)}) {
		t.Error("the load is told to jobs")
	}
	said.Draining = true
	if !e.hear([]cluster.Member{member("b", said)}) || e.all(true)[0].up {
		t.Error("the engine of a node that drains is up")
	}
	idle := member("b", said)
	idle.Engines = false
	if !e.hear([]cluster.Member{idle}) || len(e.all(true)) != 0 {
		t.Error("a node without engines has some")
	}
}
