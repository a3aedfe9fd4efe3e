package sender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/webhook"
)

const (
	// placeValue names the value that holds how far the stream is.
	placeValue = "audit-stream"
	// late is for how long after its time an entry may be recorded and still be sent:
	// what nodes' clocks may differ where they are older than the stream, and what a
	// clock may step back in which Redis fails over.
	late = 2 * time.Minute
	// recordWithin bounds the recording of an entry of this node, whose time it is
	// given before, well below late.
	recordWithin = time.Minute
	// batchEntries and batchBytes bound a body: what any receiver takes.
	batchEntries = 500
	batchBytes   = 256 << 10
	// streamKind is the Content-Type of a body of lines.
	streamKind = "application/x-ndjson"
)

// streamPauses are those after attempts to send entries that were not taken. The last
// is that of all further ones: a receiver that is back is behind by a minute at most,
// and entries are sent until they are taken.
var streamPauses = webhook.Schedule{time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, 50 * time.Second}

// StreamStore is what a Stream needs of a store.
type StreamStore interface {
	store.Values
	store.Audit
	Time(ctx context.Context) (time.Time, error)
}

// StreamConfig is what a Stream needs.
type StreamConfig struct {
	Store   StreamStore
	URL     string
	Secrets []string // that sign, each by itself; the first first
	// Transport carries the requests.
	Transport http.RoundTripper
	// Reason, Nodes and Clock are as in Config.
	Reason     func(error) string
	Nodes      func() int
	Clock      func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// A Stream sends the audit record of a service to one receiver, entries in their
// order, until each is taken. What it has not sent is in the record, and how far it is
// in a value of the store, so that any node goes on where another ended; one sends at
// a time.
type Stream struct {
	StreamConfig
	courier courier
	secrets atomic.Pointer[[]string]
	wake    chan struct{}
	halted  chan struct{}
	halt    func()          // closes it
	life    context.Context // ends with Stop
	end     context.CancelFunc
	all     sync.WaitGroup

	attempts *prometheus.CounterVec
	entries  prometheus.Counter
	waiting  prometheus.Gauge

	trouble bool // the last round or attempt failed, which was said; of run alone
}

// A place is how far a stream is.
type place struct {
	Began time.Time `json:"began"` // entries from then on are sent
	At    time.Time `json:"at"`    // of the latest entry that was taken
	// Taken are the entries that were taken of late before At.
	Taken []takenEntry `json:"taken,omitempty"`
	// Until is until when nobody sends: one does, or the receiver took nothing.
	Until *time.Time `json:"until,omitempty"`
	Tries int        `json:"tries,omitempty"` // that failed, one after the other

	version int64 // of the value
}

type takenEntry struct {
	ID string    `json:"id"`
	At time.Time `json:"at"`
}

// NewStream prepares a Stream, which begins with what is recorded from now on where
// there was none before.
func NewStream(ctx context.Context, cfg StreamConfig) (*Stream, error) {
	if cfg.Nodes == nil {
		cfg.Nodes = func() int { return 1 }
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	s := &Stream{StreamConfig: cfg, wake: make(chan struct{}, 1), courier: newCourier(cfg.Transport, cfg.Clock, cfg.Reason)}
	s.SetSecrets(cfg.Secrets)
	if _, _, err := s.load(ctx); err != nil {
		return nil, err
	}
	metrics := promauto.With(cfg.Registerer)
	s.attempts = metrics.NewCounterVec(prometheus.CounterOpts{
		Name: "rowmill_audit_webhook_attempts_total", Help: "Attempts of this node to send entries of the audit record, by outcome: delivered, or again (they will be sent again).",
	}, []string{"outcome"})
	for _, outcome := range []string{outcomeDelivered, outcomeAgain} {
		s.attempts.WithLabelValues(outcome)
	}
	s.entries = metrics.NewCounter(prometheus.CounterOpts{
		Name: "rowmill_audit_webhook_entries_total", Help: "Entries of the audit record that this node has sent and that were taken.",
	})
	s.waiting = metrics.NewGauge(prometheus.GaugeOpts{
		Name: "rowmill_audit_webhook_waiting_seconds", Help: "Age of the oldest entry of the audit record that is to be sent and was not taken; 0 where none waits.",
	})
	s.life, s.end = context.WithCancel(context.Background())
	s.halted = make(chan struct{})
	s.halt = sync.OnceFunc(func() { close(s.halted) })
	return s, nil
}

// SetSecrets signs by these from now on.
func (s *Stream) SetSecrets(secrets []string) { s.secrets.Store(&secrets) }

// Start begins to send.
func (s *Stream) Start() { s.all.Go(s.run) }

// Stop breaks off what does not end soon, which any node sends again, and returns once
// nothing runs any more. Calling it twice is harmless.
func (s *Stream) Stop(context.Context) error {
	s.halt()
	grace := time.AfterFunc(stopGrace, s.end)
	defer grace.Stop()
	s.all.Wait()
	s.end()
	s.courier.client.CloseIdleConnections()
	return nil
}

// Of is a store that gives entries of the audit record its own time, by which they are
// sent, and has them be sent at once.
func (s *Stream) Of(records store.Store) store.Store { return streamed{records, s} }

type streamed struct {
	store.Store
	stream *Stream
}

func (s streamed) AppendAudit(ctx context.Context, entry store.AuditEntry) error {
	ctx, cancel := context.WithTimeout(ctx, recordWithin)
	defer cancel()
	now, err := s.Store.Time(ctx)
	if err != nil {
		return err
	}
	entry.At = now.UTC()
	if err := s.Store.AppendAudit(ctx, entry); err != nil {
		return err
	}
	select {
	case s.stream.wake <- struct{}{}:
	default: // it is about to look
	}
	return nil
}

func (s *Stream) run() {
	for {
		more, err := s.round()
		if err != nil && s.life.Err() == nil && s.first() {
			s.Logger.Warn("what is to be sent of the audit record cannot be read or noted, will be tried again", "err", err)
		}
		if !more {
			select {
			case <-s.wake:
			case <-s.halted:
			case <-time.After(pollInterval * time.Duration(max(s.Nodes(), pollers)) / pollers):
			}
		}
		select {
		case <-s.halted:
			return
		default:
		}
	}
}

// first notes a trouble and reports whether it is to be told: once until it is over.
func (s *Stream) first() bool {
	first := !s.trouble
	s.trouble = true
	return first
}

// round sends what waits, as far as one body holds it, and reports whether there may
// be more.
func (s *Stream) round() (more bool, err error) {
	p, now, err := s.load(s.life)
	if err != nil {
		return false, err
	}
	held, most := p.Until != nil && now.Before(*p.Until), batchEntries
	if held { // only how long the oldest waits is of use
		most = 1
	}
	batch, err := s.next(p, most)
	if err != nil {
		return false, err
	}
	if len(batch) == 0 {
		s.waiting.Set(0)
		return false, nil
	}
	s.waiting.Set(max(0, now.Sub(batch[0].At).Seconds()))
	if held {
		return false, nil
	}
	until := now.Add(takenFor)
	p.Until = &until
	if err := s.save(s.life, &p); err != nil {
		return false, unlessOthers(err)
	}
	body, err := lines(batch)
	if err != nil {
		return false, err
	}
	id := webhook.BatchID(batch[0].At, batch[0].ID, batch[len(batch)-1].ID, fmt.Sprint(len(batch)))
	attempt := s.courier.carry(s.life, letter{url: s.URL, kind: streamKind, id: id, body: body, sign: func(at time.Time) (string, error) {
		return webhook.SignAll(*s.secrets.Load(), id, at, body)
	}})
	took := webhook.Took(attempt)
	switch {
	case took:
		p.take(batch)
		s.attempts.WithLabelValues(outcomeDelivered).Inc()
		s.entries.Add(float64(len(batch)))
		if s.trouble {
			s.Logger.Info("the audit record is taken again")
		}
		s.trouble = false
	case s.life.Err() != nil: // broken off for no fault of the receiver's
		p.Until = nil
	default:
		p.Tries++
		pause, _ := streamPauses.Next(min(p.Tries, len(streamPauses)), rand.Float64())
		again := now.Add(time.Duration(attempt.Millis)*time.Millisecond + pause)
		p.Until = &again
		s.attempts.WithLabelValues(outcomeAgain).Inc()
		if s.first() {
			s.Logger.Warn("entries of the audit record were not taken, will be sent again", "status", attempt.Status, "reason", attempt.Error)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), recordTimeout)
	defer cancel()
	return took, unlessOthers(s.save(ctx, &p))
}

// take notes entries that were taken, and forgets those that cannot come again.
func (p *place) take(batch []store.AuditEntry) {
	for _, e := range batch {
		p.Taken = append(p.Taken, takenEntry{e.ID, e.At})
		if e.At.After(p.At) {
			p.At = e.At
		}
	}
	p.Taken = slices.DeleteFunc(p.Taken, func(t takenEntry) bool { return t.At.Before(p.At.Add(-late)) })
	p.Until, p.Tries = nil, 0
}

// next are the oldest entries that were not taken, as many as a body holds and most.
func (s *Stream) next(p place, most int) (batch []store.AuditEntry, err error) {
	taken := make(map[string]bool, len(p.Taken))
	for _, t := range p.Taken {
		taken[t.ID] = true
	}
	at, id := p.At.Add(-late), ""
	if at.Before(p.Began) {
		at = p.Began
	}
	limit := min(most+len(p.Taken), batchEntries) // of a page
	for size := 0; ; {
		page, err := s.Store.AuditAfter(s.life, at, id, limit)
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			at, id = e.At, e.ID
			if taken[e.ID] {
				continue
			}
			if size += len(e.Details) + 512; len(batch) > 0 && size > batchBytes { // 512: the rest of a line
				return batch, nil
			}
			if batch = append(batch, e); len(batch) == most {
				return batch, nil
			}
		}
		if len(page) < limit {
			return batch, nil
		}
	}
}

// lines are entries as the file of the audit record has them.
func lines(batch []store.AuditEntry) (string, error) {
	var text strings.Builder
	for _, e := range batch {
		line, err := json.Marshal(e)
		if err != nil {
			return "", fmt.Errorf("encode entry %s of the audit record: %w", e.ID, err)
		}
		text.Write(line)
		text.WriteByte('\n')
	}
	return text.String(), nil
}

// load returns how far the stream is, which it notes where it begins, and the time.
func (s *Stream) load(ctx context.Context) (p place, now time.Time, err error) {
	if now, err = s.Store.Time(ctx); err != nil {
		return place{}, now, err
	}
	for {
		doc, version, err := s.Store.GetValue(ctx, placeValue)
		if err == nil {
			if err := json.Unmarshal(doc, &p); err != nil {
				return place{}, now, fmt.Errorf("read how far the audit record was sent: %w", err)
			}
			p.version = version
			return p, now, nil
		}
		if !errors.Is(err, rowmill.ErrNotFound) {
			return place{}, now, err
		}
		if err := s.save(ctx, &place{Began: now.UTC(), At: now.UTC()}); err != nil && !errors.Is(err, rowmill.ErrConflict) {
			return place{}, now, err
		}
	}
}

// save writes how far the stream is; rowmill.ErrConflict where another node has since
// it was loaded.
func (s *Stream) save(ctx context.Context, p *place) error {
	version, err := store.RewriteValue(ctx, s.Store, placeValue, *p, p.version)
	if err == nil {
		p.version = version
	}
	return err
}
