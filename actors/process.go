package actors

import (
	"log/slog"
	"sync"

	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/actors/ingest"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/actors/work"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// A process is what the actors of a node have in common, and the System with them.
type process struct {
	cfg       Config
	metrics   *metrics
	log       *slog.Logger
	budget    *work.Budget
	slots     slots
	published *published
	storage   *storage.Watch
	downloads *ingest.Downloads
	errands   *commit.Errands // of owners elsewhere
	counters  *prompt.Counters
	transport *transport
	address   string          // of this node for others; empty on a single node
	all       *sync.WaitGroup // tasks and keepers
}

// nameOf is the name of the node at an address; the address where it has left.
func (p *process) nameOf(address string) string {
	if address == "" {
		return p.cfg.Node
	}
	for _, m := range p.transport.others() {
		if m.Peer == address {
			return m.Node
		}
	}
	return address
}
