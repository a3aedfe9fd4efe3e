package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/blob/s3"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cmd/rowmill/gpu"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/engine/discover"
	"github.com/rowmill/rowmill/engine/openai"
	"github.com/rowmill/rowmill/engine/sim"
	"github.com/rowmill/rowmill/http"
	"github.com/rowmill/rowmill/http/webhook/sender"
	"github.com/rowmill/rowmill/internal/tracing"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/deployment"
	"github.com/rowmill/rowmill/store/journal"
	"github.com/rowmill/rowmill/store/redis"
)

const (
	// graceTimeout is how long a node that has drained may take to answer its
	// last requests and to close: less than stopTimeout, at which it is ended.
	graceTimeout = 8 * time.Second
	// requestGrace is how much of that is left to requests: what closes after
	// the listeners wants some of it too.
	requestGrace = 4 * time.Second
)

// Main is a running node: its parts, built from the bottom floor to the top.
//
//	        settings
//	           │
//	Catalog    │    Store ◄─── DIR/rowmill.db or Redis
//	   │       │      │ signing keys
//	   │       │    Bucket ◄── DIR/objects or S3
//	   │       │      │
//	   │   Engines ───┼──────► inference servers, named or found, or Simulator
//	   │       │      │
//	   │       │      │  Cluster, peer listener ◄─► other nodes
//	   │       │      │      │ who is there; requests between nodes
//	   │    ┌──▼──────▼──────▼──┐ ◄── servers found later
//	   │    │     Pipeline      │  claims jobs from Store, runs rows on Engines
//	   │    └──▲─────────────┬──┘  and on those of other nodes
//	   │       │             └────► Webhooks: tell receivers of ends of jobs
//	   │       │ submitted, cancelled, draining?, nodes
//	   │    ┌──┴─────────┐
//	   └───►│    API     │  reads Store and Bucket; /objects/ is Bucket's
//	        └──▲─────────┘
//	           │
//	   listener (API), admin listener (metrics, pprof)
//
// Run builds it upwards; only the listeners' sockets come earlier, so that other
// nodes can be told the API's address, and no input leads to either. Close says
// that the node is draining and drains the pipeline while the API still answers
// and other nodes take over, and then takes everything down in the reverse
// order: the API, the pipeline with its session, the cluster, which tells the
// others, and what is below.
type Main struct {
	Settings settings.Settings
	Logger   *slog.Logger

	// Reload reads the settings again, of which secrets take effect; nil: never.
	Reload func() (settings.Settings, error)
	// Hangup asks for that at once.
	Hangup <-chan os.Signal

	Registry  *prometheus.Registry
	Tracer    *tracing.Tracer // nil where nothing is traced
	Catalog   *catalog.Catalog
	Store     store.Store
	Bucket    blob.Bucket
	GPUs      gpu.Source       // of this machine; nil: those that nvidia-smi knows
	Simulator *sim.Server      // nil where outputs are real
	Engines   []engine.Engine  // those there were at start
	Cluster   *cluster.Cluster // nil on a node alone
	Pipeline  *actors.System
	Webhooks  *sender.Sender
	API       *http.Server

	Addr      net.Addr // of the API
	AdminAddr net.Addr // nil where there is none
	URL       string   // base of the API for a client on this machine
	FirstKey  string   // made by this start; empty otherwise. Never log it

	deployment deployment.Identity                         // of Store and Bucket
	durability func(ctx context.Context) ([]string, error) // what Store's settings can lose; nil: nothing
	redis      *redis.Store                                // below Store; nil where that is embedded
	s3         *s3.Bucket                                  // Bucket where it is one; nil otherwise
	named      map[string]*openai.Engine                   // the configured engines
	secrets    *secrets                                    // as they took effect last
	journal    *journal.Journal                            // of the audit record; nil for none
	stream     *sender.Stream                              // of the audit record; nil for none
	signing    *dir.Keyring                                // of folder
	folder     *dir.Bucket                                 // Bucket where it is a directory; nil otherwise
	backingUp  atomic.Bool                                 // a backup of Store and folder is held
	gpus       *gpu.Monitor
	meter      *meter // what Pipeline has done of late
	asked      *asked // what other nodes have said of late
	search     serverSearch

	peers      *peer.Server // nil on a node alone
	api, admin *listener
	failed     chan error // a listener that stopped by itself
	closers    []closer   // what is open, in the order of opening
	watchdog   *watchdog  // nil in tests
}

// A serverSearch looks for inference servers.
type serverSearch struct {
	finder  *discover.Finder // nil where no servers are looked for
	policy  simPolicy        // which of those that were found are used
	waiting string           // why a node that had no server at start does not simulate one
}

// A closer is a part to be closed.
type closer struct {
	name  string
	close func(ctx context.Context) error
}

// Run brings the node up and returns once it answers, or takes down again what
// was up and returns why not.
func (m *Main) Run(ctx context.Context) error {
	m.failed = make(chan error, 2)
	for _, step := range []func(context.Context) error{
		m.openMetrics, m.openTracing, m.openStore, m.openBucket, m.settle, m.openEngines,
		m.openListener, m.openCluster, m.openPipeline, m.openDiscovery, m.openMeter, m.openAPI, m.openSecrets,
	} {
		if err := step(ctx); err != nil {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTimeout)
			defer cancel()
			return errors.Join(err, m.closeAll(closing))
		}
	}
	return nil
}

// Failed receives the error of a part that stopped by itself.
func (m *Main) Failed() <-chan error { return m.failed }

// Close takes the node down: no new jobs, rows in flight are finished and
// committed, then everything is closed, in all within one deadline. Calling
// it twice is harmless.
func (m *Main) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.Settings.Jobs.DrainTimeout+graceTimeout)
	defer cancel()
	var err error
	if m.Pipeline != nil && m.api != nil {
		m.watchdog.at("rows in flight")
		drain, cancel := context.WithTimeout(ctx, m.Settings.Jobs.DrainTimeout)
		defer cancel()
		if err = m.Pipeline.Drain(drain); err != nil {
			err = fmt.Errorf("rows in flight were given up and will be run again: %w", err)
		}
	}
	return errors.Join(err, m.closeAll(ctx))
}

func (m *Main) closeAll(ctx context.Context) error {
	var errs []error
	for i := len(m.closers) - 1; i >= 0; i-- {
		m.watchdog.at(m.closers[i].name)
		if err := m.closers[i].close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", m.closers[i].name, err))
		}
	}
	m.closers, m.api = nil, nil
	return errors.Join(errs...)
}

func (m *Main) opened(name string, close func(ctx context.Context) error) {
	m.closers = append(m.closers, closer{name, close})
}

func (m *Main) openMetrics(context.Context) error {
	b := buildInfo()
	m.Registry = prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rowmill_build_info", Help: "1, labelled with what program this is.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "go": b.Go},
	})
	info.Set(1)
	m.Registry.MustRegister(info, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return nil
}

// now is the time for records.
func (m *Main) now() time.Time { return time.Now().Add(m.Settings.ClockOffset) }

// nodeName is how records, logs and other nodes call this node.
func (m *Main) nodeName() string {
	if name := m.Settings.Cluster.Node; name != "" {
		return name
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		return name
	}
	return "node"
}
