package http

import (
	nethttp "net/http"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/engine/served"
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
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/results/archive"
)

// newRouter builds the router. A test checks that the router and openapi.yaml have the same
// routes.
func (s *Server) newRouter(metrics *requestMetrics) *gin.Engine {
	engine := s.newBaseRouter(metrics)
	ring := access.NewKeyring(s.Store, s.AdminKeys, s.Issuer, s.RequestsPerMinute, s.Now)
	sessions := access.NewSessions(s.exchange, ring, s.Store, s.Now)
	s.ring, s.sessions = ring, sessions
	own := access.NewGate(ring, sessions)
	s.routeHealth(engine, own)
	(&console.Pages{Exchange: s.exchange, Console: s.Console}).Route(engine)
	sessions.Route(engine)

	auditor := &audit.Auditor{Exchange: s.exchange, Store: s.Store, Now: s.Now}
	nodeRoutes := &nodes.Nodes{Exchange: s.exchange, Service: s.Service, Audit: auditor, Now: s.Now, Version: s.Version.Version}
	always := engine.Group("/v1", own.RequireAuth) // routes that nodes of all roles have
	nodeRoutes.Route(always)

	groups := s.newGroups(engine, own, sessions, nodeRoutes)
	allJobs := jobs.New(jobs.Config{Exchange: s.exchange, Store: s.Store, Bucket: s.Bucket, Service: s.Service, Audit: auditor, Now: s.Now})
	hub := events.New(events.Config{
		Store: s.Store, Nodes: nodeRoutes.ListJSON, Waiting: s.Service.WaitReason, Logger: s.Logger, Now: s.Now, Most: s.MaxStreams,
	})
	(&streams.Streams{Exchange: s.exchange, Jobs: allJobs, Gate: own, Hub: hub, Draining: s.Service.Draining}).Route(groups.own)
	s.routeJobs(allJobs, groups, auditor)
	(&keys.Keys{Exchange: s.exchange, Store: s.Store, Ring: ring, Audit: auditor, Most: s.MaxKeys, Now: s.Now}).Route(groups.own)
	(&settings.Settings{Exchange: s.exchange, Store: s.Store, Audit: auditor}).Route(groups.own)
	(&webhooks.Webhooks{Exchange: s.exchange, Store: s.Store, Sender: s.Webhooks, Audit: auditor, Now: s.Now}).Route(groups.own)
	(&usage.Usage{Exchange: s.exchange, Store: s.Store, Now: s.Now}).Route(groups.own)
	auditor.Route(groups.own)
	return engine
}

// newBaseRouter returns a router with the middleware for all requests. It adds only the
// routes of signed URLs (/objects/).
func (s *Server) newBaseRouter(metrics *requestMetrics) *gin.Engine {
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.RedirectTrailingSlash = false // a redirected POST would lose its body
	engine.Use(s.exchange.DrainRefusedBody, setNoSniffHeader, assignID, s.observeRequests(metrics), s.recoverPanic, s.limitHeaders)
	engine.NoRoute(s.exchange.HandleRaw(exchange.UnknownRoute))
	engine.NoMethod(s.exchange.HandleRaw(wrongMethodError))
	if s.Objects != nil {
		engine.GET("/objects/*key", gin.WrapH(s.Objects))
		engine.HEAD("/objects/*key", gin.WrapH(s.Objects))
	}
	engine.Use(s.checkQuery) // not for the routes of signed URLs above: their handler checks a signature instead
	return engine
}

// routeGroups has one group of routes for each kind of client. The groups differ in how
// clients send keys and in the form of errors.
type routeGroups struct {
	own       *gin.RouterGroup // for the API's own clients
	shared    *gin.RouterGroup // for all clients: the API's own, OpenAI's and Anthropic's
	openai    *gin.RouterGroup // for OpenAI's clients
	anthropic *gin.RouterGroup // for Anthropic's clients
}

// newGroups creates the groups of routes about jobs. A node with EnginesOnly refuses
// requests to these routes.
func (s *Server) newGroups(engine *gin.Engine, own *access.Gate, sessions *access.Sessions, nodeRoutes *nodes.Nodes) routeGroups {
	enter := func(g *access.Gate, before ...gin.HandlerFunc) *gin.RouterGroup {
		groups := engine.Group("/v1", append(before, g.RequireAuth)...)
		if s.EnginesOnly {
			groups.Use(nodeRoutes.RefuseJobs)
		}
		return groups
	}
	return routeGroups{
		own:       enter(own),
		shared:    enter(own.WithSchemes(anthropic.HeaderKey, access.SchemeKey, openai.Scheme).WithSessions(sessions), exchange.WithErrorShape(newModelsErrorBody)),
		openai:    enter(own.WithSchemes("", openai.Scheme, access.SchemeKey).WithSessions(sessions), exchange.WithErrorShape(openai.NewErrorBody)),
		anthropic: enter(own.WithSchemes(anthropic.HeaderKey, anthropic.Scheme, access.SchemeKey), exchange.WithErrorShape(anthropic.NewErrorBody), anthropic.SetRequestID),
	}
}

// routeJobs adds the routes of jobs, of quotas, of models and of Functions.
func (s *Server) routeJobs(allJobs *jobs.Jobs, groups routeGroups, auditor *audit.Auditor) {
	results := archive.New(s.Store, s.Bucket, s.Logger)
	results.Version = s.Version.Version
	dialect := &sdk.Dialect{Exchange: s.exchange, Jobs: allJobs, Store: s.Store, Archive: results, Draining: s.Service.Draining, Now: s.Now}
	dialect.Route(groups.own)
	allJobs.Route(groups.own, dialect)
	(&downloads.Downloads{Exchange: s.exchange, Jobs: allJobs, Archive: results, Bucket: s.Bucket}).Route(groups.own)
	(&rows.Rows{Jobs: allJobs, Archive: results}).Route(groups.own)
	accountQuotas := &quotas.Quotas{Exchange: s.exchange, Store: s.Store, Configured: s.Quotas, Audit: auditor}
	accountQuotas.Route(groups.own)

	offered := served.New(s.Catalog, s.Service.Servers)
	(&modelHandlers{Exchange: s.exchange, all: offered, counting: s.Service.Counting}).route(groups.shared)
	submissions := &submit.Submissions{
		Exchange: s.exchange, Quotas: accountQuotas, Jobs: allJobs, Store: s.Store, Service: s.Service, KeyTTL: s.IdempotencyTTL, JobWait: s.JobWait, Now: s.Now,
		Intake: &submission.Parser{
			Models: offered, Functions: function.Library{Values: s.Store, Now: s.Now}, Bucket: s.Bucket, Files: s.Store, Jobs: s.Store, Sources: s.Sources, Now: s.Now, MaxRow: s.MaxRowBytes, MaxInline: s.MaxInlineBytes, Dedup: s.Dedup,
		},
	}
	submissions.Route(groups.own, results)
	s.routeBatches(allJobs, submissions, groups, results)
	(&functions.Functions{Submissions: submissions, Archive: results, Audit: auditor}).Route(groups.own)
}

// routeBatches adds the routes of the two dialects that have batches: OpenAI's and
// Anthropic's.
func (s *Server) routeBatches(allJobs *jobs.Jobs, submissions *submit.Submissions, groups routeGroups, results *archive.Archive) {
	config := batch.Config{
		Exchange: s.exchange, Jobs: allJobs, Submissions: submissions, Store: s.Store, Bucket: s.Bucket, Archive: results, Models: submissions.Intake.Models, Now: s.Now,
		Limits: batch.Limits{
			FileBytes: s.MaxFileBytes, UploadBytes: s.MaxUploadBytes,
			Input: input.Limits{MaxRows: s.MaxInputRows, MaxRowBytes: int64(s.MaxRowBytes)},
		},
	}
	(&openai.Dialect{Config: config}).Route(groups.openai)
	(&anthropic.Dialect{Config: config}).Route(groups.anthropic)
}

func wrongMethodError(c *gin.Context) error {
	return request.Errorf(nethttp.StatusMethodNotAllowed, "method_not_allowed",
		"the method %s is not possible at this address; use %s", textfmt.Shorten(c.Request.Method, 32), c.Writer.Header().Get("Allow"))
}
