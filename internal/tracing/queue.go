package tracing

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/rowmill/rowmill/internal/retry"
)

// Metrics holds the metrics of a Tracer.
type Metrics struct{ spans *prometheus.CounterVec }

// NewMetrics registers the metrics. They stay 0 if tracing is off.
func NewMetrics(registerer prometheus.Registerer) Metrics {
	m := Metrics{promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "rowmill_tracing_spans_total",
		Help: "Spans that ended, by outcome: sent, failed (the collector was away for too long, or refused them), dropped (tracing.queue spans waited already).",
	}, []string{"outcome"})}
	for _, outcome := range []string{sent, failed, dropped} {
		m.spans.WithLabelValues(outcome)
	}
	return m
}

// Outcomes of spans, as metric labels.
const (
	sent    = "sent"
	failed  = "failed"
	dropped = "dropped"
)

// A request to the collector has the spans of gatherTime, or batchSpans spans if they
// come sooner: half a megabyte at most.
const (
	gatherTime = time.Second
	batchSpans = 512
)

// A spanQueue sends ended spans to the collector in a goroutine of its own. Ending a span
// never blocks: if the queue is full, the span is dropped.
type spanQueue struct {
	export   func(context.Context, []sdktrace.ReadOnlySpan) error
	capacity int
	timeout  time.Duration
	metrics  Metrics
	log      *slog.Logger

	nonEmpty, full chan struct{} // signals to run: spans wait; batchSpans spans wait
	stopCtx        context.Context
	stop           context.CancelFunc // called by Shutdown
	sendCtx        context.Context
	cancelSend     context.CancelFunc // called when the context of Shutdown ends
	done           chan struct{}

	mu         sync.Mutex
	waiting    []sdktrace.ReadOnlySpan
	inFlight   int  // number of spans in the current request
	overflowed bool // a full queue was logged

	failing bool // the last request failed and was logged; used by run only
}

var _ sdktrace.SpanProcessor = (*spanQueue)(nil)

func newQueue(cfg Config, export func(context.Context, []sdktrace.ReadOnlySpan) error) *spanQueue {
	q := &spanQueue{
		export: export, capacity: cfg.Queue, timeout: cfg.Timeout, metrics: cfg.Metrics, log: cfg.Logger,
		nonEmpty: make(chan struct{}, 1), full: make(chan struct{}, 1), done: make(chan struct{}),
	}
	q.stopCtx, q.stop = context.WithCancel(context.Background())
	q.sendCtx, q.cancelSend = context.WithCancel(context.Background())
	go q.run()
	return q
}

// OnStart does nothing.
func (q *spanQueue) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd adds a span to the queue, or drops it if the queue is full.
func (q *spanQueue) OnEnd(s sdktrace.ReadOnlySpan) {
	q.mu.Lock()
	before, closed := len(q.waiting), q.stopCtx.Err() != nil
	fits := before+q.inFlight < q.capacity && !closed
	if fits {
		q.waiting = append(q.waiting, s)
	}
	warn := !fits && !closed && !q.overflowed
	q.overflowed = q.overflowed || warn
	q.mu.Unlock()
	switch {
	case !fits:
		q.metrics.spans.WithLabelValues(dropped).Inc()
	case before == 0:
		trySend(q.nonEmpty)
	case before+1 == batchSpans:
		trySend(q.full)
	}
	if warn {
		q.log.Warn("the span queue is full, dropping spans; rowmill_tracing_spans_total counts them", "room", q.capacity)
	}
}

func trySend(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// ForceFlush does nothing: run sends all spans by itself.
func (q *spanQueue) ForceFlush(context.Context) error { return nil }

// Shutdown sends the waiting spans, with one try per request, until ctx ends. Spans
// that end later are dropped.
func (q *spanQueue) Shutdown(ctx context.Context) error {
	q.stop()
	stop := context.AfterFunc(ctx, q.cancelSend)
	defer stop()
	<-q.done
	q.cancelSend()
	return nil
}

func (q *spanQueue) run() {
	defer close(q.done)
	for {
		select {
		case <-q.nonEmpty:
		case <-q.stopCtx.Done():
		}
		gather := time.NewTimer(gatherTime)
		select {
		case <-q.full:
		case <-gather.C:
		case <-q.stopCtx.Done():
		}
		gather.Stop()
		last := q.stopCtx.Err() != nil
		for spans := q.takeBatch(); len(spans) > 0; spans = q.takeBatch() {
			q.send(spans)
		}
		if last {
			return
		}
	}
}

func (q *spanQueue) takeBatch() []sdktrace.ReadOnlySpan {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), batchSpans)
	spans := q.waiting[:n:n]
	q.inFlight = n
	if q.waiting = q.waiting[n:]; len(q.waiting) == 0 {
		q.waiting = nil
	}
	return spans
}

// send sends one request with spans. It retries only for a limited time, because newer
// spans are worth more.
func (q *spanQueue) send(spans []sdktrace.ReadOnlySpan) {
	policy := retry.Spans
	if q.stopCtx.Err() != nil {
		policy.Tries = 1
	}
	var refused *refusalError
	err := policy.Do(q.stopCtx, func() error {
		if refused != nil {
			pause(q.stopCtx, refused.retryAfter)
		}
		refused = nil
		ctx, cancel := context.WithTimeout(q.sendCtx, q.timeout)
		defer cancel()
		err := q.export(ctx, spans)
		errors.As(err, &refused)
		return err
	}, func(error) bool { return refused == nil || refused.isRetryable() }, q.logSendState)
	lost := 0
	switch {
	case err == nil:
	case refused != nil && refused.spans > 0: // the collector accepted the other spans
		lost, err = refused.spans, nil
	default:
		lost = len(spans)
	}
	q.logSendState(err)
	q.metrics.spans.WithLabelValues(sent).Add(float64(len(spans) - lost))
	q.metrics.spans.WithLabelValues(failed).Add(float64(lost))
}

// logSendState logs once when sending begins to fail, and once when it succeeds again.
// err is the result of the last try.
func (q *spanQueue) logSendState(err error) {
	switch {
	case err != nil && !q.failing:
		q.log.Warn("sending spans to the collector failed; jobs continue, but spans are missing in traces", "err", err)
	case err == nil && q.failing:
		q.log.Info("the collector accepts spans again")
	}
	q.failing = err != nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
