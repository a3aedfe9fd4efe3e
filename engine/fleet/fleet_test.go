package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/launch"
	"github.com/rowmill/rowmill/engine/placement"
	"github.com/rowmill/rowmill/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loads is the time that an invented server needs to answer.
const loads = 20 * time.Second

// memory is a store.NamedValues.
type memory struct {
	mu       sync.Mutex
	docs     map[string]json.RawMessage
	versions map[string]int64
	conflict int // number of writes that find a change of another node
	err      error
}

func (m *memory) GetValue(_ context.Context, name string) (json.RawMessage, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil, 0, m.err
	}
	if m.docs[name] == nil {
		return nil, 0, rowmill.ErrNotFound
	}
	return m.docs[name], m.versions[name], nil
}

func (m *memory) PutValue(_ context.Context, name string, doc json.RawMessage, version int64) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conflict > 0 || m.versions[name] != version {
		m.conflict--
		return 0, rowmill.ErrConflict
	}
	m.docs[name] = doc
	m.versions[name]++
	return m.versions[name], nil
}

func (m *memory) ListValues(context.Context, string) ([]string, error) { return nil, nil }

// A run is an invented process of a server.
type run struct {
	mu     sync.Mutex
	config launch.Config
	state  launch.State
	timer  *time.Timer
}

func (r *run) State() launch.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

func (r *run) change(s launch.State) {
	r.mu.Lock()
	r.state = s
	r.timer.Stop()
	r.mu.Unlock()
	r.config.Changed()
}

func (r *run) Stop(context.Context) { r.change(launch.State{Over: true}) }

// A machine is an invented node with servers. It is the Pipeline of its Fleet.
type machine struct {
	*testing.T
	name   string
	fleet  *Fleet
	folder string

	mu       sync.Mutex
	live     []string
	demand   []Demand
	attached map[string]engine.Engine
	busy     map[string]bool // engines that keep their rows after Detach
	stopped  []string
	runs     map[string]*run // last process of each server
	starts   []string        // SERVER and its GPUs
	fails    map[string]bool // servers that do not answer
}

type invented struct {
	engine.Engine
	name string
}

func (invented) Close() {}

func newMachine(t *testing.T, values *memory, name string, gpus int, servers ...ServerConfig) *machine {
	t.Helper()
	m := &machine{T: t, name: name, folder: t.TempDir(), live: []string{name}, attached: map[string]engine.Engine{}, busy: map[string]bool{}, runs: map[string]*run{}, fails: map[string]bool{}}
	cfg := Config{
		Node: name, Rules: placement.Rules{Hold: time.Minute, MaxWait: 30 * time.Minute}, Drain: 20 * time.Second, Folder: m.folder,
		Values: values, Pipeline: m, Logger: slog.New(slog.DiscardHandler),
	}
	for i := range gpus {
		cfg.GPUs = append(cfg.GPUs, i)
	}
	for _, set := range servers {
		set.Open = func() (engine.Engine, error) { return invented{name: set.Name}, nil }
		cfg.Servers = append(cfg.Servers, set)
	}
	m.fleet = New(cfg)
	m.fleet.start = m.start
	return m
}

// onDemand returns a server of the model that runs only for its rows.
func onDemand(model string) ServerConfig {
	set := serverOf(model)
	set.Idle = 24 * time.Hour
	return set
}

// serverOf returns a server of the model that needs one GPU.
func serverOf(model string) ServerConfig {
	return ServerConfig{Name: "s-" + model, Command: "run " + model + " 8000", Run: "run " + model, Served: []engine.ServedModel{{Name: model}}, GPUs: 1, Ready: time.Minute}
}

func (m *machine) run() (stop func()) {
	ctx, cancel := context.WithCancel(m.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		m.fleet.Run(ctx)
	}()
	return func() {
		cancel()
		<-over
		m.fleet.Stop(context.Background())
	}
}

func (m *machine) start(_ context.Context, c launch.Config) process {
	r := &run{config: c}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.starts = append(m.starts, fmt.Sprint(c.Name, c.Env))
	m.runs[c.Name] = r
	then := launch.State{Answers: true}
	if m.fails[c.Name] {
		then = launch.State{Over: true, Err: errors.New("out of memory"), LastLine: "at 0x10"}
	}
	r.timer = time.AfterFunc(loads, func() { r.change(then) })
	return r
}

func (m *machine) Attach(e engine.Engine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attached[e.(*attachedEngine).Engine.(invented).name] = e
}

func (m *machine) Detach(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.busy[name] {
		m.attached[name].Close()
	}
	delete(m.attached, name)
}

func (m *machine) Engine(name string) (s EngineState, found bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.attached[name] == nil {
		return s, false
	}
	model := name[len("s-"):]
	s = EngineState{Up: true, Info: engine.ServerInfo{Kind: "vllm", Models: []engine.ServedModel{{Name: model}}}}
	for _, d := range m.demand {
		if d.Model == model && d.Tokens > 0 {
			s.Rows = 8
		}
	}
	return s, true
}

func (m *machine) Cluster() (self string, live []string, demand []Demand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.name, m.live, m.demand
}

func (m *machine) SetStopped(list []StoppedServer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = nil
	for _, s := range list {
		m.stopped = append(m.stopped, s.Name)
	}
}

// is calls a function that reads or changes the machine.
func (m *machine) is(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

func (m *machine) isAttached(name string) (attached bool) {
	m.is(func() { attached = m.attached[name] != nil })
	return attached
}

func (m *machine) stoppedNames() (names []string) {
	m.is(func() { names = m.stopped })
	return names
}

func (m *machine) started() (starts []string) {
	m.is(func() { starts = slices.Clone(m.starts) })
	return starts
}

// process returns the last process of a server.
func (m *machine) process(name string) (r *run) {
	m.is(func() { r = m.runs[name] })
	return r
}

// wants sets the demand: MODEL has this many tokens.
func (m *machine) wants(demand map[string]float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.demand = nil
	for model, tokens := range demand {
		m.demand = append(m.demand, Demand{Demand: placement.Demand{Model: model, Tokens: tokens, Since: time.Now()}})
	}
}

// expect waits, and then compares the phases of the servers.
func (m *machine) expect(after time.Duration, want ...placement.Phase) {
	m.Helper()
	time.Sleep(after)
	synctest.Wait()
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	var got []placement.Phase
	for _, s := range m.fleet.servers {
		got = append(got, s.phase)
	}
	if !slices.Equal(got, want) {
		m.Errorf("phases %v, want %v", got, want)
	}
}

const (
	stopped  = placement.Stopped
	loading  = placement.Loading
	running  = placement.Running
	sleeping = placement.Sleeping
	stopping = placement.Stopping
)

func inTime(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

func newMemory() *memory {
	return &memory{docs: map[string]json.RawMessage{}, versions: map[string]int64{}}
}

// Rows of one model run until they are done. Then the rows of the other model get the GPU.
func TestServersTakeTurns(t *testing.T) {
	inTime(t, func(t *testing.T) {
		values := newMemory()
		m := newMachine(t, values, "n", 1, serverOf("a"), serverOf("b"))
		defer m.run()()
		m.expect(time.Minute, stopped, stopped)
		if want := []string{"s-a", "s-b"}; !slices.Equal(m.stoppedNames(), want) {
			t.Errorf("jobs know the stopped servers %v, want %v", m.stoppedNames(), want)
		}
		m.wants(map[string]float64{"a": 1e6, "b": 1e5})
		m.expect(2*time.Second, stopped, loading)
		m.expect(loads+2*time.Second, stopped, running)
		if !m.isAttached("s-b") || !slices.Equal(m.stoppedNames(), []string{"s-a"}) {
			t.Errorf("stopped %v", m.stoppedNames())
		}
		m.wants(map[string]float64{"a": 1e6})
		m.expect(loads+6*time.Second, running, stopped)
		if m.isAttached("s-b") || len(m.started()) != 2 || m.started()[0] != "s-b[CUDA_VISIBLE_DEVICES=0]" {
			t.Errorf("starts %v", m.started())
		}
		all := must.Get(List(t.Context(), values))(t)
		if len(all) != 2 || all[0].Node != "n" || all[0].Phase != running || all[0].Load < loads || !slices.Equal(all[0].On, []int{0}) || len(all[0].Models) != 1 || all[0].Models[0].Name != "a" {
			t.Errorf("the record says %+v", all)
		}
	})
}

// Rows in flight finish before their server stops, but not longer than Config.Drain.
func TestServerDrainsBeforeItStops(t *testing.T) {
	inTime(t, func(t *testing.T) {
		m := newMachine(t, newMemory(), "n", 1, serverOf("a"), serverOf("b"))
		defer m.run()()
		m.wants(map[string]float64{"a": 1e6})
		m.expect(loads+3*time.Second, running, stopped)
		m.is(func() { m.busy["s-a"] = true })
		m.wants(map[string]float64{"b": 1e6})
		m.expect(10*time.Second, stopping, stopped)
		m.expect(12*time.Second, stopped, loading)
	})
}

// A server that does not start leaves its GPU to others, and is tried again.
func TestServerThatDoesNotStart(t *testing.T) {
	inTime(t, func(t *testing.T) {
		values := newMemory()
		m := newMachine(t, values, "n", 1, onDemand("a"))
		defer m.run()()
		m.is(func() { m.fails["s-a"] = true })
		m.expect(1500*time.Millisecond, stopped)
		m.wants(map[string]float64{"a": 1e6})
		m.expect(loads+time.Second, stopped)
		first := must.Get(List(t.Context(), values))(t)
		if first[0].Error != "out of memory: at 0x10" || first[0].RetryAt.IsZero() || first[0].FailingSince.IsZero() {
			t.Errorf("the record says %+v", first)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if all := must.Get(List(t.Context(), values))(t); !all[0].FailingSince.Equal(first[0].FailingSince) {
			t.Errorf("after ten minutes of failures, the record says %+v", all)
		}
		if n := len(m.started()); n < 6 || n > 10 {
			t.Errorf("%d starts in ten minutes", n)
		}
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		if n := len(m.started()); n < 15 || n > 35 {
			t.Errorf("%d starts in ten hours", n)
		}
		m.is(func() { m.fails["s-a"] = false })
		m.expect(longestRetry+loads+time.Second, running)
		if all := must.Get(List(t.Context(), values))(t); all[0].Error != "" || !all[0].FailingSince.IsZero() {
			t.Errorf("after an answer, the record says %+v", all)
		}
		if all := must.Get(List(t.Context(), values))(t); all[0].Error != "" {
			t.Errorf("the record says %+v", all)
		}
	})
}

// A server that crashes keeps its GPU and its engine, so that rows which crash servers are
// found. If it does not come back, the rows go elsewhere.
func TestServerThatCrashes(t *testing.T) {
	inTime(t, func(t *testing.T) {
		m := newMachine(t, newMemory(), "n", 1, onDemand("a"))
		defer m.run()()
		m.wants(map[string]float64{"a": 1e6})
		m.expect(loads+2*time.Second, running)
		r := m.process("s-a")
		if !r.config.MayRestart(true) || r.config.MayRestart(false) {
			t.Error("a crash must restart the server, and a failed start must not")
		}
		r.change(launch.State{Err: errors.New("segmentation fault")})
		m.expect(0, loading)
		if !m.isAttached("s-a") {
			t.Error("the crash has detached the engine")
		}
		r.change(launch.State{Answers: true})
		m.expect(0, running)
		r.change(launch.State{Over: true, Err: errors.New("segmentation fault")})
		m.wants(nil)
		m.expect(lostAfter-2*time.Second, stopped)
		if !m.isAttached("s-a") {
			t.Error("the engine is detached too soon")
		}
		m.expect(4*time.Second, stopped)
		if m.isAttached("s-a") {
			t.Error("rows still wait for the server")
		}
	})
}

// While another node changes the record or the records are away, nothing starts.
func TestServersStartOnlyByTheRecord(t *testing.T) {
	inTime(t, func(t *testing.T) {
		values := newMemory()
		m := newMachine(t, values, "n", 1, onDemand("a"))
		defer m.run()()
		m.expect(2*time.Second, stopped)
		values.mu.Lock()
		values.conflict = 5
		values.mu.Unlock()
		m.wants(map[string]float64{"a": 1e6})
		m.expect(4500*time.Millisecond, stopped)
		values.mu.Lock()
		values.err = errors.New("away")
		values.mu.Unlock()
		m.expect(time.Minute, stopped)
		values.mu.Lock()
		values.err = nil
		values.mu.Unlock()
		m.expect(3*time.Second, loading)
	})
}

// Two nodes have a server of the same model. Few rows start one of them; and when its node
// is lost, the other one. A draining node starts nothing.
func TestNodesDecideOnce(t *testing.T) {
	inTime(t, func(t *testing.T) {
		values := newMemory()
		var nodes []*machine
		for _, name := range []string{"n1", "n2"} {
			m := newMachine(t, values, name, 1, serverOf("a"), serverOf("b"))
			m.live = []string{"n1", "n2"}
			nodes = append(nodes, m)
		}
		stops := []func(){nodes[0].run(), nodes[1].run()}
		for _, m := range nodes {
			m.wants(map[string]float64{"a": 1000})
		}
		time.Sleep(loads + 5*time.Second)
		synctest.Wait()
		if len(nodes[0].started())+len(nodes[1].started()) != 1 {
			t.Errorf("starts on the nodes: %v and %v", nodes[0].started(), nodes[1].started())
		}
		lost := 0 // the node with the server
		if len(nodes[1].started()) == 1 {
			lost = 1
		}
		second := nodes[1-lost]
		stops[lost]()
		defer stops[1-lost]()
		second.is(func() { second.live = []string{second.name} })
		second.expect(loads+5*time.Second, running, stopped)
		if all := must.Get(List(t.Context(), values))(t); len(all) != 2 || all[0].Node != second.name {
			t.Errorf("the record has the lost node: %+v", all)
		}
		second.is(func() { second.live = nil })
		second.wants(map[string]float64{"b": 1e6})
		second.expect(10*time.Minute, running, stopped)
	})
}

// A server in sleep mode keeps its process. If it does not sleep or wake up, it ends.
func TestSleepMode(t *testing.T) {
	t.Parallel()
	broken := ""
	mux := http.NewServeMux()
	for _, path := range []string{"/sleep", "/wake_up"} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, _ *http.Request) {
			if path == broken {
				w.WriteHeader(http.StatusNotFound)
			}
		})
	}
	api := httptest.NewServer(mux)
	t.Cleanup(api.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	set := serverOf("a")
	set.URL, set.Sleep = api.URL, true
	m := newMachine(t, newMemory(), "n", 1, set)
	s, now := m.fleet.servers[0], time.Now()
	act := func(do placement.Kind) {
		m.fleet.mu.Lock()
		s.execute(t.Context(), placement.Action{Node: "n", Server: "s-a", Do: do, GPUs: []int{0}}, now)
		m.fleet.mu.Unlock()
		m.fleet.tasks.Wait()
	}
	see := func(want placement.Phase) {
		t.Helper()
		if m.fleet.mu.Lock(); s.run != nil {
			s.observe(now)
		}
		got := s.phase
		m.fleet.mu.Unlock()
		if got != want {
			t.Errorf("the phase is %s, want %s", got, want)
		}
	}
	act(placement.Start)
	m.process("s-a").change(launch.State{Answers: true})
	see(running)
	act(placement.Sleep)
	see(sleeping)
	if len(s.on) != 1 || s.run == nil || m.process("s-a").config.MayRestart(true) {
		t.Error("the sleeping server has lost its process, or would start again")
	}
	act(placement.Wake)
	see(running)
	broken = "/sleep"
	act(placement.Sleep)
	see(stopped)
	act(placement.Start)
	m.process("s-a").change(launch.State{Answers: true})
	see(running)
	act(placement.Sleep)
	see(stopped)
	broken = "/wake_up"
	act(placement.Start)
	m.process("s-a").change(launch.State{Answers: true})
	see(running)
	act(placement.Sleep)
	see(sleeping)
	act(placement.Wake)
	see(stopped)
	m.fleet.Stop(t.Context())
}

// What operators want holds before the rows.
func TestModes(t *testing.T) {
	inTime(t, func(t *testing.T) {
		values := newMemory()
		m := newMachine(t, values, "n", 1, serverOf("a"), serverOf("b"))
		defer m.run()()
		m.expect(2*time.Second, stopped, stopped)
		must.Succeed(t, SetMode(t.Context(), values, "n", "s-a", placement.On))
		m.expect(loads+3*time.Second, running, stopped)
		m.wants(map[string]float64{"b": 1e6})
		m.expect(time.Hour, running, stopped)
		must.Succeed(t, SetMode(t.Context(), values, "n", "s-a", placement.Off))
		m.expect(loads+6*time.Second, stopped, running)
		must.Succeed(t, SetMode(t.Context(), values, "n", "s-b", placement.Off))
		m.expect(time.Minute, stopped, stopped)
		if len(m.stoppedNames()) > 0 {
			t.Errorf("jobs wait for %v, which must not run", m.stoppedNames())
		}
		if err := SetMode(t.Context(), values, "n", "s-c", placement.Off); !errors.Is(err, rowmill.ErrNotFound) {
			t.Errorf("no such server: %v", err)
		}
	})
}

// Servers that all fit on the GPUs always run. A server with unknown models runs once, and
// its node then knows the models also after a restart.
func TestServersWithoutRows(t *testing.T) {
	inTime(t, func(t *testing.T) {
		m := newMachine(t, newMemory(), "n", 2, serverOf("a"), serverOf("b"))
		stop := m.run()
		m.expect(time.Hour, running, running)
		stop()
		unknown := serverOf("c")
		unknown.Served = nil
		m = newMachine(t, newMemory(), "n", 1, serverOf("a"), unknown)
		stop = m.run()
		m.expect(loads+3*time.Second, stopped, running)
		stop()
		if got := readFacts(m.fleet.factsFile("s-c"), unknown); len(got.Models) != 1 || got.Kind != "vllm" || got.Load < loads.Seconds() {
			t.Errorf("the kept facts are %+v", got)
		}
		unknown.Run = "run another"
		if got := readFacts(m.fleet.factsFile("s-c"), unknown); len(got.Models) != 0 {
			t.Errorf("facts of another command: %+v", got)
		}
		must.Succeed(t, os.WriteFile(filepath.Join(m.folder, "s-c.json"), []byte("{"), 0o600))
		if got := readFacts(m.fleet.factsFile("s-c"), unknown); got.Rate != expectedRate || got.Load != expectedLoad {
			t.Errorf("facts of a damaged file: %+v", got)
		}
	})
}

// The pace is the mean of the times with rows.
func TestPace(t *testing.T) {
	t.Parallel()
	var p pace
	now, tokens := time.Unix(0, 0), int64(0)
	see := func(seconds, perSecond, rows int) (rate float64, ok bool) {
		for range seconds {
			now, tokens = now.Add(time.Second), tokens+int64(perSecond)
			rate, ok = p.observe(rows, tokens, now)
		}
		return rate, ok
	}
	if rate, ok := see(5, 700, 8); ok {
		t.Errorf("after a few seconds the pace is %v", rate)
	}
	if rate, ok := see(20, 700, 8); !ok || rate != 700 {
		t.Errorf("a steady pace is %v", rate)
	}
	see(1000, 0, 0)
	if rate, ok := see(2, 700, 8); !ok || rate != 700 {
		t.Errorf("after a pause without rows the pace is %v", rate)
	}
	if rate, _ := see(300, 100, 8); rate < 99 || rate > 110 {
		t.Errorf("the new pace is %v", rate)
	}
}
