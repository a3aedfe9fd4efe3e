package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/gpu"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/engine/discover"
	"github.com/rowmill/rowmill/engine/openai"
	"github.com/rowmill/rowmill/engine/served"
	"github.com/rowmill/rowmill/engine/sim"
	"github.com/rowmill/rowmill/http/exchange"
)

// nodeEngines is the part of a node that opens inference servers and knows their models.
type nodeEngines struct {
	partBase
	GPUs gpu.Source // reads the GPUs of this machine

	Catalog   *catalog.Catalog
	Engines   []engine.Engine // engines that Start has opened
	Simulator *sim.Server     // the built-in simulated server; nil if this node does not run it

	local      []settings.Engine         // servers that this node starts, set by localServers
	named      map[string]*openai.Engine // configured engines and the built-in simulator, by display name
	gpus       *gpu.Monitor
	finder     *discover.Finder // looks for servers; nil if the settings forbid it
	policy     simulationPolicy // decides whether the node uses a server that it finds
	waitReason string           // why this node waits for a server and does not simulate one; empty if it does not wait
}

// Start chooses the first inference servers:
//
//	cluster.role is api ─────► no servers
//	engines are configured ──► the configured engines, and servers that this node starts
//	--simulate ──────────────► the simulated engine
//	otherwise look ─┬─ found ► the found servers
//	                └─ none ─┬─ no GPU here, and no cluster ──► the simulated engine
//	                         └─ else, or simulator.enabled is never ──► wait
//
// The part serverDiscovery finds servers that appear later.
func (e *nodeEngines) Start(ctx context.Context) error {
	e.gpus = gpu.NewMonitor(e.GPUs)
	e.Registry.MustRegister(e.gpus)
	set := e.Settings
	if set.Cluster.Role == settings.APIOnly {
		return nil
	}
	e.policy.simulatedNever = set.Simulator.Enabled == settings.Never
	if err := e.openServerFinder(); err != nil {
		return err
	}
	for _, named := range set.Engines {
		if err := e.openEngine(named); err != nil {
			return err
		}
	}
	switch {
	case len(e.configured()) > 0:
		return nil
	case set.Simulator.Enabled == settings.Always:
		return e.openSimulatedEngine(ctx, "--simulate or simulator.enabled asks for simulated outputs")
	case e.finder != nil:
		found := e.finder.ProbePending(ctx)
		if slices.ContainsFunc(found, func(f discover.FoundServer) bool { return !f.Info.Simulated }) {
			e.policy.decideOnce(false) // if any found server is real, the outputs of this node are real
		}
		for _, f := range found {
			if e.acceptFoundServer(f) {
				e.Engines = append(e.Engines, f.Engine)
				e.addCloser("engine "+f.Engine.Name(), func(context.Context) error { f.Engine.Close(); return nil })
			}
		}
	}
	if len(e.Engines) > 0 {
		return nil
	}
	return e.simulateOrAwaitServer(ctx)
}

// configured returns the engines of the settings, and the servers that this node starts.
func (e *nodeEngines) configured() []settings.Engine {
	return slices.Concat(e.Settings.Engines, e.local)
}

// loadCatalog reads the catalog from a file. If name is empty, it returns the embedded
// catalog.
func loadCatalog(name string) (*catalog.Catalog, error) {
	if name == "" {
		return catalog.Default(), nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	defer file.Close()
	c, err := catalog.Load(file)
	if err != nil {
		return nil, fmt.Errorf("catalog %s: %w", name, err)
	}
	return c, nil
}

func (e *nodeEngines) reloadableSecrets() (all []reloadableSecret) {
	for _, named := range e.Settings.Engines {
		name := named.DisplayName()
		find := func(s settings.Settings) string {
			for _, e := range s.Engines {
				if e.DisplayName() == name {
					return e.APIKey.Reveal()
				}
			}
			return ""
		}
		all = append(all, reloadableSecret{
			name:    "api_key of engine " + name,
			valueIn: find,
			apply:   func(s settings.Settings) error { return e.named[name].SetAPIKey(find(s)) },
		})
	}
	return all
}

// simulateOrAwaitServer decides what a node without a server does: it starts the simulated
// engine, or lets jobs wait for a server. If the settings allow neither, it returns an
// error.
func (e *nodeEngines) simulateOrAwaitServer(ctx context.Context) error {
	reason := "simulator.enabled is never"
	switch {
	case e.Settings.Simulator.Enabled == settings.Never:
	case e.Settings.Cluster.Enabled():
		reason = "other nodes of the cluster may have servers, and simulated outputs must not mix with real ones"
	default:
		// The node simulates only if the machine certainly has no GPU. If reading the
		// GPUs fails, the machine may have a GPU, and the node waits.
		gpus, err := e.gpus.Read(ctx)
		switch {
		case errors.Is(err, gpu.ErrNone):
			return e.openSimulatedEngine(ctx, "no engine is configured, and no server was found")
		case len(gpus) > 0:
			reason = fmt.Sprintf("this machine has a GPU (%s), whose server may still be loading", gpus[0].Name)
		default:
			reason = fmt.Sprintf("this machine seems to have a GPU: %v", err)
		}
	}
	if e.finder == nil {
		return fmt.Errorf("no engine is configured, discover.enabled is never, and outputs are not simulated: %s; name a server with --engine URL, or give --simulate; in a cluster a node of cluster.role api needs none", reason)
	}
	e.waitReason = reason
	e.Logger.Warn("NO INFERENCE SERVER YET: jobs wait for one; start one, name one with --engine URL, or simulate the answers with --simulate",
		"looking_at", strings.Join(e.finder.PendingAddresses(), ","), "reason", reason)
	return nil
}

// openEngine creates the adapter of a server, and adds it to Engines and named.
func (e *nodeEngines) openEngine(set settings.Engine) error {
	adapter, err := openai.New(openai.Config{
		Name: set.DisplayName(), BaseURL: set.URL, APIKey: set.APIKey.Reveal(), ModelMap: set.Models, Logger: e.Logger,
	})
	if err != nil {
		return fmt.Errorf("engine %s: %w", set.DisplayName(), err)
	}
	e.Engines = append(e.Engines, adapter)
	if e.named == nil {
		e.named = map[string]*openai.Engine{}
	}
	e.named[set.DisplayName()] = adapter
	e.addCloser("engine "+set.DisplayName(), func(context.Context) error { adapter.Close(); return nil })
	return nil
}

// openSimulatedEngine starts the built-in simulated server and uses it as an engine. reason
// is for the log.
func (e *nodeEngines) openSimulatedEngine(ctx context.Context, reason string) error {
	server, err := openSimulator(ctx, "127.0.0.1:0", sim.Config{
		Models: fillModelDefaults(e.Catalog.All()), Profile: applySimSettings(sim.DefaultProfile(), e.Settings.Simulator), Logger: e.Logger,
	})
	if err != nil {
		return err
	}
	e.Simulator = server
	e.addCloser("simulator", server.Stop)
	e.policy.decideOnce(true)
	e.Logger.Warn("OUTPUTS ARE SIMULATED; give a real server with --engine URL", "address", server.URL(), "reason", reason)
	return e.openEngine(settings.Engine{URL: server.URL(), Name: simulatorName})
}

// fillModelDefaults sets the kind and the dimension of models whose catalog entries do not
// have them, because a simulated server needs both.
func fillModelDefaults(models []rowmill.Model) []rowmill.Model {
	for i := range models {
		switch m := &models[i]; {
		case m.Kind == rowmill.KindEmbedding && m.Dimension == 0:
			m.Dimension = 1024
		case m.Kind != "":
		case m.Dimension > 0:
			m.Kind = rowmill.KindEmbedding
		case catalog.HasReasoningName(m.ID):
			m.Kind = rowmill.KindReasoning
		default:
			m.Kind = rowmill.KindGeneration
		}
	}
	return models
}

// openSimulator starts a simulated server that listens on address. An invalid config is
// a usage error.
func openSimulator(ctx context.Context, address string, config sim.Config) (*sim.Server, error) {
	server, err := sim.New(config)
	if err != nil {
		return nil, exit.WithCode(exit.Usage, err)
	}
	return server, server.Start(ctx, address)
}

// applySimSettings returns p with the latencies and the number of slots from the settings.
func applySimSettings(p sim.LatencyProfile, set settings.Simulator) sim.LatencyProfile {
	p.TimeToFirstToken, p.TimePerToken, p.Slots = set.TTFT, set.PerToken, set.Slots
	return p
}

// simulatorName is the name of the built-in simulated engine.
const simulatorName = "simulator"

// openServerFinder creates the finder, which looks for inference servers, unless the settings
// forbid it.
func (e *nodeEngines) openServerFinder() error {
	set := e.Settings
	switch set.Discover.Enabled {
	case settings.Never:
		return nil
	case settings.Auto:
		if len(e.configured()) > 0 || set.Simulator.Enabled == settings.Always {
			return nil
		}
	}
	addresses := slices.DeleteFunc(slices.Clone(set.Discover.Addresses), func(address string) bool {
		return isOwnAddress(address, set.HTTP.Listen) || isOwnAddress(address, set.HTTP.AdminListen) ||
			slices.ContainsFunc(e.configured(), func(e settings.Engine) bool { return e.Host() == address })
	})
	var err error
	e.finder, err = discover.New(discover.Config{
		Addresses: addresses, Interval: set.Discover.Interval, Timeout: set.Discover.Timeout, Logger: e.Logger,
		Open: func(baseURL string) (engine.Engine, error) { return openai.New(openai.Config{BaseURL: baseURL}) },
	})
	if err != nil {
		return err
	}
	e.addCloser("finder", func(context.Context) error { e.finder.Close(); return nil })
	return nil
}

// acceptFoundServer decides whether the node uses a server that it found, and logs the decision.
func (e *nodeEngines) acceptFoundServer(f discover.FoundServer) bool {
	log := e.Logger.With("address", f.Address, "kind", f.Info.Kind, "version", f.Info.Version, "models", e.formatModels(f.Info))
	if reason := e.policy.refusalReason(f); reason != "" {
		f.Engine.Close()
		log.Warn("INFERENCE SERVER FOUND AND NOT USED", "reason", reason)
		return false
	}
	e.policy.decideOnce(f.Info.Simulated)
	if f.Info.Simulated {
		log.Warn("OUTPUTS ARE SIMULATED: a simulated server was found and is used")
	} else {
		log.Info("an inference server was found and is used")
	}
	return true
}

// describeServer returns the kind and the version of a server as a text for people.
func describeServer(info engine.ServerInfo) string {
	text := strings.TrimSpace(info.Kind + " " + info.Version)
	if info.Simulated {
		text = "SIMULATED, outputs are made up; " + text
	}
	return text
}

// toAPIModels returns the models of a server under the IDs that jobs use: first the models
// of the catalog, then other models under the server's names.
func (e *nodeEngines) toAPIModels(list []engine.ServedModel) (models []client.Engine_Models) {
	all := served.New(e.Catalog, func() []served.Server { return []served.Server{{Models: list}} })
	for _, offered := range all.List() {
		for _, server := range offered.Servers {
			models = append(models, client.Engine_Models{ID: offered.Model.ID, Name: server.Models[0].Name, Kind: exchange.NilIfZero(string(offered.Model.Kind))})
		}
	}
	return models
}

// modelIDs returns the ids of the models that a server serves.
func (e *nodeEngines) modelIDs(info engine.ServerInfo) (ids []string) {
	for _, model := range e.toAPIModels(info.Models) {
		ids = append(ids, model.ID)
	}
	return ids
}

// formatModels returns the models of a server as a text for people.
func (e *nodeEngines) formatModels(info engine.ServerInfo) string {
	return cmp.Or(terminal.AbbreviateList(e.modelIDs(info)), "no model")
}

// engineURL returns the address of an engine's server, http://HOST:PORT. The name of a found
// server is its HOST:PORT.
func (e *nodeEngines) engineURL(name string) string {
	if e.Simulator != nil && name == simulatorName {
		return e.Simulator.URL()
	}
	for _, named := range e.configured() {
		if named.DisplayName() == name {
			if strings.HasPrefix(named.URL, "https:") {
				return "https://" + named.Host()
			}
			return "http://" + named.Host()
		}
	}
	return "http://" + name
}

// engineHost returns the HOST:PORT of an engine's server.
func (e *nodeEngines) engineHost(name string) string {
	_, host, _ := strings.Cut(e.engineURL(name), "://")
	return host
}

// isOwnAddress reports whether a client that connects to address reaches a listener of this
// node on listenAddress. Both are HOST:PORT.
func isOwnAddress(address, listenAddress string) bool {
	host, port, err := net.SplitHostPort(address)
	ownHost, ownPort, ownErr := net.SplitHostPort(listenAddress)
	local := func(address string) bool { return settings.IsLoopback(address) || settings.IsUnspecified(address) }
	return err == nil && ownErr == nil && port == ownPort && (host == ownHost || local(address) && local(listenAddress))
}
