package redis

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	driver "github.com/redis/go-redis/v9"

	"github.com/rowmill/rowmill/internal/memo"
	"github.com/rowmill/rowmill/store"
)

var _ store.Store = (*Store)(nil)

// Store is a store on a Redis server that any number of processes share. All
// methods are safe for concurrent use.
type Store struct {
	config    Config
	sentinels bool
	client    *driver.Client
	at        atomic.Pointer[address] // as SetURL had it last
	seen      memo.Recent[string, seenJob]

	latency  prometheus.Histogram
	failures *prometheus.CounterVec // attempts without an answer, or refused by the server
	unknown  prometheus.Counter

	closing sync.Once
	closed  error
}

// Open connects to the server. It refuses one that would break the contract:
// Redis Cluster, a replica, an eviction policy, a version before 6.2, records
// of another schema version. What the server's settings can lose is for
// Durability to say.
func Open(ctx context.Context, config Config) (*Store, error) {
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
	metrics := promauto.With(config.Metrics)
	s := &Store{
		config: config, sentinels: at.primary != "", seen: memo.Recent[string, seenJob]{Most: seenJobs},
		latency: metrics.NewHistogram(prometheus.HistogramOpts{
			Name:    "rowmill_store_redis_seconds",
			Help:    "Time of one round trip to the Redis server, with its repeats.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 17), // 0.1 ms to 6.6 s
		}),
		failures: metrics.NewCounterVec(prometheus.CounterOpts{
			Name: "rowmill_store_redis_failures_total",
			Help: "Attempts that the Redis server did not answer or refused to execute, by cause.",
		}, []string{"cause"}),
		unknown: metrics.NewCounter(prometheus.CounterOpts{
			Name: "rowmill_store_redis_unknown_outcomes_total",
			Help: "Writes given up without knowing whether the Redis server executed them.",
		}),
	}
	s.at.Store(&at)
	s.client = s.connect(at)
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open the Redis record store at %v: %w", at.hosts, err), s.Close())
	}
	return s, nil
}

// SetURL has connections from now on made with the user and password of another URL of
// the same server; those there are go on as they are. It refuses another server or
// database, and a server behind Sentinels, which the driver gives no new password.
func (s *Store) SetURL(url string) error {
	at, err := parseAddress(url)
	if err != nil {
		return err
	}
	now := *s.at.Load()
	now.username, now.password = at.username, at.password
	switch {
	case !reflect.DeepEqual(at, now):
		return errors.New("redis: URL: it names another server or database; only user and password can be changed while the store is open")
	case s.sentinels:
		return errors.New("redis: URL: user and password of a server behind Sentinels cannot be changed while the store is open")
	}
	s.at.Store(&at)
	return nil
}

// prepare checks server and schema.
func (s *Store) prepare(ctx context.Context) error {
	server, err := s.inspect(ctx)
	if err != nil {
		return err
	}
	if err := server.refusal(); err != nil {
		return err
	}
	meta := s.key("meta")
	if _, err := s.try(ctx, true, func(ctx context.Context) error {
		return s.client.HSetNX(ctx, meta, "schema", store.SchemaVersion).Err()
	}); err != nil {
		return err
	}
	var found *driver.StringCmd
	if err := s.read(ctx, func(p driver.Pipeliner) { found = p.HGet(ctx, meta, "schema") }); err != nil {
		return err
	}
	if found.Val() != strconv.Itoa(store.SchemaVersion) {
		return fmt.Errorf("its records have schema version %q, this program reads %d: start the version of rowmill that wrote them, or choose another prefix than %q",
			found.Val(), store.SchemaVersion, s.config.Prefix)
	}
	return nil
}

// Time is the time by the server's clock.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	var now *driver.TimeCmd
	if err := s.read(ctx, func(p driver.Pipeliner) { now = p.Time(ctx) }); err != nil {
		return time.Time{}, fmt.Errorf("ask for the server's time: %w", err)
	}
	return now.Val(), nil
}

// pingScript
//
//	KEYS[1]  a key of its own
//	ARGV[1]  now
//	ARGV[2]  how long it is kept, ms
//
// answers 1.
var pingScript = guarded(`
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
`)

// Ping writes a key. It does not try again: the question is about now.
func (s *Store) Ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := pingScript.Run(ctx, s.client, s.withMeta(s.key("ping")), time.Now().UnixMilli(), time.Hour.Milliseconds()).Err()
	if err == nil {
		return nil
	}
	v := judge(ctx, err)
	s.failures.WithLabelValues(v.cause).Inc()
	return s.failed(ctx, false, v, err)
}

// Close closes the connections. Calls in flight fail.
func (s *Store) Close() error {
	s.closing.Do(func() { s.closed = s.client.Close() })
	return s.closed
}
