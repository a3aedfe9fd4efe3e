package actors

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/rowmill/rowmill/actors/ingest"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/actors/work"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// A process is what the actors of a node have in common.
type process struct {
	cfg       Config
	metrics   *metrics
	log       *slog.Logger
	budget    *work.Budget
	slots     slots
	crowd     *atomic.Pointer[crowd]
	storage   *storage.Watch
	downloads *ingest.Downloads
	counters  *prompt.Counters
	transport *transport
	address   string          // of this node for others; empty on a single node
	all       *sync.WaitGroup // tasks and keepers
}
