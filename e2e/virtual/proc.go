package virtual

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	apiclient "github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/served"
	api "github.com/rowmill/rowmill/http"
	"github.com/rowmill/rowmill/http/jobs"
	"github.com/rowmill/rowmill/http/nodes"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/replay"
)

// A proc is a process of a node from its start to its end, with the parts that cmd/rowmill
// connects.
type proc struct {
	world *world
	node  int
	id    string

	killed chan struct{}
	once   sync.Once
	port   *port
	ready  chan struct{} // closed when start has returned; it guards the fields below

	records *replay.Store
	system  *actors.System
	handler http.Handler
	started bool

	stopping sync.Once
	stopped  chan struct{}
	stopErr  error
	ends     atomic.Int64 // time of the world at which it was stopped or killed; 0: it runs
}

// adminKey is the API key of the clients of defaultAccount.
const adminKey = "virtual"

func newProc(w *world, node, start int) *proc {
	n, p := w.Nodes[node], &proc{
		world: w, node: node, id: fmt.Sprintf("%s-%d%d", w.name(node), node, start),
		killed: make(chan struct{}), ready: make(chan struct{}), stopped: make(chan struct{}),
	}
	p.port = w.net.listen(node, cluster.Member{
		ID: p.id, Node: w.name(node), Peer: hostOf(node) + ":7947", API: "http://" + hostOf(node),
		Protocol: actors.Protocol, Owns: !n.OwnsNone, Engines: !n.NoEngine, Started: time.Now(),
	})
	return p
}

// hostOf returns the address of a node's machine.
func hostOf(node int) string {
	return netip.AddrFrom4([4]byte{10, 0, byte(node >> 8), byte(node)}).Next().String()
}

// name returns the configured name of a node.
func (w *world) name(node int) string {
	if w.Nodes[node].Twin {
		node = 0
	}
	return fmt.Sprintf("node-%d", node)
}

func (p *proc) start() error {
	defer close(p.ready)
	w, n := p.world, p.world.Nodes[p.node]
	p.join()
	p.records = replay.New(replay.Config{
		Store: &records{proc: p, vault: w.vault}, Log: w.log.With("node", p.id), KeepFor: max(w.settleTime(), time.Second),
	})
	objects := newBucket(w.shelf, p.run)
	downloads, err := p.downloader()
	if err != nil {
		return err
	}
	config := actors.Config{
		Node: w.name(p.node), Store: p.records, Blob: objects, Inputs: actors.InputConfig{Downloader: downloads, Retention: w.inputsKept()}, Peers: p.port, Clock: w.clock(p.node),
		Registerer: nothing{}, Logger: w.log.With("node", p.id), DrainTimeout: 20 * time.Second,
		Ownership: actors.OwnershipConfig{OwnsNone: n.OwnsNone, LeaseTTL: time.Duration(w.Lease), Settle: w.settleTime(), ParkTime: parkTime, MaxActive: w.Places, KeptPlaces: w.keptPlaces()},
		Shards:    actors.ShardConfig{Rows: w.ShardRows},
		Parts:     actors.PartConfig{Interval: time.Duration(w.PartInterval), Bytes: w.PartBytes, Joined: joined},
		Rows:      actors.RowConfig{Patience: 5 * time.Second},

		Janitor: actors.JanitorConfig{Interval: 10 * time.Second, OrphanAge: orphanAge, CatchUp: w.catchUp()},
	}
	if !n.NoEngine {
		config.Engines = []engine.Engine{&client{w.servers[p.node], p}}
	}
	if p.system, err = actors.New(config); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := p.system.Start(ctx); err != nil {
		return err
	}
	p.started = true
	p.port.server.SetHandler(p.system.Service())
	server, err := api.New(api.Config{
		Store: p.system.StorageMonitor().Store(), Bucket: p.system.StorageMonitor().FailFastBucket(), Catalog: w.catalog, Service: service{System: p.system}, Logger: w.log.With("node", p.id),
		Now: w.clock(p.node), EnginesOnly: n.OwnsNone, AdminKeys: []string{adminKey}, Limits: api.Limits{MaxInlineBytes: 512},
	})
	if err != nil {
		return err
	}
	p.handler = server.Handler()
	return nil
}

// joined is the size at which parts are joined: a few shards, so that some are joined while
// rows run.
const joined = 16 << 10

// join starts the gossip of the process with others.
func (p *proc) join() {
	p.world.all.Go(func() {
		time.Sleep(p.world.latency(p.node, "gossip", "") * 10)
		p.port.gossip(p.killed, time.Second)
	})
}

// splitSettle is Settle of the nodes if the store splits: many splits are longer.
const splitSettle = 10 * time.Second

// settleTime returns Settle of the nodes: longer than the store of this world may forget,
// except in a split.
func (w *world) settleTime() time.Duration {
	switch {
	case w.splits():
		return splitSettle
	case w.vault.forgets > 0:
		return 3 * time.Second
	}
	return 0
}

// orphanAge is the age at which an object without a record is removed. No effect is delayed
// for longer.
const orphanAge = time.Minute

// service is the pipeline for the API. Requests of operators panic, except drains.
type service struct {
	*actors.System
	nodes.Service
}

func (service) Checks(context.Context) []api.ReadinessCheck      { return nil }
func (service) Nodes(context.Context) []apiclient.Node           { return nil }
func (service) Servers() []served.Server                         { return nil }
func (service) Counting(rowmill.Model) api.TokenCounting         { return api.TokenCounting{} }
func (s service) DrainNode(ctx context.Context, id string) error { return s.System.DrainNode(ctx, id) }

// Actors is not used here.
func (service) Actors(context.Context, nodes.ActorFilter) ([]nodes.ActorStatus, []nodes.ActorQueryStatus, error) {
	return nil, nil, nil
}

// RowDistribution is not used here.
func (service) RowDistribution(context.Context, *store.Record) *jobs.RowDistribution { return nil }

// serves returns the handler for clients, nil before the process has started.
func (p *proc) serves() http.Handler {
	select {
	case <-p.ready:
		return p.handler
	default:
		return nil
	}
}

// dead reports whether the process was killed.
func (p *proc) dead() bool {
	select {
	case <-p.killed:
		return true
	default:
		return false
	}
}

// kill cuts the process off from everything outside.
func (p *proc) kill() {
	p.ends.CompareAndSwap(0, int64(p.world.now()))
	p.once.Do(func() { close(p.killed) })
	p.port.close(false)
}

// endsBefore reports whether the process was killed or stopped before a time.
func (p *proc) endsBefore(then time.Duration) bool {
	ends := time.Duration(p.ends.Load())
	return ends > 0 && ends <= then
}

// leave tells the other nodes that the process ends, unless it was killed before.
func (p *proc) leave() {
	if !p.dead() {
		p.port.close(true)
	}
	p.kill()
}

// bury ends the goroutines of a killed process.
func (p *proc) bury() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.end(ctx) // its effects do not happen any more
}

// stop ends the process like SIGTERM.
func (p *proc) stop() error {
	<-p.ready
	time.Sleep(p.world.latency(p.node, "stop", p.id)) // no timer of the process fires at this time
	return p.end(context.Background())
}

// end stops the process once; later calls wait for it. With an ended context the process
// gives up its rows in flight at once.
func (p *proc) end(ctx context.Context) error {
	<-p.ready
	p.stopping.Do(func() {
		p.ends.CompareAndSwap(0, int64(p.world.now()))
		go func() {
			defer close(p.stopped)
			if p.started {
				p.stopErr = p.system.Stop(ctx)
			}
			if p.records != nil {
				_ = p.records.Close()
			}
			p.leave()
		}()
	})
	<-p.stopped
	return p.stopErr
}
