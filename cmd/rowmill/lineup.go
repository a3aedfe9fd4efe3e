package main

import (
	"fmt"
	"strings"
	"sync"

	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/discover"
)

// A lineup decides which of the servers that were found are used. A node's
// outputs are all real or all simulated: the first server in use decides for
// as long as the node runs. The zero value is undecided. Its methods are safe
// for concurrent use.
type lineup struct {
	simulatedNever bool // set before use

	mu        sync.Mutex
	decided   bool
	simulated bool
	unused    []unusedServer
}

// An unusedServer was found and is not used.
type unusedServer struct {
	discover.Found
	reason string
}

// settle says what a server in use is. Only the first one counts.
func (l *lineup) settle(simulated bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.decided {
		l.decided, l.simulated = true, simulated
	}
}

// simulates reports whether the servers in use are known to be simulated.
func (l *lineup) simulates() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.decided && l.simulated
}

// refuse returns why a server cannot be used, with the remedy, or nothing.
func (l *lineup) refuse(f discover.Found) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	reason := ""
	switch {
	case f.Info.Simulated && l.simulatedNever:
		reason = "it is simulated, and simulator.enabled is never"
	case !l.decided || l.simulated == f.Info.Simulated:
		return ""
	case l.simulated:
		reason = fmt.Sprintf("it is real, but this node's outputs are simulated and the two are never mixed; to use it, restart the node, with --engine http://%s to be sure", f.Address)
	default:
		reason = "it is simulated, but this node's outputs are real and the two are never mixed"
	}
	l.unused = append(l.unused, unusedServer{f, reason})
	return reason
}

// passedOver returns the servers that were found and are not used.
func (l *lineup) passedOver() []unusedServer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]unusedServer(nil), l.unused...)
}

// identity is what a server is, for a person.
func identity(info engine.Info) string {
	text := strings.TrimSpace(info.Kind + " " + info.Version)
	if info.Simulated {
		text = "SIMULATED, outputs are made up; " + text
	}
	return text
}

// served are the ids of the catalog's models that a server serves, by whatever
// names.
func (m *Main) served(info engine.Info) []string {
	var ids []string
	for _, model := range m.Catalog.All() {
		if _, serves := info.Find(model); serves {
			ids = append(ids, model.ID)
		}
	}
	return ids
}

// serves is what a server serves, for a person.
func (m *Main) serves(info engine.Info) string {
	if ids := m.served(info); len(ids) > 0 {
		return terminal.Few(ids)
	}
	names := make([]string, len(info.Models))
	for i, served := range info.Models {
		names[i] = served.Name
	}
	return fmt.Sprintf("none of the catalog's models (its own: %s)", terminal.Few(names))
}
