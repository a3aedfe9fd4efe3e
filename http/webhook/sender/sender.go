// Package sender sends the deliveries of webhooks. Each node runs one Sender. Before an
// attempt, the Sender claims the delivery in the delivery's record for as long as an
// attempt may last, so that two nodes do not send it at the same time. If a node stops,
// other nodes may send its deliveries at once; if it crashes, they may send them when its
// claims expire.
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
	// pollInterval is the time between two polls of a node for due deliveries. With more
	// than 50 nodes (pollers) the interval grows in proportion, so that the store gets at
	// most 50 polls a second in all. That is enough, because any node may send any
	// delivery, and a node sends the deliveries that it creates at once.
	pollInterval = time.Second
	pollers      = 50
	// maxParallel limits the concurrent attempts of a node, with at most one attempt per
	// endpoint. 16 open requests cost almost nothing, even if the receivers are slow.
	maxParallel = 16
	// attemptTimeout is the timeout of an attempt, as the specification Standard Webhooks
	// suggests.
	attemptTimeout = 15 * time.Second
	// claimTTL is how long a claim on a delivery lasts: one attempt, and time for slow
	// store calls before and after it.
	claimTTL = 2 * attemptTimeout
	// stopGrace is how long running attempts may continue when the node stops. Then they
	// are cancelled, and another node repeats them.
	stopGrace = 2 * time.Second
	// dropEvery is the time between two removals of old delivery records. dropBatch is the
	// largest number of records removed at once.
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
	// Transport sends the requests to receivers. It must refuse forbidden addresses.
	Transport http.RoundTripper
	// Reason returns a text that explains why a request got no answer. The text must not
	// contain the URL, which may hold credentials.
	Reason func(error) string
	// Schedule has the pauses between attempts. Default: webhook.DefaultSchedule.
	Schedule webhook.RetrySchedule
	// Nodes returns the number of nodes that share the store, this node included.
	// Default: 1.
	Nodes func() int
	// Clock returns the current time, for the times in requests and in the log of
	// attempts. Default: time.Now.
	Clock      func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// A Sender sends the deliveries whose next attempt is due.
type Sender struct {
	*pollLoop
	outcomes *prometheus.CounterVec

	mu   sync.Mutex
	busy map[string]bool // set of the ids of endpoints with a running attempt

	pollFailed bool      // the last poll failed and was logged; used by run only
	dropped    time.Time // when the old records were last removed; used by run only
}

// New returns a Sender. SendOnce may be called before Start; nothing else runs before
// Start.
func New(cfg Config) *Sender {
	s := &Sender{pollLoop: newLoop(cfg), busy: map[string]bool{}}
	s.outcomes = promauto.With(cfg.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "rowmill_webhook_attempts_total", Help: "Attempts to send an event to a webhook, by outcome: delivered, again (it will be tried again) or failed (for good).",
	}, []string{"outcome"})
	for _, outcome := range []string{outcomeDelivered, outcomeAgain, outcomeFailed} {
		s.outcomes.WithLabelValues(outcome)
	}
	return s
}

// Start starts the goroutine that sends deliveries.
func (s *Sender) Start() { s.running.Go(s.run) }

func (s *Sender) run() {
	for s.stopping.Err() == nil {
		if err := s.poll(); err != nil && !s.pollFailed {
			s.pollFailed = true
			s.Logger.Warn("polling the store for due webhook deliveries failed, retrying", "err", err)
		} else if err == nil {
			s.pollFailed = false
		}
		s.waitForNextPoll()
	}
}

// poll removes old delivery records, and starts attempts for due deliveries, up to
// maxParallel at once.
func (s *Sender) poll() error {
	now, err := s.Store.Time(s.ctx)
	if err != nil {
		return err
	}
	if now.Sub(s.dropped) >= dropEvery {
		n, err := s.Store.DropExpiredDeliveries(s.ctx, now, dropBatch)
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
	// The first due deliveries may belong to busy endpoints and are then skipped, so ask
	// for one more delivery per busy endpoint.
	found, err := s.Store.DueDeliveries(s.ctx, now, maxParallel+busy)
	if err != nil {
		return err
	}
	for _, d := range found {
		if !s.tryMarkBusy(d.Endpoint) {
			continue
		}
		s.running.Go(func() {
			err := s.attemptDelivery(d, now)
			s.markFree(d.Endpoint)
			if err == nil {
				s.Wake() // the endpoint may have more deliveries
			} else {
				s.Logger.Warn("claiming a webhook delivery or storing its outcome failed, the event may be sent again", "delivery", d.ID, "webhook", d.Endpoint, "err", err)
			}
		})
	}
	return nil
}

// tryMarkBusy marks an endpoint as having a running attempt. It returns false if the
// endpoint has one already, or if maxParallel attempts run.
func (s *Sender) tryMarkBusy(endpoint string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[endpoint] || len(s.busy) >= maxParallel {
		return false
	}
	s.busy[endpoint] = true
	return true
}

// markFree removes the mark that tryMarkBusy set.
func (s *Sender) markFree(endpoint string) {
	s.mu.Lock()
	delete(s.busy, endpoint)
	s.mu.Unlock()
}
