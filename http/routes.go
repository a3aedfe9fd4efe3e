package http

import (
	nethttp "net/http"
	"strings"

	"github.com/gin-gonic/gin"
)

// routes builds the engine. Every route here is in openapi.yaml and the other
// way round, which a test checks.
func (s *Server) routes(metrics *requestMetrics) *gin.Engine {
	// gin has one mode per process; any but this prints to standard output.
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.RedirectTrailingSlash = false // a redirected POST would lose its body
	engine.Use(identify, s.observe(metrics), s.recovered, s.boundHeaders, s.boundBody)
	engine.NoRoute(s.unknownRoute)
	engine.NoMethod(s.wrongMethod)

	// For people and machines that operate the node: no key needed.
	engine.GET("/livez", s.livez)
	engine.GET("/readyz", s.readyz)
	engine.GET("/version", s.version)
	engine.GET("/metrics", s.metrics())
	engine.GET("/openapi.json", s.openAPI)
	engine.GET("/console/*path", s.console())
	if s.Objects != nil {
		engine.GET("/objects/*key", gin.WrapH(s.Objects))
		engine.HEAD("/objects/*key", gin.WrapH(s.Objects))
	}

	nodes := engine.Group("/v1/nodes", s.authenticate)
	nodes.GET("", s.listNodes)
	nodes.POST("/:node/drain", s.drainNode)

	v1 := engine.Group("/v1", s.authenticate, s.elsewhere)
	v1.POST("/batch-inference", s.submit)
	v1.GET("/job-cancel/:job_id", s.cancelJob)
	v1.GET("/jobs/:job_id", s.getJob)
	v1.GET("/job-status/:job_id", s.jobStatus)
	v1.GET("/list-jobs", s.listJobs)
	v1.GET("/jobs/:job_id/results", s.getResults)
	v1.GET("/jobs/:job_id/results-url", s.getResultsURL)
	v1.GET("/jobs/:job_id/rows/:row", s.getRow)
	v1.GET("/jobs/:job_id/errors", s.listErrors)
	v1.GET("/jobs/:job_id/preview", s.preview)
	v1.DELETE("/jobs/:job_id/data", s.deleteData)
	v1.POST("/job-results", s.jobResults)
	v1.GET("/stream-job-progress/:job_id", s.streamProgress)
	v1.GET("/get-quotas", s.getQuotas)
	v1.GET("/quotas", s.showQuotas)
	v1.PUT("/quotas", s.putQuotas)
	v1.GET("/usage", s.getUsage)
	v1.GET("/functions", s.listFunctions)
	v1.POST("/functions", s.publishFunction)
	v1.GET("/functions/:function", s.getFunction)
	v1.DELETE("/functions/:function", s.unpublishFunction)
	v1.GET("/functions/:function/revisions", s.listRevisions)
	v1.POST("/functions/:function/rollback", s.rollbackFunction)
	v1.POST("/functions/:function/run", s.runFunction)
	v1.GET("/auth/check", s.checkAuth)
	v1.GET("/try-authentication", s.checkAuth)
	v1.GET("/keys", s.listKeys)
	v1.POST("/keys", s.createKey)
	v1.POST("/keys/:key_id/rotate", s.rotateKey)
	v1.DELETE("/keys/:key_id", s.revokeKey)
	v1.GET("/settings", s.getSettings)
	v1.PATCH("/settings", s.patchSettings)
	v1.GET("/audit", s.listAudit)
	return engine
}

func (s *Server) unknownRoute(c *gin.Context) {
	s.fail(c, errorf(nethttp.StatusNotFound, "unknown_route",
		"there is nothing at %s %s; /openapi.json lists all routes", c.Request.Method, shorten(c.Request.URL.Path, 256)))
}

func (s *Server) wrongMethod(c *gin.Context) {
	s.fail(c, errorf(nethttp.StatusMethodNotAllowed, "method_not_allowed",
		"%s is not possible here, only %s", shorten(c.Request.Method, 32), c.Writer.Header().Get("Allow")))
}

// shorten cuts a client's text for a message.
func shorten(text string, limit int) string {
	text = strings.ToValidUTF8(text, "�")
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
