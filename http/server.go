// Package http is the REST API: routes, authentication, a handler struct for
// each resource, and the streams that answers are written to. It reads jobs and
// results straight from the store and the bucket, so that any node answers
// for any job. It refuses to know how jobs run: the pipeline finds them in the
// store, and Service carries no more than hints to it. Its parts know less
// still:
//
//	submission   what a job may be; knows no HTTP
//	events       who listens to what, and what is new for whom
//	sdk          a dialect: other forms of the same answers
//	exchange     bodies read while they arrive, answers while they are written
//	request      what is wrong with a request, and how that is said
//
// The API is described by openapi.yaml, served as /openapi.json. The tests
// check every request and answer against it.
package http

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	nethttp "net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/internal/tracing"
	"github.com/rowmill/rowmill/store"
)

// Service is what the API needs of the pipeline. Submitted and Cancelled are
// hints that must not block: a lost one costs time, never a job.
type Service interface {
	Fleet
	Watched
	Doctor
	Metered
	Vault

	// Submitted says that a job was just stored.
	Submitted(record store.Record)
	// Cancelled says that a job was just cancelled in the store.
	Cancelled(jobID string)
	// Checks reports on the parts that jobs need, for /readyz.
	Checks(ctx context.Context) []Check
	// Waiting says to a client what a job of an account waits for, if it is known,
	// where its record cannot say it; else it is empty. It goes by the job's id and
	// status, and may be asked each second.
	Waiting(job *rowmill.Job, account string) string
	// Whereabouts says where the rows of a job are that is not over; nil where that
	// is not known. The job is read, and no more.
	Whereabouts(ctx context.Context, record *store.Record) *Whereabouts
	// Counting says how this node counts prompts of a model.
	Counting(model rowmill.Model) Counting
	// Draining reports whether the node is about to stop: it takes no
	// further jobs.
	Draining() bool
}

// Check is one line of /readyz?verbose.
type Check struct {
	Name string // such as "store" or "engines"
	OK   bool   // false makes the node not ready
	Text string // for a person; never holds a secret
}

// Version is what /version answers.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Built   string `json:"built"`
	Go      string `json:"go"`
}

// Quota bounds one job of an account at one priority.
type Quota struct {
	Priority   rowmill.Priority `json:"priority"`
	RowQuota   int64            `json:"row_quota"`
	TokenQuota int64            `json:"token_quota"`
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
	Issuer  Issuer
	Version Version

	// EnginesOnly says that this node takes no requests about jobs.
	EnginesOnly bool

	// Objects serves the signed URLs of the embedded bucket under /objects/;
	// nil where the bucket has its own address.
	Objects nethttp.Handler
	// Console is the web page; nil answers 404 under /console/.
	Console Console

	// MaxBodyBytes bounds a request body. Default 512 MiB: a million rows of
	// 500 bytes; more belongs into a file behind a URL.
	MaxBodyBytes int64
	// Dedup has equal rows run once in jobs whose submissions do not say. Default
	// false.
	Dedup bool

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
	// Patience is how long a client may neither send nor take a byte of a
	// body. Default 2 min: longer than any hiccup of a network, and short
	// enough that clients that are gone hold no rows and files for long.
	Patience time.Duration
	// Quotas are those of accounts without their own. Default: the
	// interface's.
	Quotas []Quota
	// RequestsPerMinute bounds the requests of each key that has no bound of
	// its own, on this node. Default: 0, no bound; the queue of jobs is fair
	// between accounts without one.
	RequestsPerMinute int
	// MaxKeys bounds the keys of each account. Default: 1,000; every node holds
	// all keys and reads them anew every two seconds.
	MaxKeys int
	// MaxStreams bounds the streams of events of this node. Default: 256; each
	// holds a connection, and while one is open the store is looked at each second.
	MaxStreams int
	// FunctionDeadline is how long a run of a Function for one input may take.
	// Default 90 s: clients give up after 100 s.
	FunctionDeadline time.Duration
	// IdempotencyTTL is how long an Idempotency-Key is kept. Default 24 h.
	IdempotencyTTL time.Duration
	// Webhooks sends events. Default: nothing is sent.
	Webhooks Webhooks
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// defaultQuotas returns the default quotas of each priority, in order.
func defaultQuotas() (quotas []Quota) {
	for _, p := range rowmill.Priorities() {
		rows, tokens := p.DefaultQuotas()
		quotas = append(quotas, Quota{Priority: p, RowQuota: rows, TokenQuota: tokens})
	}
	return quotas
}

// WithDefaults returns the configuration with its unset fields filled in.
func (c Config) WithDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MaxBodyBytes == 0 {
		c.MaxBodyBytes = 512 << 20
	}
	if c.MaxRowBytes == 0 {
		c.MaxRowBytes = 8 << 20
	}
	if c.MaxInlineBytes == 0 {
		c.MaxInlineBytes = 64 << 10
	}
	if c.MaxFileBytes == 0 {
		c.MaxFileBytes = 512 << 20
	}
	if c.MaxUploadBytes == 0 {
		c.MaxUploadBytes = 8 << 30
	}
	if c.MaxInputRows == 0 {
		c.MaxInputRows = 100_000_000
	}
	if c.MaxHeaderBytes == 0 {
		c.MaxHeaderBytes = 64 << 10
	}
	if c.Patience == 0 {
		c.Patience = 2 * time.Minute
	}
	if c.Quotas == nil {
		c.Quotas = defaultQuotas()
	}
	if c.MaxKeys == 0 {
		c.MaxKeys = 1000
	}
	if c.MaxStreams == 0 {
		c.MaxStreams = 256
	}
	if c.FunctionDeadline == 0 {
		c.FunctionDeadline = 90 * time.Second
	}
	if c.IdempotencyTTL == 0 {
		c.IdempotencyTTL = 24 * time.Hour
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Webhooks == nil {
		c.Webhooks = noWebhooks{}
	}
	return c
}

// Validate names the field that is missing or out of range.
func (c Config) Validate() error {
	switch {
	case c.Store == nil:
		return errors.New("http: Config.Store is missing")
	case c.Bucket == nil:
		return errors.New("http: Config.Bucket is missing")
	case c.Catalog == nil:
		return errors.New("http: Config.Catalog is missing")
	case c.Service == nil:
		return errors.New("http: Config.Service is missing")
	case c.MaxBodyBytes < 1:
		return fmt.Errorf("http: Config.MaxBodyBytes: %d must be at least 1", c.MaxBodyBytes)
	case c.MaxRowBytes < 1:
		return fmt.Errorf("http: Config.MaxRowBytes: %d must be at least 1", c.MaxRowBytes)
	case c.MaxInlineBytes < 0:
		return fmt.Errorf("http: Config.MaxInlineBytes: %d must not be negative", c.MaxInlineBytes)
	case c.MaxFileBytes < 1:
		return fmt.Errorf("http: Config.MaxFileBytes: %d must be at least 1", c.MaxFileBytes)
	case c.MaxUploadBytes < 1:
		return fmt.Errorf("http: Config.MaxUploadBytes: %d must be at least 1", c.MaxUploadBytes)
	case c.MaxInputRows < 1:
		return fmt.Errorf("http: Config.MaxInputRows: %d must be at least 1", c.MaxInputRows)
	case c.MaxHeaderBytes < 1024:
		return fmt.Errorf("http: Config.MaxHeaderBytes: %d must be at least 1024", c.MaxHeaderBytes)
	case c.Patience < 0:
		return fmt.Errorf("http: Config.Patience: %v must not be negative", c.Patience)
	case c.RequestsPerMinute < 0:
		return fmt.Errorf("http: Config.RequestsPerMinute: %d must not be negative", c.RequestsPerMinute)
	case c.MaxKeys < 1:
		return fmt.Errorf("http: Config.MaxKeys: %d must be at least 1", c.MaxKeys)
	case c.MaxStreams < 1:
		return fmt.Errorf("http: Config.MaxStreams: %d must be at least 1", c.MaxStreams)
	case c.FunctionDeadline < 0:
		return fmt.Errorf("http: Config.FunctionDeadline: %v must not be negative", c.FunctionDeadline)
	case c.IdempotencyTTL < 0:
		return fmt.Errorf("http: Config.IdempotencyTTL: %v must not be negative", c.IdempotencyTTL)
	}
	seen := map[rowmill.Priority]bool{}
	for i, q := range c.Quotas {
		if err := q.Priority.Validate(); err != nil {
			return fmt.Errorf("http: Config.Quotas[%d].Priority: %w", i, err)
		}
		if q.RowQuota < 0 || q.TokenQuota < 0 {
			return fmt.Errorf("http: Config.Quotas[%d]: row_quota %d and token_quota %d must not be negative", i, q.RowQuota, q.TokenQuota)
		}
		seen[q.Priority] = true
	}
	if all := len(rowmill.Priorities()); len(seen) != all || len(c.Quotas) != all {
		return errors.New("http: Config.Quotas: must hold each priority once")
	}
	return nil
}

// Server answers the API. It holds no job: every request reads the store. It
// routes; each resource has handlers of its own.
type Server struct {
	Config
	exchange *exchange.Exchange
	engine   *gin.Engine
	ring     *keyring
	seal     *seal
	openapi  []byte // openapi.yaml as JSON
}

// New builds the API's handler. It starts nothing and reads nothing.
func New(config Config) (*Server, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	document, err := openAPIDocument(config.Version.Version)
	if err != nil {
		return nil, err
	}
	s := &Server{
		Config:   config,
		exchange: &exchange.Exchange{Logger: config.Logger, Patience: config.Patience, MaxBody: config.MaxBodyBytes},
		openapi:  document,
	}
	s.engine = s.routes(newRequestMetrics(config.Registerer))
	return s, nil
}

// SetAdminKeys replaces Config.AdminKeys. Sessions that were begun with one that is left
// out are over.
func (s *Server) SetAdminKeys(keys []string) { s.ring.configure(keys) }

// SealWith has secrets seal the sessions of browsers from now on, the first of which
// seals and all of which open; nil among them stands for the key of the store. Without
// any that is used.
func (s *Server) SealWith(secrets [][]byte) error { return s.seal.use(secrets) }

// Handler returns the handler of all routes, to be served by an http.Server.
func (s *Server) Handler() nethttp.Handler { return s.engine }
