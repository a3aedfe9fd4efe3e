package main

import (
	"fmt"
	"sync"

	"github.com/rowmill/rowmill/engine/discover"
)

// A simulationPolicy decides whether a node uses a server that it finds. The outputs of a node
// are all real or all simulated: the first server in use decides this until the node
// stops. The zero value is undecided. The methods are safe for concurrent use.
type simulationPolicy struct {
	simulatedNever bool // refuse every simulated server; set before the first call of a method

	mu        sync.Mutex
	decided   bool
	simulated bool
	unused    []unusedServer
}

// An unusedServer is a server that the node has found but does not use, with the
// reason.
type unusedServer struct {
	discover.FoundServer
	reason string
}

// decideOnce sets whether the outputs of this node are simulated. Only the first call has
// an effect.
func (p *simulationPolicy) decideOnce(simulated bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.decided {
		p.decided, p.simulated = true, simulated
	}
}

// isSimulating reports whether the outputs of this node are simulated; false before
// decideOnce.
func (p *simulationPolicy) isSimulating() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.decided && p.simulated
}

// refusalReason returns why this node does not use a found server, with the remedy, and adds
// the server to the unused servers. It returns an empty text if the node can use the
// server.
func (p *simulationPolicy) refusalReason(f discover.FoundServer) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	reason := ""
	switch {
	case f.Info.Simulated && p.simulatedNever:
		reason = "it is simulated, and simulator.enabled is never"
	case !p.decided || p.simulated == f.Info.Simulated:
		return ""
	case p.simulated:
		reason = fmt.Sprintf("it is real, but this node's outputs are simulated and the two are never mixed; to use it, restart the node, with --engine http://%s to be sure", f.Address)
	default:
		reason = "it is simulated, but this node's outputs are real and the two are never mixed"
	}
	p.unused = append(p.unused, unusedServer{f, reason})
	return reason
}

// unusedServers returns the servers that the node has found but does not use.
func (p *simulationPolicy) unusedServers() []unusedServer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]unusedServer(nil), p.unused...)
}
