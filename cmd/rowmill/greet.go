package main

import (
	"fmt"
	"strings"

	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// greet prints the addresses of the node, its first administrator key and an example
// command. It prints to standard output, because the key must not be in the log.
func greet(term *terminal.IO, m *Main) {
	out := &strings.Builder{}
	fmt.Fprintf(out, "Rowmill %s\n", buildInfo().Version)
	m.describe(func(name, format string, args ...any) {
		fmt.Fprintf(out, "  %-8s %s\n", name, fmt.Sprintf(format, args...))
	})
	key := "YOUR_KEY"
	if m.API.FirstKey != "" {
		fmt.Fprintf(out, "\nThis is the administrator key. It is shown only now; keep it:\n\n  %s\n", m.API.FirstKey)
		key = m.API.FirstKey
	}
	if m.Settings.Cluster.Role != settings.EnginesOnly {
		fmt.Fprintf(out, "\nTry it:\n\n  export ROWMILL_SERVER=%s ROWMILL_API_KEY=%s\n  printf 'one\\ntwo\\n' | rowmill jobs submit - --format json --output -\n\n", m.Listeners.URL, key)
	}
	fmt.Fprint(term.Out, out.String())
}

// describe calls line for each address, storage and engine of the node, with a name and
// a text.
func (m *Main) describe(line func(name, format string, args ...any)) {
	line("API", "%s", m.Listeners.URL)
	if m.Settings.Cluster.Role != settings.EnginesOnly {
		line("console", "%s/console/", m.Listeners.URL)
	}
	if m.Settings.Store.Embedded() && m.Storage.folder != nil {
		line("data", "%s", m.Settings.Data)
	} else {
		line("records", "%s", m.Storage.recordsLocation())
		line("objects", "%s", m.Storage.objectsLocation())
	}
	if m.Members.Cluster != nil {
		self := m.Members.Cluster.Self()
		line("node", "%s, role %s; gossip on %s, other nodes' requests on %s", self.ID, m.Settings.Cluster.Role, m.Settings.Cluster.Listen, self.Peer)
	}
	if m.Listeners.AdminAddr != nil {
		line("admin", "http://%s (metrics, pprof)", m.Listeners.AdminAddr)
	}
	for _, e := range m.Engines.Engines {
		name := e.Name()
		if host := m.Engines.host(name); host != name {
			name += " (" + host + ")"
		}
		line("engine", "%s", name)
	}
	switch {
	case len(m.Engines.Engines) > 0:
	case m.Settings.Cluster.Role == settings.APIOnly:
		line("engine", "none: rows run on other nodes, cluster.role is api")
	default:
		line("engine", "NONE YET: jobs wait for a server at %s", strings.Join(m.Settings.Discover.Addresses, ", "))
	}
	if m.Engines.policy.simulates() {
		line("", "OUTPUTS ARE SIMULATED, made up: use --engine URL for real ones")
	}
}
