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

	"github.com/rowmill/rowmill/retry"
)

// Metrics are the figures of a Tracer.
type Metrics struct{ spans *prometheus.CounterVec }

// NewMetrics registers them; they are 0 where nothing is traced.
func NewMetrics(registerer prometheus.Registerer) Metrics {
	m := Metrics{promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "rowmill_tracing_spans_total",
		Help: "Spans that ended, by outcome: sent, failed (the collector was away for too long, or refused them), dropped (more than tracing.queue waited).",
	}, []string{"outcome"})}
	for _, outcome := range []string{sent, failed, dropped} {
		m.spans.WithLabelValues(outcome)
	}
	return m
}

// What becomes of spans.
const (
	sent    = "sent"
	failed  = "failed"
	dropped = "dropped"
)

// Spans gather for gatherTime, or until there are batchSpans, which go into one request:
// a batch of half a megabyte at most.
const (
	gatherTime = time.Second
	batchSpans = 512
)

// A queue has spans that have ended sent, by one goroutine of its own. Whoever ends a
// span never waits: what there is no room for is dropped.
type queue struct {
	export  func(context.Context, []sdktrace.ReadOnlySpan) error
	room    int
	timeout time.Duration
	metrics Metrics
	log     *slog.Logger

	some, full chan struct{} // spans wait; enough for a request
	ending     context.Context
	end        context.CancelFunc // Shutdown was called
	life       context.Context
	cut        context.CancelFunc // and its time is up
	done       chan struct{}

	mu       sync.Mutex
	waiting  []sdktrace.ReadOnlySpan
	flying   int // spans of a request
	overflew bool

	failing bool // the last request failed, which was said; run's own
}

var _ sdktrace.SpanProcessor = (*queue)(nil)

func newQueue(cfg Config, export func(context.Context, []sdktrace.ReadOnlySpan) error) *queue {
	q := &queue{
		export: export, room: cfg.Queue, timeout: cfg.Timeout, metrics: cfg.Metrics, log: cfg.Logger,
		some: make(chan struct{}, 1), full: make(chan struct{}, 1), done: make(chan struct{}),
	}
	q.ending, q.end = context.WithCancel(context.Background())
	q.life, q.cut = context.WithCancel(context.Background())
	go q.run()
	return q
}

// OnStart does nothing.
func (q *queue) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd takes a span in.
func (q *queue) OnEnd(s sdktrace.ReadOnlySpan) {
	q.mu.Lock()
	before, over := len(q.waiting), q.ending.Err() != nil
	fits := before+q.flying < q.room && !over
	if fits {
		q.waiting = append(q.waiting, s)
	}
	tell := !fits && !over && !q.overflew
	q.overflew = q.overflew || tell
	q.mu.Unlock()
	switch {
	case !fits:
		q.metrics.spans.WithLabelValues(dropped).Inc()
	case before == 0:
		signal(q.some)
	case before+1 == batchSpans:
		signal(q.full)
	}
	if tell {
		q.log.Warn("more spans end than the collector takes: some are dropped, which rowmill_tracing_spans_total counts", "room", q.room)
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// ForceFlush does nothing: spans go by themselves.
func (q *queue) ForceFlush(context.Context) error { return nil }

// Shutdown sends what waits, each request once, until ctx ends.
func (q *queue) Shutdown(ctx context.Context) error {
	q.end()
	stop := context.AfterFunc(ctx, q.cut)
	defer stop()
	<-q.done
	q.cut()
	return nil
}

func (q *queue) run() {
	defer close(q.done)
	for {
		select {
		case <-q.some:
		case <-q.ending.Done():
		}
		gather := time.NewTimer(gatherTime)
		select {
		case <-q.full:
		case <-gather.C:
		case <-q.ending.Done():
		}
		gather.Stop()
		last := q.ending.Err() != nil
		for spans := q.take(); len(spans) > 0; spans = q.take() {
			q.send(spans)
		}
		if last {
			return
		}
	}
}

func (q *queue) take() []sdktrace.ReadOnlySpan {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), batchSpans)
	spans := q.waiting[:n:n]
	q.flying = n
	if q.waiting = q.waiting[n:]; len(q.waiting) == 0 {
		q.waiting = nil
	}
	return spans
}

// send sends one request, and again where the collector is away, but for a while only:
// later spans are worth more.
func (q *queue) send(spans []sdktrace.ReadOnlySpan) {
	policy := retry.Spans
	if q.ending.Err() != nil {
		policy.Tries = 1
	}
	var refused *refusal
	err := policy.Do(q.ending, func() error {
		if refused != nil { // it may have asked to be left alone
			pause(q.ending, refused.after)
		}
		refused = nil
		ctx, cancel := context.WithTimeout(q.life, q.timeout)
		defer cancel()
		err := q.export(ctx, spans)
		errors.As(err, &refused)
		return err
	}, func(error) bool { return refused == nil || refused.passes() }, q.tell)
	lost := 0
	switch {
	case err == nil:
	case refused != nil && refused.spans > 0: // it has taken the others
		lost, err = refused.spans, nil
	default:
		lost = len(spans)
	}
	q.tell(err)
	q.metrics.spans.WithLabelValues(sent).Add(float64(len(spans) - lost))
	q.metrics.spans.WithLabelValues(failed).Add(float64(lost))
}

// tell says when sending begins to fail, and when it succeeds again; each once.
func (q *queue) tell(err error) {
	switch {
	case err != nil && !q.failing:
		q.log.Warn("the collector does not take spans; jobs go on, and traces have gaps", "err", err)
	case err == nil && q.failing:
		q.log.Info("the collector takes spans again")
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
