package sender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/webhook"
	"github.com/rowmill/rowmill/store"
)

const (
	// positionValue is the name of the stored value that holds the position of the
	// stream.
	positionValue = "audit-stream"
	// lateTolerance is for audit entries that are stored late: an entry is still sent if it
	// appears in the store up to this long after the time in the entry. This covers clock
	// differences between nodes of an older version, and a clock that steps back when Redis
	// fails over.
	lateTolerance = 2 * time.Minute
	// appendTimeout is the timeout for setting an entry's time and storing the entry. It is
	// well below lateTolerance.
	appendTimeout = time.Minute
	// batchEntries and batchBytes limit the entries and the bytes of a body, to a size that
	// any receiver accepts.
	batchEntries = 500
	batchBytes   = 256 << 10
	// streamContentType is the Content-Type of a body with one entry per line.
	streamContentType = "application/x-ndjson"
)

// streamPauses has the pauses after failed attempts of an AuditStream. Entries are sent
// until the receiver accepts them, and the last pause repeats. So a receiver that works
// again gets its next request within a minute.
var streamPauses = webhook.RetrySchedule{time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, 50 * time.Second}

// AuditStreamConfig configures an AuditStream. Config.Transport may use any address.
// Config.Schedule is not used, because an AuditStream pauses by streamPauses.
type AuditStreamConfig struct {
	Config
	URL     string
	Secrets []string // a body gets one signature per secret, in this order
}

// An AuditStream sends the entries of the audit record to one receiver, in order. It repeats a
// request until the receiver accepts the entries. The position in the record is a value in
// the store, so that any node continues where another node stopped. One node sends at a
// time.
type AuditStream struct {
	*pollLoop
	url     string
	secrets atomic.Pointer[[]string]

	attempts *prometheus.CounterVec
	entries  prometheus.Counter
	waiting  prometheus.Gauge

	failing bool // the last step failed and was logged; used by run only
}

// A streamPosition says which entries of the audit record the receiver has accepted.
type streamPosition struct {
	Began time.Time `json:"began"` // the stream starts with entries of this time
	At    time.Time `json:"at"`    // time of the latest accepted entry
	// Sent has the accepted entries of the last lateTolerance before At.
	Sent []sentEntry `json:"taken,omitempty"`
	// Until is the earliest time of the next attempt. It is set while a node sends, and
	// after a failed attempt.
	Until *time.Time `json:"until,omitempty"`
	Tries int        `json:"tries,omitempty"` // failed attempts in a row

	version int64 // version of the stored value
}

type sentEntry struct {
	ID string    `json:"id"`
	At time.Time `json:"at"`
}

// NewAuditStream returns an AuditStream. If the store has no position yet, the stream sends
// only entries that are recorded from now on.
func NewAuditStream(ctx context.Context, cfg AuditStreamConfig) (*AuditStream, error) {
	s := &AuditStream{pollLoop: newLoop(cfg.Config), url: cfg.URL}
	s.SetSecrets(cfg.Secrets)
	if _, _, err := s.loadPosition(ctx); err != nil {
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
		Name: "rowmill_audit_webhook_entries_total", Help: "Entries of the audit record that this node has sent and the receiver has accepted.",
	})
	s.waiting = metrics.NewGauge(prometheus.GaugeOpts{
		Name: "rowmill_audit_webhook_waiting_seconds", Help: "Age of the oldest entry of the audit record that the receiver has not accepted yet; 0 if none waits.",
	})
	return s, nil
}

// SetSecrets replaces the signing secrets from the next attempt on.
func (s *AuditStream) SetSecrets(secrets []string) { s.secrets.Store(&secrets) }

// Start starts the goroutine that sends audit entries.
func (s *AuditStream) Start() { s.running.Go(s.run) }

// WrapStore returns a store that wraps records and changes only AppendAudit: the new
// AppendAudit gives each entry the store's time, and wakes the stream, which sends
// entries in the order of these times.
func (s *AuditStream) WrapStore(records store.Store) store.Store { return auditStreamStore{records, s} }

type auditStreamStore struct {
	store.Store
	stream *AuditStream
}

func (s auditStreamStore) AppendAudit(ctx context.Context, entry store.AuditEntry) error {
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	now, err := s.Store.Time(ctx)
	if err != nil {
		return err
	}
	entry.At = now.UTC()
	if err := s.Store.AppendAudit(ctx, entry); err != nil {
		return err
	}
	s.stream.Wake()
	return nil
}

func (s *AuditStream) run() {
	for s.stopping.Err() == nil {
		more, err := s.sendNextBatch()
		if err != nil && s.ctx.Err() == nil && s.markFailing() {
			s.Logger.Warn("reading the audit record or storing the stream position failed, retrying", "err", err)
		}
		if !more {
			s.waitForNextPoll()
		}
	}
}

// markFailing stores that a step failed, and reports whether to log the failure: only
// the first failure after a success is logged.
func (s *AuditStream) markFailing() bool {
	first := !s.failing
	s.failing = true
	return first
}

// sendNextBatch sends one body with the oldest entries that wait. more is true if further
// entries may wait.
func (s *AuditStream) sendNextBatch() (more bool, err error) {
	p, now, err := s.loadPosition(s.ctx)
	if err != nil {
		return false, err
	}
	held, most := p.Until != nil && now.Before(*p.Until), batchEntries
	if held { // read only the oldest entry, for the metric of its age
		most = 1
	}
	batch, err := s.readNextBatch(p, most)
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
	until := now.Add(claimTTL)
	p.Until = &until
	if err := s.savePosition(s.ctx, &p); err != nil {
		return false, ignoreLostClaim(err)
	}
	body, err := encodeJSONLines(batch)
	if err != nil {
		return false, err
	}
	id := webhook.DeriveMessageID(batch[0].At, batch[0].ID, batch[len(batch)-1].ID, fmt.Sprint(len(batch)))
	attempt := s.poster.post(s.ctx, signedRequest{url: s.url, contentType: streamContentType, id: id, body: body, sign: func(at time.Time) (string, error) {
		return webhook.SignAll(*s.secrets.Load(), id, at, body)
	}})
	accepted := webhook.IsSuccess(attempt)
	switch {
	case accepted:
		p.markSent(batch)
		s.attempts.WithLabelValues(outcomeDelivered).Inc()
		s.entries.Add(float64(len(batch)))
		if s.failing {
			s.Logger.Info("the receiver of the audit record accepts entries again")
		}
		s.failing = false
	case s.ctx.Err() != nil: // this node cancelled the attempt
		p.Until = nil
	default:
		p.Tries++
		pause, _ := streamPauses.PauseAfter(min(p.Tries, len(streamPauses)), rand.Float64())
		again := now.Add(time.Duration(attempt.Millis)*time.Millisecond + pause)
		p.Until = &again
		s.attempts.WithLabelValues(outcomeAgain).Inc()
		if s.markFailing() {
			s.Logger.Warn("the receiver of the audit record did not accept entries, retrying", "status", attempt.Status, "reason", attempt.Error)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), recordTimeout)
	defer cancel()
	return accepted, ignoreLostClaim(s.savePosition(ctx, &p))
}

// markSent adds accepted entries to the position, and removes entries that are too old
// to be read from the store again.
func (p *streamPosition) markSent(batch []store.AuditEntry) {
	for _, e := range batch {
		p.Sent = append(p.Sent, sentEntry{e.ID, e.At})
		if e.At.After(p.At) {
			p.At = e.At
		}
	}
	p.Sent = slices.DeleteFunc(p.Sent, func(t sentEntry) bool { return t.At.Before(p.At.Add(-lateTolerance)) })
	p.Until, p.Tries = nil, 0
}

// readNextBatch returns the oldest entries that the receiver has not accepted: as many as fit
// into one body, and not more than maxEntries.
func (s *AuditStream) readNextBatch(p streamPosition, maxEntries int) (batch []store.AuditEntry, err error) {
	sent := make(map[string]bool, len(p.Sent))
	for _, t := range p.Sent {
		sent[t.ID] = true
	}
	at, id := p.At.Add(-lateTolerance), ""
	if at.Before(p.Began) {
		at = p.Began
	}
	for size := 0; ; {
		page, err := s.Store.AuditAfter(s.ctx, at, id, maxEntries, sent)
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			at, id = e.At, e.ID
			if size += len(e.Details) + 512; len(batch) > 0 && size > batchBytes { // 512: the other fields of a line
				return batch, nil
			}
			if batch = append(batch, e); len(batch) == maxEntries {
				return batch, nil
			}
		}
		if len(page) < maxEntries {
			return batch, nil
		}
	}
}

// encodeJSONLines encodes entries as JSON Lines, in the format of the audit file.
func encodeJSONLines(batch []store.AuditEntry) (string, error) {
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

// loadPosition returns the stored position of the stream, and the store's time. If the
// store has no position, loadPosition stores a position at the current time.
func (s *AuditStream) loadPosition(ctx context.Context) (p streamPosition, now time.Time, err error) {
	if now, err = s.Store.Time(ctx); err != nil {
		return streamPosition{}, now, err
	}
	for {
		doc, version, err := s.Store.GetValue(ctx, positionValue)
		if err == nil {
			if err := json.Unmarshal(doc, &p); err != nil {
				return streamPosition{}, now, fmt.Errorf("read the position of the audit stream: %w", err)
			}
			p.version = version
			return p, now, nil
		}
		if !errors.Is(err, rowmill.ErrNotFound) {
			return streamPosition{}, now, err
		}
		if err := s.savePosition(ctx, &streamPosition{Began: now.UTC(), At: now.UTC()}); err != nil && !errors.Is(err, rowmill.ErrConflict) {
			return streamPosition{}, now, err
		}
	}
}

// savePosition stores the position of the stream. It returns rowmill.ErrConflict if another
// node has stored a position after loadPosition.
func (s *AuditStream) savePosition(ctx context.Context, p *streamPosition) error {
	version, err := store.RewriteValue(ctx, s.Store, positionValue, *p, p.version)
	if err == nil {
		p.version = version
	}
	return err
}
