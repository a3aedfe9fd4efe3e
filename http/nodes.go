package http

import (
	"context"
	"errors"
	nethttp "net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
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
	Models   []string   `json:"models"` // ids of the catalog that its inference servers serve
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

// operates refuses those who may not run the service: nodes serve all
// accounts.
func operates(c *gin.Context) error {
	_, err := administered(c, DefaultAccount)
	return err
}

// othersOwn reports whether another node would own a job that is stored here.
func (s *Server) othersOwn(c *gin.Context) bool {
	return slices.ContainsFunc(s.Service.Nodes(c.Request.Context()), func(n Node) bool {
		return !n.Self && n.Role != NodeEngines && n.State == NodeRunning
	})
}

// listNodes answers GET /v1/nodes.
func (s *Server) listNodes(c *gin.Context) {
	if err := operates(c); err != nil {
		s.fail(c, err)
		return
	}
	nodes := s.Service.Nodes(c.Request.Context())
	for i := range nodes {
		if nodes[i].Models == nil {
			nodes[i].Models = []string{}
		}
	}
	answer(c, nethttp.StatusOK, gin.H{"nodes": nodes})
}

// drainNode answers POST /v1/nodes/:node/drain.
func (s *Server) drainNode(c *gin.Context) {
	node := c.Param("node")
	err := operates(c)
	if err == nil {
		err = s.record(c, act{actNodeDrain, DefaultAccount, shorten(node, 128), nil}, func(ctx context.Context) error {
			return s.Service.DrainNode(ctx, node)
		})
	}
	switch {
	case errors.Is(err, rowmill.ErrNotFound):
		err = errorf(nethttp.StatusNotFound, "unknown_node", "there is no live node %q; GET /v1/nodes lists them", shorten(node, 128))
	case errors.Is(err, rowmill.ErrConflict):
		err = errorf(nethttp.StatusConflict, "ambiguous_node", "several nodes are called %q; name one by its id, which GET /v1/nodes shows", shorten(node, 128))
	case errors.Is(err, ErrNodeAway):
		s.Logger.Warn("node could not be told to drain", keyRequest, requestID(c), "node", node, keyErr, err)
		err = errorf(nethttp.StatusBadGateway, "node_away", "node %q does not answer; end its process with SIGTERM, which drains it too", shorten(node, 128))
	}
	if err != nil {
		s.fail(c, err)
		return
	}
	answer(c, nethttp.StatusOK, gin.H{
		"message": "The node drains: it takes no more rows, hands back what it cannot finish, and ends.",
	})
}

// elsewhere refuses requests about jobs on a node that is there for its
// inference servers alone, and names one that takes them.
func (s *Server) elsewhere(c *gin.Context) {
	if !s.EnginesOnly {
		return
	}
	remedy := "none is known now; start one with another role"
	for _, node := range s.Service.Nodes(c.Request.Context()) {
		if node.Role != NodeEngines && node.State == NodeRunning && node.URL != "" {
			remedy = "ask " + node.URL
			break
		}
	}
	s.fail(c, errorf(nethttp.StatusServiceUnavailable, "engines_only", "this node runs rows and takes no requests about jobs (its cluster.role is engines); nodes of another role do: %s", remedy))
}
