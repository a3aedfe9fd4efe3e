package http

import (
	"context"
	nethttp "net/http"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine/offer"
	"github.com/rowmill/rowmill/http/anthropic"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/openai"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/http/sdk"
	"github.com/rowmill/rowmill/http/submission"
	"github.com/rowmill/rowmill/http/webhook"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/input/function"
	"github.com/rowmill/rowmill/internal/memo"
	"github.com/rowmill/rowmill/internal/spelling"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// routes builds the engine. Every route here is in openapi.yaml and the other
// way round, which a test checks.
func (s *Server) routes(metrics *requestMetrics) *gin.Engine {
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.RedirectTrailingSlash = false // a redirected POST would lose its body
	engine.Use(s.exchange.Linger, unsniffed, identify, s.observe(metrics), s.recovered, s.boundHeaders)
	engine.NoRoute(s.exchange.Do(unknownRoute))
	engine.NoMethod(s.exchange.Do(wrongMethod))
	if s.Objects != nil {
		engine.GET("/objects/*key", gin.WrapH(s.Objects))
		engine.HEAD("/objects/*key", gin.WrapH(s.Objects))
	}
	engine.Use(s.wellAsked) // of signed addresses the signature decides
	handle := s.exchange.Handle

	ring := newKeyring(s.Store, s.AdminKeys, s.RequestsPerMinute, s.Now)
	ring.issuer = s.Issuer
	s.ring = ring
	health := &health{Exchange: s.exchange, keys: ring, store: s.Store, service: s.Service, version: s.Version, openapi: s.openapi}
	for _, method := range []string{nethttp.MethodGet, nethttp.MethodHead} { // load balancers ask with either
		engine.Handle(method, "/livez", health.live)
		engine.Handle(method, "/readyz", health.ready)
	}
	engine.GET("/version", handle(health.showVersion))
	engine.GET("/metrics", health.metrics(s.Gatherer))
	engine.GET("/openapi.json", health.openAPI)
	console := &pages{Exchange: s.exchange, console: s.Console}
	for _, path := range []string{"/", "/console"} {
		engine.GET(path, s.exchange.Do(console.enter))
	}
	engine.GET("/console/*path", console.show)

	sessions := newSessions(s.exchange, ring, s.Store, s.Now)
	s.seal = sessions.seal
	engine.POST("/console/session", handle(sessions.begin))
	engine.DELETE("/console/session", handle(sessions.end))

	own := (&gate{Exchange: s.exchange, keys: ring, limits: newLimiter(s.Now), schemes: []string{schemeKey}}).taking(sessions)
	audit := &auditor{store: s.Store, logger: s.Logger, now: s.Now}
	nodes := &nodes{Exchange: s.exchange, fleet: s.Service, audit: audit}
	fleet := engine.Group("/v1/nodes", own.pass)
	fleet.GET("", handle(nodes.list))
	fleet.POST("/:node/drain", handle(nodes.drain))

	engine.GET("/v1/me", own.pass, handle((&self{service: s.Service, version: s.Version.Version}).show))
	servers := &engines{service: s.Service, now: s.Now}
	engine.GET("/v1/engines", own.pass, handle(servers.list))
	engine.GET("/v1/gpus", own.pass, handle(servers.gpus))
	engine.GET("/v1/stats", own.pass, handle(servers.stats))
	engine.GET("/v1/actors", own.pass, handle(nodes.actors))
	engine.GET("/v1/diagnosis", own.pass, handle(nodes.diagnose))
	engine.POST("/v1/backup", own.pass, s.exchange.Do((&backups{Exchange: s.exchange, vault: s.Service, audit: audit}).make))

	enter := func(by *gin.RouterGroup, g *gate) *gin.RouterGroup {
		by.Use(g.pass)
		if s.EnginesOnly {
			by.Use(nodes.elsewhere)
		}
		return by
	}
	v1 := enter(engine.Group("/v1"), own)
	jobs := &jobs{
		Exchange: s.exchange, store: s.Store, bucket: s.Bucket, cancelled: s.Service.Cancelled, waiting: s.Service.Waiting, now: s.Now,
		spelled: spelled{memo.Recent[*rowmill.Job, []byte]{Most: spelledJobs}},
		announce: func(ctx context.Context, record *store.Record) error {
			_, err := webhook.Announce(ctx, s.Store, record)
			return err
		},
	}
	v1.GET("/events", s.exchange.Do(s.newStreams(jobs, own, nodes).listen))
	s.routeJobs(jobs, entrances{
		own:       v1,
		shared:    enter(engine.Group("/v1", exchange.Shaped(errorOfModels)), own.speaking(anthropic.HeaderKey, schemeKey, openai.Scheme).taking(sessions)),
		openai:    enter(engine.Group("/v1", exchange.Shaped(openai.Error)), own.speaking("", openai.Scheme, schemeKey).taking(sessions)),
		anthropic: enter(engine.Group("/v1", exchange.Shaped(anthropic.Error), anthropic.Identify), own.speaking(anthropic.HeaderKey, anthropic.Scheme, schemeKey)),
	}, audit)

	keys := &keys{Exchange: s.exchange, store: s.Store, ring: ring, audit: audit, most: s.MaxKeys, now: s.Now}
	v1.GET("/auth/check", handle(checkAuth))
	v1.GET("/try-authentication", handle(checkAuth))
	v1.GET("/keys", handle(keys.list))
	v1.POST("/keys", handle(keys.create))
	v1.POST("/keys/:key_id/rotate", handle(keys.rotate))
	v1.DELETE("/keys/:key_id", handle(keys.revoke))

	settings := &settings{Exchange: s.exchange, store: s.Store, audit: audit}
	v1.GET("/settings", handle(settings.show))
	v1.PATCH("/settings", handle(settings.patch))
	v1.GET("/settings/preview", handle(settings.preview))
	webhooks := &webhooks{Exchange: s.exchange, store: s.Store, sender: s.Webhooks, audit: audit, now: s.Now}
	v1.GET("/webhooks", handle(webhooks.list))
	v1.POST("/webhooks", handle(webhooks.create))
	v1.GET("/webhooks/:webhook_id", handle(webhooks.show))
	v1.PATCH("/webhooks/:webhook_id", handle(webhooks.patch))
	v1.DELETE("/webhooks/:webhook_id", handle(webhooks.remove))
	v1.POST("/webhooks/:webhook_id/rotate", handle(webhooks.rotate))
	v1.POST("/webhooks/:webhook_id/test", handle(webhooks.test))
	v1.GET("/webhooks/:webhook_id/deliveries", handle(webhooks.deliveries))
	v1.POST("/webhooks/:webhook_id/deliveries/:delivery_id/redeliver", handle(webhooks.redeliver))
	usage := &usage{store: s.Store, now: s.Now}
	v1.GET("/usage", handle(usage.show))
	v1.GET("/audit", handle(audit.list))
	return engine
}

// entrances are the groups of routes by how their clients show their keys and read
// errors.
type entrances struct {
	own       *gin.RouterGroup // as the API says
	shared    *gin.RouterGroup // the same, and keys as clients of the dialects show them
	openai    *gin.RouterGroup // as OpenAI's clients do
	anthropic *gin.RouterGroup // as Anthropic's clients do
}

// routeJobs adds the routes of jobs, of what bounds them, and of the Functions
// that they run.
func (s *Server) routeJobs(jobs *jobs, by entrances, audit *auditor) {
	v1 := by.own
	handle, do := s.exchange.Handle, s.exchange.Do
	shelf := archive.New(s.Store, s.Bucket, s.Logger)
	dialect := &sdk.Dialect{
		Exchange: s.exchange, Jobs: jobs, Store: s.Store, Archive: shelf, Draining: s.Service.Draining, Now: s.Now,
		Spoken: speaksSDK,
	}
	dialect.Route(v1)
	shared := newSharing(s.Now)
	v1.GET("/jobs/:job_id", handle(shared.of(jobs.show)))
	v1.GET("/job-status/:job_id", handle(jobs.statusIn(dialect)))
	v1.GET("/job-cancel/:job_id", handle(jobs.cancel))
	v1.POST("/jobs/:job_id/cancel", handle(jobs.cancel))
	v1.POST("/jobs/cancel", handle((&bulk{jobs, audit}).cancelAll))
	v1.GET("/jobs/counts", handle(newTally(jobs).show))
	v1.GET("/list-jobs", do(jobs.listIn(shared)))
	v1.DELETE("/jobs/:job_id/data", handle(jobs.deleteData))

	downloads := &downloads{Exchange: s.exchange, jobs: jobs, archive: shelf, bucket: s.Bucket}
	v1.GET("/jobs/:job_id/results", do(downloads.file))
	v1.GET("/jobs/:job_id/results-url", handle(downloads.urls))
	rows := &rows{jobs: jobs, archive: shelf}
	v1.GET("/jobs/:job_id/rows/:row", handle(rows.show))
	v1.GET("/jobs/:job_id/errors", handle(rows.failures))
	v1.GET("/jobs/:job_id/errors/counts", handle(shared.of(rows.countFailures)))
	v1.GET("/jobs/:job_id/preview", handle(rows.preview))
	progress := &progress{jobs: jobs, whereabouts: s.Service.Whereabouts}
	v1.GET("/jobs/:job_id/progress", handle(shared.of(progress.show)))
	v1.GET("/jobs/:job_id/timeline", handle(shared.of(progress.timeline)))

	quotas := &quotas{Exchange: s.exchange, store: s.Store, configured: s.Quotas, audit: audit}
	v1.GET("/get-quotas", handle(quotas.get))
	v1.GET("/quotas", handle(quotas.show))
	v1.PUT("/quotas", handle(quotas.put))

	models := offer.New(s.Catalog, s.Service.Servers)
	list := &modelList{all: models, counting: s.Service.Counting}
	by.shared.GET("/models", handle(list.list))
	by.shared.GET("/models/*model", handle(list.show))
	library := function.Library{Values: s.Store, Now: s.Now}
	submissions := &submissions{
		Exchange: s.exchange, quotas: quotas, store: s.Store, service: s.Service, keyTTL: s.IdempotencyTTL, now: s.Now,
		intake: &submission.Intake{
			Models: models, Functions: library, Bucket: s.Bucket, Files: s.Store, Now: s.Now, MaxRow: s.MaxRowBytes, MaxInline: s.MaxInlineBytes, Dedup: s.Dedup,
		},
	}
	v1.POST("/batch-inference", handle(submissions.submit))
	batched, limits := &batches{jobs: jobs, submissions: submissions}, input.Limits{MaxRows: s.MaxInputRows, MaxRowBytes: int64(s.MaxRowBytes)}
	(&openai.Dialect{
		Exchange: s.exchange, Jobs: batched, Store: s.Store, Bucket: s.Bucket, Archive: shelf,
		Model: models.Find, Now: s.Now, Limits: openai.Limits{FileBytes: s.MaxFileBytes, UploadBytes: s.MaxUploadBytes, Input: limits},
	}).Route(by.openai)
	(&anthropic.Dialect{
		Exchange: s.exchange, Jobs: batched, Store: s.Store, Bucket: s.Bucket, Archive: shelf,
		Model: models.Find, Now: s.Now, Limits: anthropic.Limits{BodyBytes: s.MaxFileBytes, Input: limits},
	}).Route(by.anthropic)
	resumptions := &resumptions{submissions: submissions, jobs: jobs, continued: s.Store.Continued}
	v1.POST("/jobs/:job_id/resume", handle(resumptions.resume))

	functions := &functions{Exchange: s.exchange, library: library, models: models, audit: audit}
	v1.GET("/functions", do(functions.list))
	v1.POST("/functions", handle(functions.publish))
	v1.GET("/functions/:function", handle(functions.show))
	v1.DELETE("/functions/:function", handle(functions.unpublish))
	v1.GET("/functions/:function/revisions", do(functions.revisions))
	v1.POST("/functions/:function/rollback", handle(functions.rollback))
	runs := &runs{submissions: submissions, jobs: jobs, archive: shelf, deadline: s.FunctionDeadline}
	v1.POST("/functions/:function/run", handle(runs.run))
}

func unknownRoute(c *gin.Context) error {
	return request.Errorf(nethttp.StatusNotFound, "unknown_route",
		"there is nothing at %s %s; /openapi.json lists all routes", c.Request.Method, spelling.Shorten(c.Request.URL.Path, 256))
}

func wrongMethod(c *gin.Context) error {
	return request.Errorf(nethttp.StatusMethodNotAllowed, "method_not_allowed",
		"%s is not possible here, only %s", spelling.Shorten(c.Request.Method, 32), c.Writer.Header().Get("Allow"))
}
