// Package nodes owns the requests about the nodes of the service: their list and drain,
// inference servers, GPUs, actors, diagnosis and backups. Only operators may send most
// of them.
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
	"github.com/rowmill/rowmill/engine/offer"
	"github.com/rowmill/rowmill/http/audit"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/spelling"
)

// ErrAway means that a node did not answer another.
var ErrAway = errors.New("node does not answer")

// The roles and states of a client.Node.
const (
	NodeBoth     = "both"    // owns jobs and runs rows
	NodeAPI      = "api"     // runs no rows
	NodeEngines  = "engines" // owns no jobs and takes none
	NodeRunning  = "running"
	NodeDraining = "draining"
)

// OthersOwn reports whether another node could own a job that is stored here.
func OthersOwn(all []client.Node) bool {
	return slices.ContainsFunc(all, func(n client.Node) bool {
		return !n.Self && n.Role != NodeEngines && n.State == NodeRunning
	})
}

// Service is what requests about nodes need from the pipeline.
type Service interface {
	// Nodes returns the live nodes of the cluster by id, this one included; a
	// node without a cluster is the only one.
	Nodes(ctx context.Context) []client.Node
	// DrainNode tells a node, by id or name, to finish or hand back what it
	// has and to end. It returns once the node knows; rowmill.ErrNotFound
	// where there is none, rowmill.ErrConflict where several have the name,
	// ErrAway where it does not answer.
	DrainNode(ctx context.Context, id string) error
	// Servers returns the inference servers that are up, of all nodes that run
	// rows, as these last described them.
	Servers() []offer.Server
	// Actors lists the actors of the nodes, those that have been at one thing for
	// longest first, and says which nodes have answered. rowmill.ErrNotFound and
	// rowmill.ErrConflict are those of the filter's node.
	Actors(ctx context.Context, f ActorFilter) ([]Actor, []Answered, error)
	// Diagnose has every node examine itself. It takes seconds.
	Diagnose(ctx context.Context) ([]Diagnosis, error)
	// EngineList returns the inference servers of all nodes, and which nodes have not
	// said: of these it has what they told before.
	EngineList(ctx context.Context) (all []Engine, missing []string, err error)
	// Points returns what each node has done of late.
	Points(ctx context.Context) ([]NodePoints, error)
	// GPUs returns those of each node.
	GPUs(ctx context.Context) ([]NodeGPUs, error)
	// Backup holds records and objects as they are at one moment, which takes no
	// longer than a copy of the records and a name for each object. It is
	// rowmill.ErrConflict while another is held, ErrNoBackup where they are not
	// this node's alone.
	Backup(ctx context.Context) (Backup, error)
}

// Nodes answers requests about the processes of the service.
type Nodes struct {
	*exchange.Exchange
	Service Service
	Audit   *audit.Auditor
	Now     func() time.Time
}

// Route adds the routes of the nodes, and of what they run and see. All but the stats
// are for operators.
func (n *Nodes) Route(v1 *gin.RouterGroup) {
	v1.GET("/stats", n.Handle(n.stats))
	operators := v1.Group("", n.operators)
	operators.GET("/nodes", n.Handle(n.list))
	operators.POST("/nodes/:node/drain", n.Handle(n.drain))
	operators.GET("/engines", n.Handle(n.engines))
	operators.GET("/gpus", n.Handle(n.gpus))
	operators.GET("/actors", n.Handle(n.actors))
	operators.GET("/diagnosis", n.Handle(n.diagnose))
	operators.POST("/backup", n.Do(n.backup))
}

// operators is a middleware that refuses other callers.
func (n *Nodes) operators(c *gin.Context) {
	if err := caller.Operates(c); err != nil {
		n.Fail(c, err)
	}
}

// list answers GET /v1/nodes.
func (n *Nodes) list(c *gin.Context) (any, error) {
	return gin.H{"nodes": n.all(c.Request.Context())}, nil
}

// all returns the nodes for an answer.
func (n *Nodes) all(ctx context.Context) []client.Node {
	all := n.Service.Nodes(ctx)
	for i := range all {
		all[i].Models = exchange.ListOf(all[i].Models)
	}
	return all
}

// drain answers POST /v1/nodes/:node/drain.
func (n *Nodes) drain(c *gin.Context) (any, error) {
	id := c.Param("node")
	shown := spelling.Shorten(id, 128)
	err := n.Audit.Record(c, audit.Act{Name: audit.NodeDrain, Account: caller.DefaultAccount, Target: shown}, func(ctx context.Context) error {
		return n.Service.DrainNode(ctx, id)
	})
	if err = nodeError(err, id); errors.Is(err, ErrAway) {
		n.Logger.Warn("telling a node to drain failed", exchange.KeyRequest, exchange.RequestID(c), "node", id, exchange.KeyErr, err)
		err = request.Errorf(http.StatusBadGateway, "node_away", "node %q does not answer; end its process with SIGTERM, which drains it too", shown)
	}
	return gin.H{"message": "The node drains: it takes no more rows, hands back what it cannot finish, and ends."}, err
}

// Elsewhere refuses requests about jobs on a node that only runs rows, and names a node
// that takes them.
func (n *Nodes) Elsewhere(c *gin.Context) {
	remedy := "none is known now; start one with another role"
	for _, node := range n.Service.Nodes(c.Request.Context()) {
		if node.Role != NodeEngines && node.State == NodeRunning && node.URL != "" {
			remedy = "ask " + node.URL
			break
		}
	}
	n.Fail(c, request.Errorf(http.StatusServiceUnavailable, "engines_only", "this node runs rows and takes no requests about jobs (its cluster.role is engines); nodes of another role do: %s", remedy))
}

// Text returns the list of nodes as an event shows it.
func (n *Nodes) Text(ctx context.Context) string {
	list, err := exchange.Encode(n.all(ctx))
	if err != nil {
		panic(fmt.Sprintf("encode the nodes: %v", err)) // all our types encode
	}
	return string(list)
}
