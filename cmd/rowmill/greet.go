package main

import (
	"fmt"
	"strings"

	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// printStartBanner prints the addresses of the node, its first administrator key and an example
// command. On a terminal it also prints a login link of the console. It prints to standard
// output, because the key and the link must not be in the log.
func printStartBanner(term *terminal.IO, m *NodeProcess) {
	out := &strings.Builder{}
	fmt.Fprintf(out, "Rowmill %s\n", readBuildMetadata().Version)
	m.writeSummaryLines(func(name, format string, args ...any) {
		fmt.Fprintf(out, "  %-8s %s\n", name, fmt.Sprintf(format, args...))
	})
	key := "YOUR_KEY"
	if m.API.FirstKey != "" {
		fmt.Fprintf(out, "\nThis is the administrator key. It is shown only now; keep it:\n\n  %s\n", m.API.FirstKey)
		key = m.API.FirstKey
	}
	if m.Settings.Cluster.Role != settings.EnginesOnly {
		if admin := m.API.adminKey(); term.OutWidth > 0 && admin != "" {
			fmt.Fprintf(out, "\nThis link logs your browser in to the console, once within 5 minutes:\n\n  %s/console/#login=%s\n", m.Listeners.URL, m.API.API.CreateLoginToken(admin))
		}
		fmt.Fprintf(out, "\nTry it:\n\n  export ROWMILL_SERVER=%s ROWMILL_API_KEY=%s\n  printf 'one\\ntwo\\n' | rowmill jobs submit - --format json --output -\n\n", m.Listeners.URL, key)
	}
	fmt.Fprint(term.Out, out.String())
}

// writeSummaryLines calls writeLine for each address, storage and engine of the node, with
// a name and a text.
func (m *NodeProcess) writeSummaryLines(writeLine func(name, format string, args ...any)) {
	writeLine("API", "%s", m.Listeners.URL)
	if m.Settings.Cluster.Role != settings.EnginesOnly {
		writeLine("console", "%s/console/", m.Listeners.URL)
	}
	if m.Settings.Store.IsEmbedded() && m.Storage.folder != nil {
		writeLine("data", "%s", m.Settings.Data)
	} else {
		writeLine("records", "%s", m.Storage.recordsLocation())
		writeLine("objects", "%s", m.Storage.objectsLocation())
	}
	if m.Members.Cluster != nil {
		self := m.Members.Cluster.Self()
		writeLine("node", "%s, role %s; gossip on %s, other nodes' requests on %s", self.ID, m.Settings.Cluster.Role, m.Settings.Cluster.Listen, self.Peer)
	}
	if m.Listeners.AdminAddr != nil {
		writeLine("admin", "http://%s (metrics, pprof)", m.Listeners.AdminAddr)
	}
	for _, e := range m.Engines.Engines {
		name := e.Name()
		if host := m.Engines.engineHost(name); host != name {
			name += " (" + host + ")"
		}
		writeLine("engine", "%s", name)
	}
	switch {
	case len(m.Engines.Engines) > 0:
	case m.Settings.Cluster.Role == settings.APIOnly:
		writeLine("engine", "none: rows run on other nodes, cluster.role is api")
	default:
		writeLine("engine", "NONE YET: jobs wait for a server at %s", strings.Join(m.Settings.Discover.Addresses, ", "))
	}
	if m.Engines.policy.isSimulating() {
		writeLine("", "OUTPUTS ARE SIMULATED, made up: use --engine URL for real ones")
	}
}
