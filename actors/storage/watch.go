// Package storage owns what a node knows of its records and objects: whether
// they can be read and written, since when not, and who waits for them. It knows
// it from what real calls meet, and waits for what passes. It knows neither jobs
// nor actors, and no store or bucket beyond their contracts.
package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/store"
)

// ErrElsewhere is what a wait ends with whose node has others that reach what it
// does not: they should go on with the job.
var ErrElsewhere = errors.New("other nodes reach the storage that this one waits for")

// Config is what a Watch needs. Nothing has a default.
type Config struct {
	Store  store.Store
	Bucket blob.Bucket
	Node   string // names the object that is written to try whether one can be
	// Patience is how long an error is tried again that is not known to pass.
	Patience time.Duration
	Clock    func() time.Time // of what people are told
	Logger   *slog.Logger
	// Met hears of each error that somebody waits for to pass, with the context of
	// the wait.
	Met        func(ctx context.Context, err error)
	Registerer prometheus.Registerer
}

// A Watch sees every call of a store and a bucket that is made through it. It is
// safe for concurrent use.
type Watch struct {
	config    Config
	store     *watchedStore
	bucket    *watchedBucket
	records   *place
	objects   *place
	elsewhere atomic.Bool
	looking   sync.Mutex
	changed   chan struct{}
}

// NewWatch watches a store and a bucket.
func NewWatch(config Config) *Watch {
	f := promauto.With(config.Registerer)
	waiting := f.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rowmill_storage_waiting", Help: "Operations that wait for storage to come back, by storage (records or objects).",
	}, []string{"storage"})
	away := f.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rowmill_storage_away", Help: "1 while storage cannot be used, by storage (records or objects).",
	}, []string{"storage"})
	w := &Watch{config: config, changed: make(chan struct{}, 1)}
	open := func(name, title string) *place {
		return &place{
			name: name, title: title, config: config, changed: w.changed, fails: make(map[any]failure),
			waiting: waiting.WithLabelValues(name), away: away.WithLabelValues(name),
		}
	}
	w.records, w.objects = open("records", "the record store"), open("objects", "object storage")
	w.store = &watchedStore{config.Store, w.records}
	w.bucket = &watchedBucket{config.Bucket, w.objects}
	return w
}

// Store is the store that is watched.
func (w *Watch) Store() store.Store { return w.store }

// Bucket is the bucket that is watched.
func (w *Watch) Bucket() blob.Bucket { return w.bucket }

// Waiting says to clients what their jobs wait for where that cannot be written
// into their records; empty where it can.
func (w *Watch) Waiting() string {
	if outage, away := w.Records(); away {
		return outage.Message()
	}
	return ""
}

// Requests is the bucket for those who cannot wait: while it is known to be away
// their calls fail at once.
func (w *Watch) Requests() blob.Bucket { return &requestsBucket{w.bucket} }

// Records is the outage of the records, if there is one.
func (w *Watch) Records() (Outage, bool) { return w.records.outage() }

// Objects is the outage of the objects, if there is one.
func (w *Watch) Objects() (Outage, bool) { return w.objects.outage() }

// Changed holds a token after an outage has begun or ended.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Leave ends all waits for objects with ErrElsewhere, and those that would begin,
// until it is called with false.
func (w *Watch) Leave(now bool) { w.elsewhere.Store(now) }

// Wait calls do until it succeeds, its error is one that no repetition changes,
// one that is not known to pass has come for Config.Patience, or ctx ends. It
// then returns what do returned last. do must be harmless to repeat.
func (w *Watch) Wait(ctx context.Context, do func() error) error { return w.wait(ctx, do, false) }

// WaitHere is Wait for what another node could do: it ends with ErrElsewhere
// too.
func (w *Watch) WaitHere(ctx context.Context, do func() error) error { return w.wait(ctx, do, true) }

func (w *Watch) wait(ctx context.Context, do func() error, leaves bool) error {
	waiter := new(int)
	defer func() {
		w.records.returns(waiter)
		w.objects.returns(waiter)
	}()
	var odd time.Time // since when errors come that nobody knows
	var left bool
	err := retry.Storage.Do(ctx, do, func(err error) bool {
		if !Passing(err) {
			if odd.IsZero() {
				odd = time.Now()
			}
			return !Lasting(err) && time.Since(odd) < w.config.Patience
		}
		odd = time.Time{}
		left = leaves && w.elsewhere.Load() && w.of(err) == w.objects
		return !left
	}, func(err error) {
		if Passing(err) {
			w.of(err).waits(waiter, err)
			w.config.Met(ctx, err)
		}
	})
	if left {
		return fmt.Errorf("%w: %w", ErrElsewhere, err)
	}
	return err
}

// of is the place that an error came from. What came by no call that is watched
// is the records'.
func (w *Watch) of(err error) *place {
	var met *placed
	if errors.As(err, &met) {
		return met.place
	}
	return w.records
}

// probeTimeout is how long a look may take: longer than what is well takes.
const probeTimeout = 3 * time.Second

// Look tries what has not been used successfully for as long as fresh, and what
// is away although nobody waits for it: who waits tries by himself. While one look
// is under way another does nothing.
func (w *Watch) Look(ctx context.Context, fresh time.Duration) {
	if !w.looking.TryLock() {
		return
	}
	defer w.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if w.records.unsure(fresh) {
			_ = w.store.Ping(ctx) // the place hears of it
		}
	}()
	if w.objects.unsure(fresh) {
		w.bucket.try(ctx, w.config.Node)
	}
	<-done
}
