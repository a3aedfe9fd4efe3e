package main

import (
	"fmt"
	"sync"

	"github.com/rowmill/rowmill/engine/discover"
)

// A simPolicy decides which of the found servers are used. The outputs of a node are
// all real or all simulated: the first server in use decides for as long as the node
// runs. The zero value has not decided. Its methods are safe for concurrent use.
type simPolicy struct {
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

// decide records whether a server in use is simulated. Only the first call counts.
func (p *simPolicy) decide(simulated bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.decided {
		p.decided, p.simulated = true, simulated
	}
}

// simulates reports whether the servers in use are known to be simulated.
func (p *simPolicy) simulates() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.decided && p.simulated
}

// refuse returns why a server cannot be used, with the remedy. An empty text means that
// the server can be used.
func (p *simPolicy) refuse(f discover.Found) string {
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

// unusedServers returns the servers that were found and are not used.
func (p *simPolicy) unusedServers() []unusedServer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]unusedServer(nil), p.unused...)
}
