// Package http is the REST API: the server, its middleware, health, models, and the
// routes of all parts. It reads jobs and results directly from the store and the bucket,
// so any node can answer for any job. It does not run jobs: the pipeline finds them in
// the store, and Service only passes hints and questions to the pipeline. Each of these
// packages has the handlers of a resource and the form of its answers:
//
//	jobs submit rows downloads functions streams
//	keys quotas settings usage webhooks audit nodes console
//	openai anthropic sdk   dialects: other forms of the same answers
//
// The other packages help these packages:
//
//	access       checks keys, tokens, sessions and rate limits
//	caller       the sender of a request, and the account that the request is about
//	batch        the common parts of batches in all dialects
//	submission   the rules for a new job; does not depend on HTTP
//	events       finds changes of jobs and nodes for event streams
//	exchange     reads bodies and writes answers
//	request      errors, and lists of problems in a request
//
// openapi.yaml describes the API and is served as /openapi.json. The tests check every
// request and answer against it.
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

// Service is the part of the pipeline that the API uses. The pipeline runs the jobs.
type Service interface {
	nodes.Service
	jobs.Service
	submit.Service

	// Checks returns the results of checking each part that jobs need, for /readyz.
	Checks(ctx context.Context) []ReadinessCheck
	// Counting returns how this node counts the tokens of a model's prompts.
	Counting(model rowmill.Model) TokenCounting
}

// ReadinessCheck is the result of checking one part of the node: a line of /readyz?verbose.
type ReadinessCheck struct {
	Name string // name of the checked part, such as "store" or "engines"
	OK   bool   // if false, the node is not ready
	Text string // the state of the part, for people; contains no secret
}

// BuildInfo is the answer of GET /version.
type BuildInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Built   string `json:"built"`
	Go      string `json:"go"`
}

// Server answers the API's requests. It keeps no jobs in memory: every request reads
// jobs from the store.
type Server struct {
	Config
	exchange *exchange.Exchange
	engine   *gin.Engine
	ring     *access.Keyring
	sessions *access.Sessions
	openapi  []byte // openapi.yaml as JSON
}

// New returns a server. It starts no goroutine and reads nothing from the store.
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
		exchange: &exchange.Exchange{Logger: config.Logger, StallTimeout: config.StallTimeout, MaxBody: config.MaxBodyBytes},
		openapi:  document,
	}
	s.engine = s.newRouter(newRequestMetrics(config.Registerer))
	return s, nil
}

// SetAdminKeys replaces Config.AdminKeys. It ends the browser sessions that were
// started with a removed key.
func (s *Server) SetAdminKeys(keys []string) { s.ring.SetAdminKeys(keys) }

// SetSessionSecrets replaces the secrets that encrypt browser sessions. New sessions use the
// first secret; sessions that were encrypted with any of the secrets stay valid. A nil
// secret means the key in the store, which is also used if there are no secrets.
func (s *Server) SetSessionSecrets(secrets [][]byte) error {
	return s.sessions.Seal.SetSecrets(secrets)
}

// CreateLoginToken returns the token of a login link of the console, which starts one browser
// session for an API key. Never log it.
func (s *Server) CreateLoginToken(key string) string { return s.sessions.CreateLoginToken(key) }

// Handler returns the handler of all routes, to be served by an http.Server.
func (s *Server) Handler() nethttp.Handler { return s.engine }
