// Package nodes answers requests about the nodes of the service: it lists and drains
// nodes, and answers for their inference servers, GPUs, actors, diagnosis, storage and
// backups. Most of these requests need an operator's key.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/engine/placement"
	"github.com/rowmill/rowmill/engine/served"
	"github.com/rowmill/rowmill/http/audit"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/store/deployment"
)

// ErrAway means that another node did not answer a request that this node sent.
var ErrAway = errors.New("the node does not answer")

// Values of the fields Role and State of client.Node.
const (
	NodeBoth     = "both"    // owns jobs and runs rows
	NodeAPI      = "api"     // owns jobs, but runs no rows
	NodeEngines  = "engines" // runs rows, but owns and accepts no jobs
	NodeRunning  = "running"
	NodeDraining = "draining"
)

// CanOtherNodeOwnJobs reports whether another live node can own a job that this node stores.
func CanOtherNodeOwnJobs(all []client.Node) bool {
	return slices.ContainsFunc(all, func(n client.Node) bool {
		return !n.Self && n.Role != NodeEngines && n.State == NodeRunning
	})
}

// Service is the part of the pipeline that the package uses.
type Service interface {
	// Nodes returns the live nodes of the cluster, sorted by id, including this node.
	// Without a cluster this node is the only one.
	Nodes(ctx context.Context) []client.Node
	// DrainNode asks a node, by id or name, to finish its rows or hand them back, and to
	// exit. It returns when the node has accepted the request. The error is
	// rowmill.ErrNotFound if there is no such node, rowmill.ErrConflict if several nodes
	// have the name, and ErrAway if the node does not answer.
	DrainNode(ctx context.Context, id string) error
	// Servers returns the inference servers that are up, on all nodes that run rows. It
	// uses the latest reports of these nodes.
	Servers() []served.Server
	// Actors lists the actors of the nodes and says which nodes answered. The actors with
	// the longest running work come first. If f names a node, the error may be
	// rowmill.ErrNotFound (no such node) or rowmill.ErrConflict (several nodes have the
	// name).
	Actors(ctx context.Context, f ActorFilter) ([]ActorStatus, []ActorQueryStatus, error)
	// Diagnose makes every node test its own setup, and returns the results. It takes
	// seconds.
	Diagnose(ctx context.Context) ([]Diagnosis, error)
	// EngineList returns the inference servers of all nodes. missing lists the nodes that
	// did not answer. For these nodes all has the last known servers, with null for values
	// that only the node knows.
	EngineList(ctx context.Context) (all []client.Engine, missing []string, err error)
	// Points returns the recent work of each node.
	Points(ctx context.Context) ([]NodeStats, error)
	// GPUs returns the GPUs of each node.
	GPUs(ctx context.Context) ([]NodeGPUs, error)
	// ServerList returns the servers that nodes start and stop.
	ServerList(ctx context.Context) ([]client.Server, error)
	// SetServerMode sets the mode of a server. node is the name of its node. The error is
	// rowmill.ErrNotFound if the server is gone, and rowmill.ErrConflict if nodes changed
	// their servers at the same time again and again.
	SetServerMode(ctx context.Context, node, name string, mode placement.Mode) error
	// ServerLog returns the end of a server's output, which is at most 64 KiB. nodeID is the
	// id of its node. The error is rowmill.ErrNotFound if the node or the server is gone, and
	// ErrAway if the node does not answer.
	ServerLog(ctx context.Context, nodeID, name string, part LogPart) (client.ServerLog, error)
	// Backup makes a snapshot of all records and objects. For this it copies the records,
	// and gives each object a second name. The error is rowmill.ErrConflict while another
	// backup is open, and ErrNoBackup if records or objects are stored outside this node.
	Backup(ctx context.Context) (BackupSnapshot, error)
	// CheckStorage compares the records with the objects in the bucket. If read is true, it
	// also reads all results and parts of ended jobs.
	CheckStorage(ctx context.Context, read bool) (deployment.NodeReport, error)
}

// Nodes answers requests about the nodes of the service.
type Nodes struct {
	*exchange.Exchange
	Service Service
	Audit   *audit.Auditor
	Now     func() time.Time
	Version string
}

// Route adds the routes of the package.
func (n *Nodes) Route(v1 *gin.RouterGroup) {
	v1.GET("/stats", n.Handle(n.showStats))
	v1.GET("/me", n.Handle(n.showCaller))
	operators := v1.Group("", n.requireOperator)
	operators.GET("/nodes", n.Handle(n.list))
	operators.POST("/nodes/:node/drain", n.Handle(n.drain))
	operators.GET("/engines", n.Handle(n.listEngines))
	operators.GET("/gpus", n.Handle(n.listGPUs))
	operators.GET("/servers", n.Handle(n.listServers))
	operators.PATCH("/servers/:node/:name", n.Handle(n.setServerMode))
	operators.GET("/servers/:node/:name/log", n.Handle(n.showServerLog))
	operators.GET("/actors", n.Handle(n.listActors))
	operators.GET("/diagnosis", n.Handle(n.diagnose))
	operators.GET("/storage", n.Handle(n.checkStorage))
	operators.POST("/backup", n.HandleRaw(n.sendBackup))
}

// requireOperator is a middleware that refuses callers who are not operators.
func (n *Nodes) requireOperator(c *gin.Context) {
	if err := caller.CheckOperator(c); err != nil {
		n.Fail(c, err)
	}
}

// list answers GET /v1/nodes with the live nodes.
func (n *Nodes) list(c *gin.Context) (any, error) {
	return gin.H{"nodes": n.listLiveNodes(c.Request.Context())}, nil
}

// listLiveNodes returns the live nodes for an answer. A node without models has an empty list of
// models, because JSON would show nil as null.
func (n *Nodes) listLiveNodes(ctx context.Context) []client.Node {
	all := n.Service.Nodes(ctx)
	for i := range all {
		all[i].Models = exchange.OrEmptyList(all[i].Models)
	}
	return all
}

// drain answers POST /v1/nodes/:node/drain: it asks a node to finish its work and exit.
func (n *Nodes) drain(c *gin.Context) (any, error) {
	id := c.Param("node")
	shown := textfmt.Shorten(id, 128)
	err := n.Audit.RecordAndRun(c, audit.Action{Name: audit.NodeDrain, Account: caller.DefaultAccount, Target: shown}, func(ctx context.Context) error {
		return n.Service.DrainNode(ctx, id)
	})
	if err = nodeError(err, id); errors.Is(err, ErrAway) {
		n.Logger.Warn("asking a node to drain failed", exchange.KeyRequest, exchange.RequestID(c), "node", id, exchange.KeyErr, err)
		err = request.Errorf(http.StatusBadGateway, "node_away", "node %q does not answer; end its process with SIGTERM, which drains it too", shown)
	}
	return gin.H{"message": "The node drains: it accepts no more rows, hands back the rows that it cannot finish, and exits."}, err
}

// RefuseJobs is a middleware for a node that only runs rows: it refuses requests about
// jobs. The error names a node that accepts these requests.
func (n *Nodes) RefuseJobs(c *gin.Context) {
	remedy := "no such node is known now; start one"
	for _, node := range n.Service.Nodes(c.Request.Context()) {
		if node.Role != NodeEngines && node.State == NodeRunning && node.URL != "" {
			remedy = "send the request to " + node.URL
			break
		}
	}
	n.Fail(c, request.Errorf(http.StatusServiceUnavailable, "engines_only", "this node runs rows and takes no requests about jobs (its cluster.role is engines); nodes of another role do: %s", remedy))
}

// ListJSON returns the list of live nodes as JSON, for events.
func (n *Nodes) ListJSON(ctx context.Context) string {
	list, err := exchange.Encode(n.listLiveNodes(ctx))
	if err != nil {
		panic(fmt.Sprintf("encode the nodes: %v", err)) // all types of answers can be encoded
	}
	return string(list)
}
