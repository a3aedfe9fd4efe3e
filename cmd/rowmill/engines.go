package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/cmd/rowmill/gpu"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/engine/discover"
	"github.com/rowmill/rowmill/engine/offer"
	"github.com/rowmill/rowmill/engine/openai"
	"github.com/rowmill/rowmill/engine/sim"
)

// openEngines decides what rows run on at first:
//
//	cluster.role is api ─────► nothing here
//	engines are configured ──► those
//	--simulate ──────────────► the simulated engine
//	otherwise look ─┬─ found ► those
//	                └─ none ─┬─ no GPU here, and no cluster ──► the simulated engine
//	                         └─ else, or simulator.enabled is never ──► wait
//
// Servers that appear later are openDiscovery's.
func (m *Main) openEngines(ctx context.Context) error {
	if m.GPUs == nil {
		m.GPUs = gpu.SMI{}
	}
	m.gpus = gpu.NewMonitor(m.GPUs)
	m.Registry.MustRegister(m.gpus)
	set := m.Settings
	if set.Cluster.Role == settings.APIOnly {
		return nil
	}
	m.search.policy.simulatedNever = set.Simulator.Enabled == settings.Never
	if err := m.openFinder(); err != nil {
		return err
	}
	for _, e := range set.Engines {
		if err := m.openEngine(e); err != nil {
			return err
		}
	}
	switch {
	case len(set.Engines) > 0:
		return nil
	case set.Simulator.Enabled == settings.Always:
		return m.openSimulated(ctx, "--simulate, or simulator.enabled, says so")
	case m.search.finder != nil:
		found := m.search.finder.Look(ctx)
		if slices.ContainsFunc(found, func(f discover.Found) bool { return !f.Info.Simulated }) {
			m.search.policy.decide(false) // a real one goes before a simulated one
		}
		for _, f := range found {
			if m.admit(f) {
				m.Engines = append(m.Engines, f.Engine)
				m.opened("engine "+f.Engine.Name(), func(context.Context) error { f.Engine.Close(); return nil })
			}
		}
	}
	if len(m.Engines) > 0 {
		return nil
	}
	return m.simulateOrWait(ctx)
}

// simulateOrWait is for a node without any server.
func (m *Main) simulateOrWait(ctx context.Context) error {
	reason := "simulator.enabled is never"
	switch {
	case m.Settings.Simulator.Enabled == settings.Never:
	case m.Settings.Cluster.Enabled():
		reason = "other nodes of the cluster may have servers, and outputs are not simulated beside real ones"
	default:
		// A driver that does not answer is no proof that there is no GPU.
		gpus, err := m.gpus.Read(ctx)
		switch {
		case errors.Is(err, gpu.ErrNone):
			return m.openSimulated(ctx, "no engine is configured, and no server was found")
		case len(gpus) > 0:
			reason = fmt.Sprintf("this machine has a GPU (%s), whose server may still be loading", gpus[0].Name)
		default:
			reason = fmt.Sprintf("this machine seems to have a GPU: %v", err)
		}
	}
	if m.search.finder == nil {
		return fmt.Errorf("no engine is configured, discover.enabled is never, and outputs are not simulated: %s; name a server with --engine URL, or give --simulate; in a cluster a node of cluster.role api needs none", reason)
	}
	m.search.waiting = reason
	m.Logger.Warn("NO INFERENCE SERVER YET: jobs wait for one; start it, or name it with --engine URL; --simulate makes answers up",
		"looking_at", strings.Join(m.search.finder.Waiting(), ","), "reason", reason)
	return nil
}

// openEngine makes the adapter of a configured server.
func (m *Main) openEngine(e settings.Engine) error {
	adapter, err := openai.New(openai.Config{
		Name: e.DisplayName(), BaseURL: e.URL, APIKey: e.APIKey.Reveal(), ModelMap: e.Models, Logger: m.Logger,
	})
	if err != nil {
		return fmt.Errorf("engine %s: %w", e.DisplayName(), err)
	}
	m.Engines = append(m.Engines, adapter)
	if m.named == nil {
		m.named = map[string]*openai.Engine{}
	}
	m.named[e.DisplayName()] = adapter
	m.opened("engine "+e.DisplayName(), func(context.Context) error { adapter.Close(); return nil })
	return nil
}

// openSimulated starts the simulated engine.
func (m *Main) openSimulated(ctx context.Context, reason string) error {
	server, err := openSimulator(ctx, "127.0.0.1:0", sim.Config{
		Models: simulated(m.Catalog.All()), Profile: paced(sim.DefaultProfile(), m.Settings.Simulator), Logger: m.Logger,
	})
	if err != nil {
		return err
	}
	m.Simulator = server
	m.opened("simulator", server.Stop)
	m.search.policy.decide(true)
	m.Logger.Warn("OUTPUTS ARE SIMULATED; give a real server with --engine URL", "address", server.URL(), "reason", reason)
	return m.openEngine(settings.Engine{URL: server.URL(), Name: simulatorName})
}

// simulated are the models of a catalog as they are simulated: what an entry
// leaves out a simulated server has to make up too.
func simulated(models []rowmill.Model) []rowmill.Model {
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

// simulatorName is how the built-in simulated engine is called.
const simulatorName = "simulator"

// openFinder prepares the search for servers, where there is to be one.
func (m *Main) openFinder() error {
	set := m.Settings
	switch set.Discover.Enabled {
	case settings.Never:
		return nil
	case settings.Auto:
		if len(set.Engines) > 0 || set.Simulator.Enabled == settings.Always {
			return nil
		}
	}
	addresses := slices.DeleteFunc(slices.Clone(set.Discover.Addresses), func(address string) bool {
		return isOwn(address, set.HTTP.Listen) || isOwn(address, set.HTTP.AdminListen) ||
			slices.ContainsFunc(set.Engines, func(e settings.Engine) bool { return e.Host() == address })
	})
	var err error
	m.search.finder, err = discover.New(discover.Config{
		Addresses: addresses, Interval: set.Discover.Interval, Timeout: set.Discover.Timeout, Logger: m.Logger,
		Open: func(baseURL string) (engine.Engine, error) { return openai.New(openai.Config{BaseURL: baseURL}) },
	})
	if err != nil {
		return err
	}
	m.opened("finder", func(context.Context) error { m.search.finder.Close(); return nil })
	return nil
}

// openDiscovery goes on looking for servers while the node runs.
func (m *Main) openDiscovery(ctx context.Context) error {
	if m.search.finder == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	over := make(chan struct{})
	go func() {
		defer close(over)
		m.search.finder.Run(ctx, func(f discover.Found) {
			for _, e := range m.Pipeline.Engines() {
				if e.Info.Kind != "" { // a configured one that has answered
					m.search.policy.decide(e.Info.Simulated)
				}
			}
			if m.admit(f) {
				m.Pipeline.Attach(f.Engine)
			}
		})
	}()
	m.opened("discovery", func(context.Context) error {
		cancel()
		<-over
		return nil
	})
	return nil
}

// admit decides about a server that was found, and says so.
func (m *Main) admit(f discover.Found) bool {
	log := m.Logger.With("address", f.Address, "kind", f.Info.Kind, "version", f.Info.Version, "models", m.serves(f.Info))
	if reason := m.search.policy.refuse(f); reason != "" {
		f.Engine.Close()
		log.Warn("INFERENCE SERVER FOUND AND NOT USED", "reason", reason)
		return false
	}
	m.search.policy.decide(f.Info.Simulated)
	if f.Info.Simulated {
		log.Warn("OUTPUTS ARE SIMULATED: a simulated server was found and is used")
	} else {
		log.Info("inference server found, it is used")
	}
	return true
}

// identified is what a server is, for a person.
func identified(info engine.Info) string {
	text := strings.TrimSpace(info.Kind + " " + info.Version)
	if info.Simulated {
		text = "SIMULATED, outputs are made up; " + text
	}
	return text
}

// served are the ids of the models that a server serves: the catalog's, by
// whatever names, and then others by the server's.
func (m *Main) served(info engine.Info) (ids []string) {
	all := offer.New(m.Catalog, func() []offer.Server { return []offer.Server{{Models: info.Models}} })
	for _, offered := range all.List() {
		if len(offered.Servers) > 0 {
			ids = append(ids, offered.Model.ID)
		}
	}
	return ids
}

// serves is what a server serves, for a person.
func (m *Main) serves(info engine.Info) string {
	return cmp.Or(terminal.Few(m.served(info)), "no model")
}

// isOwn reports whether a client that dials address reaches a listener on
// listen, HOST:PORT both.
func isOwn(address, listen string) bool {
	host, port, err := net.SplitHostPort(address)
	ownHost, ownPort, ownErr := net.SplitHostPort(listen)
	if err != nil || ownErr != nil || port != ownPort {
		return false
	}
	return host == ownHost || isLocal(host) && isLocal(ownHost)
}

// isLocal reports whether a host is this machine, or all its addresses.
func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || host == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}
