package http

import (
	"context"
	"errors"
	nethttp "net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/engine/offer"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/spelling"
)

// Fleet is what the API needs to know of the node and of those beside it.
type Fleet interface {
	// Nodes returns the live nodes of the cluster by id, this one included; a
	// node without a cluster is the only one.
	Nodes(ctx context.Context) []Node
	// DrainNode tells a node, by id or name, to finish or hand back what it
	// has and to end. It returns once the node knows; rowmill.ErrNotFound
	// where there is none, rowmill.ErrConflict where several have the name,
	// ErrNodeAway where it does not answer.
	DrainNode(ctx context.Context, id string) error
	// Servers returns the inference servers that are up, of all nodes that run
	// rows, as these last described them.
	Servers() []offer.Server
}

// ErrNodeAway says that a node did not answer another.
var ErrNodeAway = errors.New("node does not answer")

// Node is a process of the service, as it last described itself.
type Node struct {
	ID       string     `json:"id"`    // unique for each start of the process
	Name     string     `json:"name"`  // as its operator calls it; may repeat
	Self     bool       `json:"self"`  // the one that answers
	Role     string     `json:"role"`  // both, api or engines
	State    string     `json:"state"` // running or draining
	URL      string     `json:"url"`   // base of its API
	Peer     string     `json:"peer"`  // where other nodes reach it, HOST:PORT; empty without a cluster
	Version  string     `json:"version"`
	Models   []string   `json:"models"` // that its inference servers serve: ids of the catalog, and others by the servers' names
	Jobs     int        `json:"jobs"`   // that it owns
	Window   int        `json:"window"` // rows that its inference servers take at once
	InFlight int        `json:"in_flight"`
	Since    *time.Time `json:"since"` // when it started; null until it has said so
}

// The roles and states of a Node.
const (
	NodeBoth     = "both"    // owns jobs and runs rows
	NodeAPI      = "api"     // runs no rows
	NodeEngines  = "engines" // owns no jobs and takes none
	NodeRunning  = "running"
	NodeDraining = "draining"
)

// othersOwn reports whether another node would own a job that is stored here.
func othersOwn(all []Node) bool {
	return slices.ContainsFunc(all, func(n Node) bool {
		return !n.Self && n.Role != NodeEngines && n.State == NodeRunning
	})
}

// nodes are the processes of the service.
type nodes struct {
	*exchange.Exchange
	fleet interface {
		Fleet
		Watched
		Doctor
	}
	audit *auditor
}

// list answers GET /v1/nodes.
func (n *nodes) list(c *gin.Context) (any, error) {
	if err := operates(c); err != nil {
		return nil, err
	}
	return gin.H{"nodes": n.all(c.Request.Context())}, nil
}

// all are the nodes as they are shown.
func (n *nodes) all(ctx context.Context) []Node {
	all := n.fleet.Nodes(ctx)
	for i := range all {
		if all[i].Models == nil {
			all[i].Models = []string{}
		}
	}
	return all
}

// drain answers POST /v1/nodes/:node/drain.
func (n *nodes) drain(c *gin.Context) (any, error) {
	id := c.Param("node")
	shown := spelling.Shorten(id, 128)
	err := operates(c)
	if err == nil {
		err = n.audit.record(c, act{actNodeDrain, DefaultAccount, shown, nil}, func(ctx context.Context) error {
			return n.fleet.DrainNode(ctx, id)
		})
	}
	if err = nodeError(err, id); errors.Is(err, ErrNodeAway) {
		n.Logger.Warn("telling a node to drain failed", exchange.KeyRequest, exchange.RequestID(c), "node", id, exchange.KeyErr, err)
		err = request.Errorf(nethttp.StatusBadGateway, "node_away", "node %q does not answer; end its process with SIGTERM, which drains it too", shown)
	}
	return gin.H{"message": "The node drains: it takes no more rows, hands back what it cannot finish, and ends."}, err
}

// elsewhere refuses requests about jobs on a node that is there for its
// inference servers alone, and names one that takes them.
func (n *nodes) elsewhere(c *gin.Context) {
	remedy := "none is known now; start one with another role"
	for _, node := range n.fleet.Nodes(c.Request.Context()) {
		if node.Role != NodeEngines && node.State == NodeRunning && node.URL != "" {
			remedy = "ask " + node.URL
			break
		}
	}
	n.Fail(c, request.Errorf(nethttp.StatusServiceUnavailable, "engines_only", "this node runs rows and takes no requests about jobs (its cluster.role is engines); nodes of another role do: %s", remedy))
}
