// Package http is the REST API: the server, its middleware, health, models, and the
// routes of all parts. It reads jobs and results straight from the store and the
// bucket, so any node answers for any job. It refuses to know how jobs run: the
// pipeline finds them in the store, and Service carries no more than hints to it.
// Each resource is a part with its handlers and the form of its answers:
//
//	jobs submit rows downloads functions streams
//	keys quotas settings usage webhooks audit nodes console
//	openai anthropic sdk   dialects: other forms of the same answers
//
// The parts stand on these:
//
//	access       who may pass, and how often
//	caller       who sends a request, and for which account
//	batch        batches of all dialects
//	submission   what a job may be; knows no HTTP
//	events       who listens to what, and what is new for whom
//	exchange     bodies read while they arrive, answers while they are written
//	request      what is wrong with a request, and how that is said
//
// The API is described by openapi.yaml, served as /openapi.json. The tests
// check every request and answer against it.
package http

import (
	"context"
	nethttp "net/http"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/access"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/jobs"
	"github.com/rowmill/rowmill/http/nodes"
	"github.com/rowmill/rowmill/http/submit"
)

// Service is what the API needs of the pipeline.
type Service interface {
	nodes.Service
	jobs.Service
	submit.Service

	// Checks reports on the parts that jobs need, for /readyz.
	Checks(ctx context.Context) []Check
	// Counting says how this node counts prompts of a model.
	Counting(model rowmill.Model) Counting
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

// Server answers the API. It holds no job: every request reads the store. It
// routes; each resource has handlers of its own.
type Server struct {
	Config
	exchange *exchange.Exchange
	engine   *gin.Engine
	ring     *access.Keyring
	seal     *access.Seal
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
func (s *Server) SetAdminKeys(keys []string) { s.ring.Configure(keys) }

// SealWith has secrets seal the sessions of browsers from now on, the first of which
// seals and all of which open; nil among them stands for the key of the store. Without
// any that is used.
func (s *Server) SealWith(secrets [][]byte) error { return s.seal.Use(secrets) }

// Handler returns the handler of all routes, to be served by an http.Server.
func (s *Server) Handler() nethttp.Handler { return s.engine }
