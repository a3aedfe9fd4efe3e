package http

import (
	nethttp "net/http"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/engine/offer"
	"github.com/rowmill/rowmill/http/access"
	"github.com/rowmill/rowmill/http/anthropic"
	"github.com/rowmill/rowmill/http/audit"
	"github.com/rowmill/rowmill/http/batch"
	"github.com/rowmill/rowmill/http/console"
	"github.com/rowmill/rowmill/http/downloads"
	"github.com/rowmill/rowmill/http/events"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/functions"
	"github.com/rowmill/rowmill/http/jobs"
	"github.com/rowmill/rowmill/http/keys"
	"github.com/rowmill/rowmill/http/nodes"
	"github.com/rowmill/rowmill/http/openai"
	"github.com/rowmill/rowmill/http/quotas"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/http/rows"
	"github.com/rowmill/rowmill/http/sdk"
	"github.com/rowmill/rowmill/http/settings"
	"github.com/rowmill/rowmill/http/streams"
	"github.com/rowmill/rowmill/http/submission"
	"github.com/rowmill/rowmill/http/submit"
	"github.com/rowmill/rowmill/http/usage"
	"github.com/rowmill/rowmill/http/webhooks"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/input/function"
	"github.com/rowmill/rowmill/internal/spelling"
	"github.com/rowmill/rowmill/results/archive"
)

// routes builds the router. A test checks that it and openapi.yaml have the same routes.
func (s *Server) routes(metrics *requestMetrics) *gin.Engine {
	engine := s.newEngine(metrics)
	ring := access.NewKeyring(s.Store, s.AdminKeys, s.Issuer, s.RequestsPerMinute, s.Now)
	sessions := access.NewSessions(s.exchange, ring, s.Store, s.Now)
	s.ring, s.seal = ring, sessions.Seal
	own := access.NewGate(ring, sessions)
	s.routeHealth(engine, own)
	(&console.Pages{Exchange: s.exchange, Console: s.Console}).Route(engine)
	sessions.Route(engine)

	acts := &audit.Auditor{Exchange: s.exchange, Store: s.Store, Now: s.Now}
	fleet := &nodes.Nodes{Exchange: s.exchange, Service: s.Service, Audit: acts, Now: s.Now, Version: s.Version.Version}
	always := engine.Group("/v1", own.Pass) // on nodes of all roles
	fleet.Route(always)

	by := s.routeGroups(engine, own, sessions, fleet)
	known := jobs.New(jobs.Config{Exchange: s.exchange, Store: s.Store, Bucket: s.Bucket, Service: s.Service, Audit: acts, Now: s.Now})
	hub := events.New(events.Config{
		Store: s.Store, Nodes: fleet.Text, Waiting: s.Service.Waiting, Logger: s.Logger, Now: s.Now, Most: s.MaxStreams,
	})
	(&streams.Streams{Exchange: s.exchange, Jobs: known, Gate: own, Hub: hub, Draining: s.Service.Draining}).Route(by.own)
	s.routeJobs(known, by, acts)
	(&keys.Keys{Exchange: s.exchange, Store: s.Store, Ring: ring, Audit: acts, Most: s.MaxKeys, Now: s.Now}).Route(by.own)
	(&settings.Settings{Exchange: s.exchange, Store: s.Store, Audit: acts}).Route(by.own)
	(&webhooks.Webhooks{Exchange: s.exchange, Store: s.Store, Sender: s.Webhooks, Audit: acts, Now: s.Now}).Route(by.own)
	(&usage.Usage{Exchange: s.exchange, Store: s.Store, Now: s.Now}).Route(by.own)
	acts.Route(by.own)
	return engine
}

// newEngine returns a router with the middleware of all requests. It has only the routes
// of signed URLs.
func (s *Server) newEngine(metrics *requestMetrics) *gin.Engine {
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.RedirectTrailingSlash = false // a redirected POST would lose its body
	engine.Use(s.exchange.Linger, noSniff, identify, s.observe(metrics), s.recoverPanic, s.limitHeaders)
	engine.NoRoute(s.exchange.Do(exchange.UnknownRoute))
	engine.NoMethod(s.exchange.Do(wrongMethod))
	if s.Objects != nil {
		engine.GET("/objects/*key", gin.WrapH(s.Objects))
		engine.HEAD("/objects/*key", gin.WrapH(s.Objects))
	}
	engine.Use(s.checkQuery) // not for signed URLs: their signature decides
	return engine
}

// routeGroups has the groups of routes. They differ in how clients send keys and in the
// form of errors.
type routeGroups struct {
	own       *gin.RouterGroup // the API's own forms
	shared    *gin.RouterGroup // the API's own forms, and keys as clients of the dialects send them
	openai    *gin.RouterGroup // forms of OpenAI's clients
	anthropic *gin.RouterGroup // forms of Anthropic's clients
}

// routeGroups creates the groups of requests about jobs. A node with EnginesOnly refuses
// these requests.
func (s *Server) routeGroups(engine *gin.Engine, own *access.Gate, sessions *access.Sessions, fleet *nodes.Nodes) routeGroups {
	enter := func(g *access.Gate, before ...gin.HandlerFunc) *gin.RouterGroup {
		by := engine.Group("/v1", append(before, g.Pass)...)
		if s.EnginesOnly {
			by.Use(fleet.RefuseJobs)
		}
		return by
	}
	return routeGroups{
		own:       enter(own),
		shared:    enter(own.WithSchemes(anthropic.HeaderKey, access.SchemeKey, openai.Scheme).WithSessions(sessions), exchange.Shaped(errorOfModels)),
		openai:    enter(own.WithSchemes("", openai.Scheme, access.SchemeKey).WithSessions(sessions), exchange.Shaped(openai.Error)),
		anthropic: enter(own.WithSchemes(anthropic.HeaderKey, anthropic.Scheme, access.SchemeKey), exchange.Shaped(anthropic.Error), anthropic.Identify),
	}
}

// routeJobs adds the routes of jobs, of quotas, of models and of Functions.
func (s *Server) routeJobs(known *jobs.Jobs, by routeGroups, acts *audit.Auditor) {
	shelf := archive.New(s.Store, s.Bucket, s.Logger)
	dialect := &sdk.Dialect{Exchange: s.exchange, Jobs: known, Store: s.Store, Archive: shelf, Draining: s.Service.Draining, Now: s.Now}
	dialect.Route(by.own)
	known.Route(by.own, dialect)
	(&downloads.Downloads{Exchange: s.exchange, Jobs: known, Archive: shelf, Bucket: s.Bucket}).Route(by.own)
	(&rows.Rows{Jobs: known, Archive: shelf}).Route(by.own)
	bounds := &quotas.Quotas{Exchange: s.exchange, Store: s.Store, Configured: s.Quotas, Audit: acts}
	bounds.Route(by.own)

	offered := offer.New(s.Catalog, s.Service.Servers)
	(&modelList{Exchange: s.exchange, all: offered, counting: s.Service.Counting}).route(by.shared)
	made := &submit.Submissions{
		Exchange: s.exchange, Quotas: bounds, Store: s.Store, Service: s.Service, KeyTTL: s.IdempotencyTTL, Now: s.Now,
		Intake: &submission.Intake{
			Models: offered, Functions: function.Library{Values: s.Store, Now: s.Now}, Bucket: s.Bucket, Files: s.Store, Now: s.Now, MaxRow: s.MaxRowBytes, MaxInline: s.MaxInlineBytes, Dedup: s.Dedup,
		},
	}
	made.Route(by.own, known, shelf)
	s.routeBatches(known, made, by, shelf)
	(&functions.Functions{Submissions: made, Jobs: known, Archive: shelf, Audit: acts, Deadline: s.FunctionDeadline}).Route(by.own)
}

// routeBatches adds the routes of the dialects with batches.
func (s *Server) routeBatches(known *jobs.Jobs, made *submit.Submissions, by routeGroups, shelf *archive.Archive) {
	config := batch.Config{
		Exchange: s.exchange, Jobs: known, Submissions: made, Store: s.Store, Bucket: s.Bucket, Archive: shelf, Models: made.Intake.Models, Now: s.Now,
		Limits: batch.Limits{
			FileBytes: s.MaxFileBytes, UploadBytes: s.MaxUploadBytes,
			Input: input.Limits{MaxRows: s.MaxInputRows, MaxRowBytes: int64(s.MaxRowBytes)},
		},
	}
	(&openai.Dialect{Config: config}).Route(by.openai)
	(&anthropic.Dialect{Config: config}).Route(by.anthropic)
}

func wrongMethod(c *gin.Context) error {
	return request.Errorf(nethttp.StatusMethodNotAllowed, "method_not_allowed",
		"%s is not possible here, only %s", spelling.Shorten(c.Request.Method, 32), c.Writer.Header().Get("Allow"))
}
