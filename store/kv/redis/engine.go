package redis

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	driver "github.com/redis/go-redis/v9"

	"github.com/rowmill/rowmill/internal/cache"
	"github.com/rowmill/rowmill/store/kv"
)

var _ kv.Backend = (*Backend)(nil)

// Backend stores tables on a Redis server that any number of processes share. All
// methods are safe for concurrent use.
type Backend struct {
	config     Config
	sentinels  bool
	client     *driver.Client
	at         atomic.Pointer[address]        // address and login, from Open or the last SetURL
	ahead      atomic.Int64                   // difference between the server's clock and the local clock in ns, positive if the server is ahead
	valueCache cache.LRU[kv.TableKey, []byte] // cache of stored values, see cacheValues

	engineMetrics
	failedAt atomic.Int64 // time of the last failed attempt after which another attempt can succeed soon, ns

	locks [conflictLocks]sync.Mutex // locks for transactions that have conflicted; conflictLock chooses one by the key
	seed  maphash.Seed              // for the hash in conflictLock

	mu      sync.Mutex
	leases  map[string]lease // sessions that this backend opened
	closing sync.Once
	closed  error
}

// engineMetrics holds the metrics of a backend.
type engineMetrics struct {
	latency   prometheus.Histogram
	failures  *prometheus.CounterVec // attempts that the server did not answer or refused
	unknown   prometheus.Counter
	conflicts prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) engineMetrics {
	f := promauto.With(reg)
	return engineMetrics{
		latency: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "rowmill_store_redis_seconds",
			Help:    "Time of one round trip to the Redis server, with its repeats.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 17), // 0.1 ms to 6.6 s
		}),
		failures: f.NewCounterVec(prometheus.CounterOpts{
			Name: "rowmill_store_redis_failures_total",
			Help: "Attempts that the Redis server did not answer or refused to execute, by cause.",
		}, []string{"cause"}),
		unknown: f.NewCounter(prometheus.CounterOpts{
			Name: "rowmill_store_redis_unknown_outcomes_total",
			Help: "Writes given up without knowing whether the Redis server executed them.",
		}),
		conflicts: f.NewCounter(prometheus.CounterOpts{
			Name: "rowmill_store_redis_conflicts_total",
			Help: "Transactions that ran again because another transaction wrote a key that they had read.",
		}),
	}
}

// Open connects to the server. It refuses a server that cannot fulfil the contract:
// Redis Cluster, a replica, an eviction policy, a version before 6.2. ListDurabilityRisks
// reports the data losses that the server's settings allow.
func Open(ctx context.Context, config Config) (*Backend, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.WithDefaults()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	driver.SetLogger(newDriverLog(config.Logger))
	at, err := parseAddress(config.URL)
	if err != nil {
		return nil, err
	}
	e := &Backend{
		config: config, sentinels: at.primary != "", valueCache: cache.LRU[kv.TableKey, []byte]{Most: knownValues}, leases: map[string]lease{}, seed: maphash.MakeSeed(),
		engineMetrics: newMetrics(config.Metrics),
	}
	e.at.Store(&at)
	e.client = e.connect(at)
	server, err := e.readServerInfo(ctx)
	if err == nil {
		err = server.checkUsable(e.sentinels, config.AllowLostWrites)
	}
	if err == nil {
		err = e.refuseOldLayout(ctx)
	}
	if err == nil {
		_, err = e.Time(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the Redis record store at %v: %w", at.hosts, err), e.Close())
	}
	return e, nil
}

// refuseOldLayout returns an error if a version of rowmill with an older layout wrote records to
// the server.
func (e *Backend) refuseOldLayout(ctx context.Context) error {
	found, err := ask(ctx, e, func(ctx context.Context) (string, error) {
		return e.client.HGet(ctx, e.config.Prefix+"meta", "schema").Result()
	})
	if err == nil && found != "" {
		err = fmt.Errorf("its records have schema version %q, which this program does not read: start the version of rowmill that wrote them, or choose another prefix than %q", found, e.config.Prefix)
	}
	return err
}

// SetURL changes the user and the password for new connections; existing connections stay
// as they are. It refuses a URL of another server or database. It also refuses every URL
// behind Sentinels, because there the driver cannot change the password.
func (e *Backend) SetURL(url string) error {
	at, err := parseAddress(url)
	if err != nil {
		return err
	}
	now := *e.at.Load()
	now.username, now.password = at.username, at.password
	switch {
	case !reflect.DeepEqual(at, now):
		return errors.New("redis: URL: it names another server or database; only user and password can be changed while the store is open")
	case e.sentinels:
		return errors.New("redis: URL: user and password of a server behind Sentinels cannot be changed while the store is open")
	}
	e.at.Store(&at)
	return nil
}

// Time returns the time of the server's clock.
func (e *Backend) Time(ctx context.Context) (time.Time, error) {
	now, err := ask(ctx, e, func(ctx context.Context) (time.Time, error) { return e.client.Time(ctx).Result() })
	if err != nil {
		return time.Time{}, fmt.Errorf("ask for the server's time: %w", err)
	}
	e.recordServerTime(now)
	return now, nil
}

// recordServerTime records the difference between the server's clock, which shows now, and the
// local clock.
func (e *Backend) recordServerTime(now time.Time) { e.ahead.Store(int64(time.Until(now))) }

// now returns an estimate of the time of the server's clock, without a request.
func (e *Backend) now() time.Time { return time.Now().Add(time.Duration(e.ahead.Load())).Round(0) }

// pingFor is the time after which the key that Ping writes expires.
const pingFor = time.Hour

// Ping writes a key to the server. It makes only one attempt, because it reports whether
// the server accepts writes now.
func (e *Backend) Ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := e.client.Set(ctx, e.config.Prefix+"ping", 1, pingFor).Err()
	if err == nil {
		return nil
	}
	v := classifyError(ctx, err)
	e.failures.WithLabelValues(v.cause).Inc()
	return e.callError(ctx, false, v, err)
}

// FailedAt returns the last time when the server did not answer or could not serve.
func (e *Backend) FailedAt() time.Time { return time.Unix(0, e.failedAt.Load()) }

// Close closes the connections. Calls in progress fail.
func (e *Backend) Close() error {
	e.closing.Do(func() { e.closed = e.client.Close() })
	return e.closed
}
