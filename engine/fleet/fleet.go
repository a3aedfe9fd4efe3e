// Package fleet starts and stops the inference servers of a node, so that the servers run
// for which rows wait. The nodes of a cluster share one record, and each node reads it
// before it changes a server: two nodes do not load the same model for the same rows.
// Package placement decides which servers run.
package fleet

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/launch"
	"github.com/rowmill/rowmill/engine/placement"
	"github.com/rowmill/rowmill/internal/loglimit"
	"github.com/rowmill/rowmill/store"
)

const (
	// decideInterval is the time between two decisions. Demand changes slowly, and an idle
	// node must cost little.
	decideInterval = time.Second
	// sleepTimeout limits the request with which a server goes to sleep or wakes.
	sleepTimeout = 2 * time.Minute
	// lostAfter is how long rows wait for a server that has crashed before they go elsewhere.
	lostAfter = time.Minute
)

// A ServerConfig describes one server of this node.
type ServerConfig struct {
	Name    string
	Command string                        // command with the port, for `sh -c`
	Run     string                        // command without a port, which stays the same when the node restarts
	URL     string                        // address of the server, http://HOST:PORT
	Served  []engine.ServedModel          // models of the server; empty: the node learns them from the first start
	GPUs    int                           // number of GPUs that only this server uses
	Ready   time.Duration                 // time after a start in which the server must answer
	Idle    time.Duration                 // an idle server stops after this time; 0: never
	Sleep   bool                          // the server has vLLM's sleep mode
	Open    func() (engine.Engine, error) // returns a new adapter for the server

	// Adapters has the paths of LoRA adapters, by the name of the model that each makes.
	Adapters map[string]string
}

// An EngineState is the state of a server in the pipeline.
type EngineState struct {
	Up     bool
	Info   engine.ServerInfo // models of the server, with the results of tests
	Rows   int               // number of rows in flight and waiting at the server
	Tokens int64             // number of tokens of all answered requests
}

// A Demand is the unfinished rows of one model in the cluster.
type Demand struct {
	placement.Demand
	Names []string // further names that servers may use for the model
}

// A StoppedServer is a server that the node can start, for the jobs that wait for it.
type StoppedServer struct {
	Name string
	Info engine.ServerInfo
	// Failure is why its last run ended; empty after an answer.
	Failure string
}

// A Pipeline is the part of the node that runs rows on servers.
type Pipeline interface {
	// Attach takes a server into use.
	Attach(engine.Engine)
	// Detach takes a server out of use, and closes its engine.Engine after its last row.
	Detach(name string)
	// Engine returns the state of an attached server; false if it is not attached.
	Engine(name string) (EngineState, bool)
	// Cluster returns the id of this node, the ids of all nodes that do not drain, and the
	// demand of all nodes.
	Cluster() (self string, live []string, demand []Demand)
	// SetStopped sets the servers that this node can start.
	SetStopped([]StoppedServer)
}

// Config configures a Fleet. All fields are required, but Servers may be empty.
type Config struct {
	Node     string // name of the node, for operators
	Servers  []ServerConfig
	GPUs     []int // GPUs that the servers may use
	Rules    placement.Rules
	Drain    time.Duration // time for rows in flight to finish before their server stops
	Folder   string        // folder for the output and the facts of servers; it exists
	Guard    []string      // see launch.Config
	Environ  []string      // environment of the servers
	Values   store.NamedValues
	Pipeline Pipeline
	Logger   *slog.Logger
}

// A Fleet starts and stops the servers of one node.
type Fleet struct {
	cfg   Config
	start func(context.Context, launch.Config) process // starts a process; tests replace it
	kick  chan struct{}                                // makes Run decide at once
	tasks sync.WaitGroup                               // stops and wake-ups in progress
	log   loglimit.Limit

	mu          sync.Mutex
	closed      bool // the node ends, so nothing starts
	servers     []*server
	sentStopped []StoppedServer // last list for Pipeline.SetStopped
}

// A process is a started server; *launch.Server implements it.
type process interface {
	State() launch.State
	Stop(context.Context)
}

// New returns the Fleet of a node. Run starts the servers.
func New(cfg Config) *Fleet {
	f := &Fleet{
		cfg: cfg, kick: make(chan struct{}, 1), log: loglimit.Limit{Every: time.Minute},
		start: func(ctx context.Context, c launch.Config) process { return launch.Start(ctx, c) },
	}
	needed := 0
	for _, set := range cfg.Servers {
		needed += set.GPUs
	}
	for _, set := range cfg.Servers {
		s := newServer(f, set, time.Now())
		s.always = set.Idle == 0 && needed <= len(cfg.GPUs)
		f.servers = append(f.servers, s)
	}
	return f
}

// Run decides about the servers again and again until ctx ends. It leaves the servers
// running; call Stop afterwards.
func (f *Fleet) Run(ctx context.Context) {
	if err := launch.EndOrphans(ctx, f.cfg.Folder); err != nil { // they would use the GPUs
		f.cfg.Logger.Error("servers that an earlier node has left may still run", "err", err)
	}
	ticker := time.NewTicker(decideInterval)
	defer ticker.Stop()
	for {
		if err := f.decide(ctx); err != nil && ctx.Err() == nil {
			if leftOut, due := f.log.ShouldLog("decide", time.Now()); due {
				f.cfg.Logger.Warn("servers are neither started nor stopped now", "err", err, "left_out", leftOut)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-f.kick:
		}
	}
}

// Stop ends all servers at the same time, and waits until they have ended or ctx ends.
func (f *Fleet) Stop(ctx context.Context) {
	var ends sync.WaitGroup
	f.mu.Lock()
	f.closed = true
	for _, s := range f.servers {
		if run := s.run; run != nil {
			ends.Go(func() { run.Stop(ctx) })
		}
	}
	f.mu.Unlock()
	ends.Wait()
	f.tasks.Wait()
}

// wake makes Run decide at once.
func (f *Fleet) wake() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// decide reads the record of the cluster, decides what this node's servers do next, and
// writes the decision into the record before it executes the decision. If another node has
// changed the record meanwhile, nothing happens until the next call.
func (f *Fleet) decide(ctx context.Context) error {
	shared, version, err := loadRecord(ctx, f.cfg.Values)
	if err != nil {
		return err
	}
	self, live, demand := f.cfg.Pipeline.Cluster()
	if !slices.Contains(live, self) { // this node drains
		return nil
	}
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.servers {
		s.observe(now)
		s.loadAdapters(ctx, demand, now)
		s.mode = shared.Modes[modeKey(f.cfg.Node, s.set.Name)]
	}
	f.sendStopped()
	changed := shared.keepOnly(live)
	changed = shared.put(self, f.describe()) || changed
	actions := slices.DeleteFunc(placement.Decide(now, shared.placementNodes(demand), plainDemand(demand), f.cfg.Rules),
		func(a placement.Action) bool { return a.Node != self })
	for _, a := range actions {
		i := slices.IndexFunc(f.servers, func(s *server) bool { return s.set.Name == a.Server })
		shared.Nodes[self].Servers[i] = f.servers[i].planned(a, now)
	}
	if !changed && len(actions) == 0 {
		return nil
	}
	if err := shared.save(ctx, f.cfg.Values, version); isConflict(err) { // another node was faster; decide again with its change
		return nil
	} else if err != nil {
		return err
	}
	for _, a := range actions {
		i := slices.IndexFunc(f.servers, func(s *server) bool { return s.set.Name == a.Server })
		f.servers[i].execute(ctx, a, now)
	}
	return nil
}

// sendStopped tells the pipeline which servers and adapters can start, if the list has changed.
func (f *Fleet) sendStopped() {
	var list []StoppedServer
	for _, s := range f.servers {
		switch {
		case s.mode == placement.Off:
		case s.attached != nil:
			list = append(list, s.unloadedAdapters()...)
		case len(s.served()) > 0:
			stopped := StoppedServer{Name: s.set.Name, Info: s.info()}
			if s.err != nil {
				stopped.Failure = s.err.Error()
			}
			list = append(list, stopped)
		}
	}
	same := func(a, b StoppedServer) bool {
		return a.Name == b.Name && a.Info.EqualIgnoringVersion(b.Info) && a.Failure == b.Failure
	}
	if !slices.EqualFunc(list, f.sentStopped, same) {
		f.sentStopped = list
		f.cfg.Pipeline.SetStopped(list)
	}
}

// describe returns the entry of this node in the record.
func (f *Fleet) describe() nodeEntry {
	n := nodeEntry{Name: f.cfg.Node, GPUs: f.cfg.GPUs}
	for _, s := range f.servers {
		n.Servers = append(n.Servers, s.describe())
	}
	return n
}

// environ returns the environment of a server that uses these GPUs.
func (f *Fleet) environ(s ServerConfig, gpus []int) []string {
	environ := slices.Clone(f.cfg.Environ)
	if len(gpus) > 0 {
		indices := make([]string, len(gpus))
		for i, g := range gpus {
			indices[i] = strconv.Itoa(g)
		}
		environ = append(environ, "CUDA_VISIBLE_DEVICES="+strings.Join(indices, ","))
	}
	if s.Sleep { // vLLM accepts the requests to sleep and to wake only in this mode
		environ = append(environ, "VLLM_SERVER_DEV_MODE=1")
	}
	if len(s.Adapters) > 0 {
		environ = append(environ, "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True")
	}
	return environ
}

// factsFile returns the path of the file with the facts of a server.
func (f *Fleet) factsFile(name string) string { return filepath.Join(f.cfg.Folder, name+".json") }
