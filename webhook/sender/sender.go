// Package sender sends the deliveries of webhooks. Each node has one; that two do not
// send the same delivery is a matter of its record, which is taken for as long as an
// attempt may last. What ends with the process is taken again by whoever comes next.
package sender

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rowmill/rowmill/webhook"
)

const (
	// pollInterval is the time between looks for what is due, and in a cluster of
	// more than pollers nodes longer in proportion, so that the store is asked no more
	// than pollers times a second: any node sends what is due. What this node makes
	// due itself is sent at once.
	pollInterval = time.Second
	pollers      = 50
	// parallel bounds the attempts of a node at a time, one of each endpoint: as
	// many as cost nothing, however slow their receivers are.
	parallel = 16
	// attemptTimeout bounds an attempt, as the specification suggests.
	attemptTimeout = 15 * time.Second
	// takenFor is for how long a delivery is one node's before another may take it: an
	// attempt, and a store that is slow before and after it.
	takenFor = 2 * attemptTimeout
	// stopGrace is for how long attempts may go on when the node stops; what takes
	// longer is sent again by the next.
	stopGrace = 2 * time.Second
	// dropEvery is the time between removals of old records, and dropBatch how
	// many go at a time.
	dropEvery = time.Minute
	dropBatch = 500
)

// The outcomes of attempts in metrics.
const (
	outcomeDelivered = "delivered"
	outcomeAgain     = "again"
	outcomeFailed    = "failed"
)

// Config is what a Sender needs.
type Config struct {
	Store webhook.Store
	// Transport carries the requests. It is what keeps them away from where
	// nothing may be sent.
	Transport http.RoundTripper
	// Reason says why a request got no answer, in words that quote no URL.
	Reason func(error) string
	// Schedule is when a delivery is sent again. Default webhook.DefaultSchedule.
	Schedule webhook.Schedule
	// Nodes is how many nodes send from the store, this one included. Nil: 1.
	Nodes func() int
	// Clock is the time that receivers are told. Default time.Now.
	Clock      func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// A Sender sends what is due.
type Sender struct {
	Config
	courier  courier
	outcomes *prometheus.CounterVec
	wake     chan struct{}
	halted   chan struct{}
	halt     func()          // closes it
	life     context.Context // ends with Stop
	end      context.CancelFunc
	all      sync.WaitGroup

	mu   sync.Mutex
	busy map[string]bool // endpoints to which something is being sent

	away    bool // the store did not answer; of run alone
	dropped time.Time
}

// New prepares a Sender. Try may be called from then on; nothing else runs before
// Start.
func New(cfg Config) *Sender {
	if cfg.Schedule == nil {
		cfg.Schedule = webhook.DefaultSchedule()
	}
	if cfg.Nodes == nil {
		cfg.Nodes = func() int { return 1 }
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	s := &Sender{Config: cfg, wake: make(chan struct{}, 1), busy: map[string]bool{}, courier: newCourier(cfg.Transport, cfg.Clock, cfg.Reason)}
	s.outcomes = promauto.With(cfg.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "rowmill_webhook_attempts_total", Help: "Attempts to send an event to a webhook, by outcome: delivered, again (it will be tried again) or failed (for good).",
	}, []string{"outcome"})
	for _, outcome := range []string{outcomeDelivered, outcomeAgain, outcomeFailed} {
		s.outcomes.WithLabelValues(outcome)
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.halted = make(chan struct{})
	s.halt = sync.OnceFunc(func() { close(s.halted) })
	return s
}

// Start begins to send.
func (s *Sender) Start() { s.all.Go(s.run) }

// Stop begins nothing more, breaks off what does not end soon, which is due again
// then, and returns once nothing runs any more. Calling it twice is harmless.
func (s *Sender) Stop(context.Context) error {
	s.halt()
	grace := time.AfterFunc(stopGrace, s.end)
	defer grace.Stop()
	s.all.Wait()
	s.end()
	return nil
}

// Wake has what is due be looked for now.
func (s *Sender) Wake() {
	select {
	case s.wake <- struct{}{}:
	default: // it is about to look
	}
}

func (s *Sender) run() {
	for !s.halting() {
		if err := s.round(); err != nil && !s.away {
			s.away = true
			s.Logger.Warn("events of webhooks that are due cannot be read, will be tried again", "err", err)
		} else if err == nil {
			s.away = false
		}
		select {
		case <-s.halted:
		case <-s.wake:
		case <-time.After(pollInterval * time.Duration(max(s.Nodes(), pollers)) / pollers):
		}
	}
}

func (s *Sender) halting() bool {
	select {
	case <-s.halted:
		return true
	default:
		return false
	}
}

// round begins to send what is due, as far as there is room.
func (s *Sender) round() error {
	now, err := s.Store.Time(s.life)
	if err != nil {
		return err
	}
	if now.Sub(s.dropped) >= dropEvery {
		n, err := s.Store.DropDeliveries(s.life, now, dropBatch)
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
	if busy >= parallel {
		return nil
	}
	// Those that are busy may be due with another delivery, and stand first.
	found, err := s.Store.DueDeliveries(s.life, now, parallel+busy)
	if err != nil {
		return err
	}
	for _, d := range found {
		if !s.enter(d.Endpoint) {
			continue
		}
		s.all.Go(func() {
			err := s.handle(d, now)
			s.leave(d.Endpoint)
			if err == nil {
				s.Wake() // the endpoint may have more
			} else {
				s.Logger.Warn("an event of a webhook could not be recorded, it may be sent again", "delivery", d.ID, "webhook", d.Endpoint, "err", err)
			}
		})
	}
	return nil
}

func (s *Sender) enter(endpoint string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[endpoint] || len(s.busy) >= parallel {
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
