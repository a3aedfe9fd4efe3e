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
	"github.com/rowmill/rowmill/input/sources"
	"github.com/rowmill/rowmill/internal/tracing"
	"github.com/rowmill/rowmill/store"
)

// Limits limits the size and number of things that clients may send and store. Sizes
// are in bytes.
type Limits struct {
	// MaxBodyBytes limits a request body. Default 512 MiB: a million rows of 500 bytes.
	// Clients should send a larger input as a file, or as the URL of a file.
	MaxBodyBytes int64
	// MaxRowBytes limits one inline row. Default 8 MiB, as for the rows of files.
	MaxRowBytes int
	// MaxInlineBytes limits the size of all rows, as JSON, that the job's record may hold.
	// Default 64 KiB, because the record is rewritten with every change of state. The rows
	// of a larger submission become an object in the bucket.
	MaxInlineBytes int
	// MaxFileBytes limits a file that is uploaded in one request, and each part of an
	// upload. Default 512 MiB, as at OpenAI.
	MaxFileBytes int64
	// MaxUploadBytes limits a file that is uploaded in parts. Default 8 GiB, as at
	// OpenAI.
	MaxUploadBytes int64
	// MaxInputRows limits the rows of any input. Default 100,000,000, the same as in
	// package input.
	MaxInputRows int64
	// MaxHeaderBytes limits all request headers together. Default 64 KiB. The limit of
	// the http.Server should be higher, because the http.Server refuses with a text that
	// is not JSON.
	MaxHeaderBytes int
	// MaxKeys limits the keys of each account. Default 1,000: every node keeps all keys
	// in memory and reads them again every two seconds.
	MaxKeys int
	// MaxStreams limits the event streams of this node. Default 256: each stream holds a
	// connection, and while a stream is open the node polls the store each second.
	MaxStreams int
}

// Config configures a Server.
type Config struct {
	Store    store.Store      // required
	Bucket   blob.Bucket      // required
	Catalog  *catalog.Catalog // required
	Service  Service          // required
	Logger   *slog.Logger     // default: discarded
	Gatherer prometheus.Gatherer
	// Registerer registers the request metrics. Default: none.
	Registerer prometheus.Registerer
	// Tracer records a span for each request that belongs to a trace. Default: none.
	Tracer *tracing.Tracer

	// AdminKeys are administrator keys of the account "default", in addition to the keys
	// in the store. SetAdminKeys replaces them.
	AdminKeys []string
	// Issuer verifies tokens; nil: tokens are not accepted.
	Issuer  access.TokenVerifier
	Version BuildInfo

	// EnginesOnly means that this node refuses requests about jobs.
	EnginesOnly bool

	// Objects serves the signed URLs of the embedded bucket under /objects/; nil if the
	// bucket has its own address.
	Objects nethttp.Handler
	// Console has the files of the web console. If it is nil, requests below /console/ get
	// 404.
	Console console.Files

	Limits

	// Sources are the places with files that jobs read and write. Nil means none.
	Sources *sources.Sources

	// Dedup is the default for submissions that do not set dedup. If it is true, equal
	// rows of a job run once. Default false.
	Dedup bool

	// StallTimeout is how long a client may neither send nor accept a byte of a body; then
	// the transfer fails. Default 2 min: longer than a short network failure, and short
	// enough that disconnected clients do not keep rows and files for long.
	StallTimeout time.Duration
	// Quotas are the quotas of accounts that have no quotas of their own. Default:
	// quotas.Defaults.
	Quotas []client.Quota
	// RequestsPerMinute limits the requests of each key that has no limit of its own, on
	// this node. Default 0: no limit; the job queue is fair between accounts anyway.
	RequestsPerMinute int
	// JobWait limits how long a request waits for the end of a job: a run of a Function for one
	// input, or the estimate of a submission with a deadline. Default 90 s: clients give up
	// after 100 s.
	JobWait time.Duration
	// IdempotencyTTL is how long the service remembers an Idempotency-Key. Default 24 h.
	IdempotencyTTL time.Duration
	// Webhooks sends events to the webhooks of accounts. Default: no events are sent.
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

// WithDefaults returns c with the default value in each field that is zero.
func (c Config) WithDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Limits = c.Limits.withDefaults()
	c.StallTimeout = cmp.Or(c.StallTimeout, 2*time.Minute)
	if c.Quotas == nil {
		c.Quotas = quotas.Defaults()
	}
	c.JobWait = cmp.Or(c.JobWait, 90*time.Second)
	c.IdempotencyTTL = cmp.Or(c.IdempotencyTTL, 24*time.Hour)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Webhooks == nil {
		c.Webhooks = webhooks.NoSender{}
	}
	return c
}

// Validate returns an error that names the first invalid field.
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
			return fmt.Errorf("http: Config.%s is %d, but must be at least %d", limit.field, limit.value, limit.least)
		}
	}
	for _, span := range []struct {
		field string
		value time.Duration
	}{{"StallTimeout", c.StallTimeout}, {"JobWait", c.JobWait}, {"IdempotencyTTL", c.IdempotencyTTL}} {
		if span.value < 0 {
			return fmt.Errorf("http: Config.%s is %v, but must not be negative", span.field, span.value)
		}
	}
	return quotas.Validate(c.Quotas)
}
