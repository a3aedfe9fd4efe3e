package http

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	nethttp "net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/http/access"
	"github.com/rowmill/rowmill/http/console"
	"github.com/rowmill/rowmill/http/quotas"
	"github.com/rowmill/rowmill/http/webhooks"
	"github.com/rowmill/rowmill/internal/tracing"
	"github.com/rowmill/rowmill/store"
)

// Limits bound what clients send and hold. Sizes are bytes.
type Limits struct {
	// MaxBodyBytes bounds a request body. Default 512 MiB: a million rows of
	// 500 bytes; more belongs into a file behind a URL.
	MaxBodyBytes int64
	// MaxRowBytes bounds one inline row. Default 8 MiB, as for files.
	MaxRowBytes int
	// MaxInlineBytes is how much of a submission's rows, as JSON, rides in
	// the job's record. Default 64 KiB: a record stays small enough to be
	// rewritten with every change of state. Larger inputs become an object.
	MaxInlineBytes int
	// MaxFileBytes bounds a file that is uploaded in one piece, and a part of one
	// that is not. Default 512 MiB, as OpenAI's.
	MaxFileBytes int64
	// MaxUploadBytes bounds a file that is uploaded in parts. Default 8 GiB, as
	// OpenAI's.
	MaxUploadBytes int64
	// MaxInputRows bounds the rows of any input. Default 100,000,000, as where
	// inputs are read.
	MaxInputRows int64
	// MaxHeaderBytes bounds all request headers together. Default 64 KiB. The
	// server's own limit should be higher, since its answer is not JSON.
	MaxHeaderBytes int
	// MaxKeys bounds the keys of each account. Default: 1,000; every node holds
	// all keys and reads them anew every two seconds.
	MaxKeys int
	// MaxStreams bounds the streams of events of this node. Default: 256; each
	// holds a connection, and while one is open the store is looked at each second.
	MaxStreams int
}

// Config is what a Server is made of.
type Config struct {
	Store    store.Store      // required
	Bucket   blob.Bucket      // required
	Catalog  *catalog.Catalog // required
	Service  Service          // required
	Logger   *slog.Logger     // default: discards
	Gatherer prometheus.Gatherer
	// Registerer takes the request metrics. Default: none are kept.
	Registerer prometheus.Registerer
	// Tracer tells of requests that come within a trace. Default: nothing does.
	Tracer *tracing.Tracer

	// AdminKeys are accepted as administrator keys of the account "default",
	// beside the keys of the store; SetAdminKeys replaces them.
	AdminKeys []string
	// Issuer verifies tokens that stand for keys; nil: none are taken.
	Issuer  access.Issuer
	Version Version

	// EnginesOnly says that this node takes no requests about jobs.
	EnginesOnly bool

	// Objects serves the signed URLs of the embedded bucket under /objects/;
	// nil where the bucket has its own address.
	Objects nethttp.Handler
	// Console is the web page; nil answers 404 under /console/.
	Console console.Files

	Limits

	// Dedup has equal rows run once in jobs whose submissions do not say. Default
	// false.
	Dedup bool

	// Patience is how long a client may neither send nor take a byte of a
	// body. Default 2 min: longer than any hiccup of a network, and short
	// enough that clients that are gone hold no rows and files for long.
	Patience time.Duration
	// Quotas are those of accounts without their own. Default: the
	// interface's.
	Quotas []client.Quota
	// RequestsPerMinute bounds the requests of each key that has no bound of
	// its own, on this node. Default: 0, no bound; the queue of jobs is fair
	// between accounts without one.
	RequestsPerMinute int
	// FunctionDeadline is how long a run of a Function for one input may take.
	// Default 90 s: clients give up after 100 s.
	FunctionDeadline time.Duration
	// IdempotencyTTL is how long an Idempotency-Key is kept. Default 24 h.
	IdempotencyTTL time.Duration
	// Webhooks sends events. Default: nothing is sent.
	Webhooks webhooks.Sender
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

func (l Limits) withDefaults() Limits {
	return Limits{
		MaxBodyBytes:   cmp.Or(l.MaxBodyBytes, 512<<20),
		MaxRowBytes:    cmp.Or(l.MaxRowBytes, 8<<20),
		MaxInlineBytes: cmp.Or(l.MaxInlineBytes, 64<<10),
		MaxFileBytes:   cmp.Or(l.MaxFileBytes, 512<<20),
		MaxUploadBytes: cmp.Or(l.MaxUploadBytes, 8<<30),
		MaxInputRows:   cmp.Or(l.MaxInputRows, 100_000_000),
		MaxHeaderBytes: cmp.Or(l.MaxHeaderBytes, 64<<10),
		MaxKeys:        cmp.Or(l.MaxKeys, 1000),
		MaxStreams:     cmp.Or(l.MaxStreams, 256),
	}
}

// WithDefaults returns the configuration with its unset fields filled in.
func (c Config) WithDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Limits = c.Limits.withDefaults()
	c.Patience = cmp.Or(c.Patience, 2*time.Minute)
	if c.Quotas == nil {
		c.Quotas = quotas.Defaults()
	}
	c.FunctionDeadline = cmp.Or(c.FunctionDeadline, 90*time.Second)
	c.IdempotencyTTL = cmp.Or(c.IdempotencyTTL, 24*time.Hour)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Webhooks == nil {
		c.Webhooks = webhooks.NoSender{}
	}
	return c
}

// Validate names the field that is missing or out of range.
func (c Config) Validate() error {
	for _, required := range []struct {
		field string
		value any
	}{{"Store", c.Store}, {"Bucket", c.Bucket}, {"Service", c.Service}} {
		if required.value == nil {
			return fmt.Errorf("http: Config.%s is missing", required.field)
		}
	}
	if c.Catalog == nil {
		return errors.New("http: Config.Catalog is missing")
	}
	for _, limit := range []struct {
		field        string
		value, least int64
	}{
		{"MaxBodyBytes", c.MaxBodyBytes, 1},
		{"MaxRowBytes", int64(c.MaxRowBytes), 1},
		{"MaxInlineBytes", int64(c.MaxInlineBytes), 0},
		{"MaxFileBytes", c.MaxFileBytes, 1},
		{"MaxUploadBytes", c.MaxUploadBytes, 1},
		{"MaxInputRows", c.MaxInputRows, 1},
		{"MaxHeaderBytes", int64(c.MaxHeaderBytes), 1024},
		{"RequestsPerMinute", int64(c.RequestsPerMinute), 0},
		{"MaxKeys", int64(c.MaxKeys), 1},
		{"MaxStreams", int64(c.MaxStreams), 1},
	} {
		if limit.value < limit.least {
			return fmt.Errorf("http: Config.%s: %d must be at least %d", limit.field, limit.value, limit.least)
		}
	}
	for _, span := range []struct {
		field string
		value time.Duration
	}{{"Patience", c.Patience}, {"FunctionDeadline", c.FunctionDeadline}, {"IdempotencyTTL", c.IdempotencyTTL}} {
		if span.value < 0 {
			return fmt.Errorf("http: Config.%s: %v must not be negative", span.field, span.value)
		}
	}
	return quotas.Validate(c.Quotas)
}
