// Package sender sends the deliveries of webhooks. Each node runs one Sender. A sender
// claims a delivery in its record for as long as an attempt may last, so that two nodes
// do not send it at the same time. The deliveries of a node that stops are due again at
// once; after a crash they are due when the claims expire. Any node sends them then.
package sender

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rowmill/rowmill/http/webhook"
	"github.com/rowmill/rowmill/store"
)

const (
	// pollInterval is the time between two polls for due deliveries. In a cluster of
	// more than pollers nodes it grows in proportion, so that the store gets at most
	// pollers polls a second in all: any node may send any delivery. A node sends a
	// delivery that it creates itself at once.
	pollInterval = time.Second
	pollers      = 50
	// maxParallel limits the concurrent attempts of a node, at most one per endpoint. 16
	// open requests cost almost nothing, even to slow receivers.
	maxParallel = 16
	// attemptTimeout limits an attempt, as the specification suggests.
	attemptTimeout = 15 * time.Second
	// claimTTL is how long a claim on a delivery lasts: one attempt, and time for slow
	// store calls before and after it.
	claimTTL = 2 * attemptTimeout
	// stopGrace is how long running attempts may continue when the node stops. Another
	// node repeats longer ones.
	stopGrace = 2 * time.Second
	// dropEvery is the time between two removals of old records, and dropBatch the
	// largest number removed at once.
	dropEvery = time.Minute
	dropBatch = 500
)

// Outcomes of attempts, as metric labels.
const (
	outcomeDelivered = "delivered"
	outcomeAgain     = "again"
	outcomeFailed    = "failed"
)

// Config configures a Sender.
type Config struct {
	Store store.Store
	// Transport sends the requests. It must refuse forbidden addresses.
	Transport http.RoundTripper
	// Reason explains why a request got no answer, without its URL.
	Reason func(error) string
	// Schedule holds the pauses between attempts. Default: webhook.DefaultSchedule.
	Schedule webhook.Schedule
	// Nodes returns the number of nodes that share the store, this node included.
	// Default: 1.
	Nodes func() int
	// Clock gives the times in requests and their log. Default: time.Now.
	Clock      func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// A Sender sends deliveries that are due.
type Sender struct {
	*loop
	outcomes *prometheus.CounterVec

	mu   sync.Mutex
	busy map[string]bool // endpoints with a running attempt

	pollFailed bool // the last poll failed and was logged; used by run only
	dropped    time.Time
}

// New returns a Sender. Try may be called at once; nothing else runs before Start.
func New(cfg Config) *Sender {
	s := &Sender{loop: newLoop(cfg), busy: map[string]bool{}}
	s.outcomes = promauto.With(cfg.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "rowmill_webhook_attempts_total", Help: "Attempts to send an event to a webhook, by outcome: delivered, again (it will be tried again) or failed (for good).",
	}, []string{"outcome"})
	for _, outcome := range []string{outcomeDelivered, outcomeAgain, outcomeFailed} {
		s.outcomes.WithLabelValues(outcome)
	}
	return s
}

// Start begins to send.
func (s *Sender) Start() { s.running.Go(s.run) }

func (s *Sender) run() {
	for s.stopping.Err() == nil {
		if err := s.poll(); err != nil && !s.pollFailed {
			s.pollFailed = true
			s.Logger.Warn("reading the due webhook deliveries failed, retrying", "err", err)
		} else if err == nil {
			s.pollFailed = false
		}
		s.pause()
	}
}

// poll starts attempts for due deliveries, up to parallel at once.
func (s *Sender) poll() error {
	now, err := s.Store.Time(s.ctx)
	if err != nil {
		return err
	}
	if now.Sub(s.dropped) >= dropEvery {
		n, err := s.Store.DropDeliveries(s.ctx, now, dropBatch)
		if err != nil {
			return err
		}
		if n < dropBatch {
			s.dropped = now
		}
	}
	s.mu.Lock()
	busy := len(s.busy)
	s.mu.Unlock()
	if busy >= maxParallel {
		return nil
	}
	// Busy endpoints may have further due deliveries at the head of the list, so ask
	// for that many more.
	found, err := s.Store.DueDeliveries(s.ctx, now, maxParallel+busy)
	if err != nil {
		return err
	}
	for _, d := range found {
		if !s.enter(d.Endpoint) {
			continue
		}
		s.running.Go(func() {
			err := s.handle(d, now)
			s.leave(d.Endpoint)
			if err == nil {
				s.Wake() // the endpoint may have more deliveries
			} else {
				s.Logger.Warn("recording a webhook delivery failed, it may be sent again", "delivery", d.ID, "webhook", d.Endpoint, "err", err)
			}
		})
	}
	return nil
}

func (s *Sender) enter(endpoint string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[endpoint] || len(s.busy) >= maxParallel {
		return false
	}
	s.busy[endpoint] = true
	return true
}

func (s *Sender) leave(endpoint string) {
	s.mu.Lock()
	delete(s.busy, endpoint)
	s.mu.Unlock()
}
