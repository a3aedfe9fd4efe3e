// Package storage tracks whether a node can read and write records and objects, since
// when it cannot, and how many operations wait. It learns this from the results of real
// calls, and retries calls after temporary errors. It uses no jobs and no actors, and of
// the store and the bucket only the interfaces.
package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/store"
)

// ErrElsewhere is the error of RetryUnlessElsewhere if other nodes can use the storage that this
// node cannot use. Another node should continue the job.
var ErrElsewhere = errors.New("this node no longer waits for the storage, because other nodes can use it or this node drains")

// Config configures a Monitor. All fields are required.
type Config struct {
	Store  store.Store
	Bucket blob.Bucket
	Node   string // name of the node; part of the key of the object that tests writes
	// Patience is how long an operation is retried after an error that is neither transient
	// nor permanent.
	Patience time.Duration
	Clock    func() time.Time // for times that people read
	Logger   *slog.Logger
	// Met is called with each temporary error after which an operation waits. ctx is the
	// context of the operation.
	Met        func(ctx context.Context, err error)
	Registerer prometheus.Registerer
}

// A Monitor observes the calls of a store and a bucket that are made through it, and
// retries operations. It is safe for concurrent use.
type Monitor struct {
	config    Config
	store     *watchedStore
	bucket    *watchedBucket
	records   *storageStatus // status of the store
	objects   *storageStatus // status of the bucket
	elsewhere atomic.Bool    // the last argument of SetUsableElsewhere
	drains    atomic.Bool    // BeginDrain was called
	changed   chan struct{}  // gets a token after an outage has started or ended
}

// NewMonitor returns a Monitor of a store and a bucket.
func NewMonitor(config Config) *Monitor {
	f := promauto.With(config.Registerer)
	waiting := f.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rowmill_storage_waiting", Help: "Operations that wait for storage to come back, by storage (records or objects).",
	}, []string{"storage"})
	away := f.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rowmill_storage_away", Help: "1 while storage cannot be used, by storage (records or objects).",
	}, []string{"storage"})
	w := &Monitor{config: config, changed: make(chan struct{}, 1)}
	open := func(name, title string) *storageStatus {
		return &storageStatus{
			name: name, title: title, config: config, changed: w.changed, fails: make(map[any]error),
			waiting: waiting.WithLabelValues(name), away: away.WithLabelValues(name),
		}
	}
	w.records, w.objects = open("records", "the record store"), open("objects", "object storage")
	w.store = &watchedStore{config.Store, w.records}
	w.bucket = &watchedBucket{Bucket: config.Bucket, status: w.objects}
	return w
}

// Store returns the store whose calls the Monitor observes.
func (w *Monitor) Store() store.Store { return w.store }

// Bucket returns the bucket whose calls the Monitor observes.
func (w *Monitor) Bucket() blob.Bucket { return w.bucket }

// OutageMessage returns a message for clients during an outage of the records; empty if there
// is no outage. During an outage the message cannot be written into the jobs' records.
func (w *Monitor) OutageMessage() string {
	if outage, away := w.RecordsOutage(); away {
		return outage.Message()
	}
	return ""
}

// FailFastBucket returns the bucket for callers that must not wait: during an outage their
// calls fail at once.
func (w *Monitor) FailFastBucket() blob.Bucket {
	return &watchedBucket{Bucket: w.config.Bucket, status: w.objects, atOnce: true}
}

// RecordsOutage returns the current outage of the records; false means that there is none.
func (w *Monitor) RecordsOutage() (Outage, bool) { return w.records.outage() }

// ObjectsOutage returns the current outage of the objects; false means that there is none.
func (w *Monitor) ObjectsOutage() (Outage, bool) { return w.objects.outage() }

// Changed returns a channel that gets a token after an outage has started or ended.
func (w *Monitor) Changed() <-chan struct{} { return w.changed }

// SetUsableElsewhere sets whether RetryUnlessElsewhere returns ErrElsewhere instead of waiting for objects, also
// in calls that already wait. usable is true if other nodes can use the objects.
func (w *Monitor) SetUsableElsewhere(usable bool) { w.elsewhere.Store(usable) }

// BeginDrain makes RetryUnlessElsewhere return ErrElsewhere after the next error of the
// objects and after the next unknown error: a node that drains does not wait for missing
// objects.
func (w *Monitor) BeginDrain() { w.drains.Store(true) }

// Retry calls do until it succeeds, and returns the last error of do. It gives up if
// retries cannot change the error, if unknown errors have lasted for Config.Patience,
// or if ctx ends. It must be harmless to call do again.
func (w *Monitor) Retry(ctx context.Context, do func() error) error { return w.retry(ctx, do, false) }

// RetryUnlessElsewhere is Retry for work that another node could do. It also gives up, with
// ErrElsewhere, after SetUsableElsewhere(true) and after BeginDrain.
func (w *Monitor) RetryUnlessElsewhere(ctx context.Context, do func() error) error {
	return w.retry(ctx, do, true)
}

// retry is Retry, or RetryUnlessElsewhere if mayMove is true.
func (w *Monitor) retry(ctx context.Context, do func() error, mayMove bool) error {
	waiter := new(int)
	defer func() {
		w.records.removeWaiter(waiter)
		w.objects.removeWaiter(waiter)
	}()
	var odd time.Time // time of the first unknown error since the last temporary error
	var left bool
	err := retry.Storage.Do(ctx, do, func(err error) bool {
		if !IsTransient(err) {
			if odd.IsZero() {
				odd = time.Now()
			}
			if IsPermanent(err) {
				return false
			}
			left = mayMove && w.drains.Load()
			return !left && time.Since(odd) < w.config.Patience
		}
		odd = time.Time{}
		left = mayMove && (w.elsewhere.Load() || w.drains.Load()) && w.statusOf(err) == w.objects
		return !left
	}, func(err error) {
		if IsTransient(err) {
			w.statusOf(err).addWaiter(waiter, err)
			w.config.Met(ctx, err)
		}
	})
	if left {
		return fmt.Errorf("%w: %w", ErrElsewhere, err)
	}
	return err
}

// statusOf returns the status of the storage that returned an error. An error that comes from
// no observed call counts as an error of the records.
func (w *Monitor) statusOf(err error) *storageStatus {
	if known, ok := errors.AsType[*storageError](err); ok {
		return known.status
	}
	return w.records
}

// probeTimeout is the maximum duration of a probe. Working storage needs less.
const probeTimeout = 3 * time.Second

// Probe probes a storage if no call to it has succeeded within the time fresh. During an
// outage it probes only if no operation waits for the storage, because a waiting
// operation retries by itself.
func (w *Monitor) Probe(ctx context.Context, fresh time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if w.records.needsProbe(fresh) {
			_ = w.store.Ping(ctx) // the status gets the result
		}
	}()
	if w.objects.needsProbe(fresh) {
		w.bucket.probe(ctx, w.config.Node)
	}
	<-done
}
