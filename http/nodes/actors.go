package nodes

import (
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// ActorStatus describes an actor of a node: a part of the program with its own goroutine and a
// mailbox.
type ActorStatus struct {
	NodeID   string    `json:"node_id"`
	Node     string    `json:"node"` // name of the node
	ID       string    `json:"id"`   // id of the actor, unique on its node
	Kind     string    `json:"kind"`
	Job      *string   `json:"job_id"`
	Engine   *string   `json:"engine"`
	State    string    `json:"state"` // running or panicked
	Since    time.Time `json:"since"`
	Restarts int       `json:"restarts"`
	Depth    int64     `json:"mailbox_depth"`
	// Oldest is the least time that the oldest message in the mailbox has waited, in
	// seconds.
	Oldest      float64     `json:"oldest_message_seconds"`
	Tasks       int         `json:"tasks"` // slow tasks that run outside the actor, such as a merge of parts
	Task        *string     `json:"task"`  // name of the task that has run longest
	TaskSeconds float64     `json:"task_seconds"`
	LastError   *ActorError `json:"last_error"`
}

// ActorError is the last error of an actor.
type ActorError struct {
	Message string    `json:"message"`
	At      time.Time `json:"at"` // time of the error, by the clock of the actor's node
}

// ActorFilter selects actors. An actor must match all fields that are not empty. MinAge
// selects actors whose oldest message or longest task is older.
type ActorFilter struct {
	Kind, Job, Node string
	MinAge          time.Duration
}

// ActorQueryStatus is the outcome of asking one node for its actors.
type ActorQueryStatus struct {
	ID      string  `json:"id"`
	Name    string  `json:"name"`
	Error   *string `json:"error"`
	LeftOut int     `json:"left_out"` // number of actors that the node did not list, because of the list's limit
}

// actorKinds lists the values of ActorStatus.Kind.
var actorKinds = []string{"node", "engine", "job", "worker", "results"}

// maxAge is the largest value of the parameter min_age, in seconds.
const maxAge = 1_000_000_000

// listActors answers GET /v1/actors with the actors that a filter selects.
func (n *Nodes) listActors(c *gin.Context) (any, error) {
	var problems request.Problems
	filter := ActorFilter{
		Kind: exchange.QueryOneOf(c, &problems, "kind", actorKinds), Job: c.Query("job_id"), Node: c.Query("node"),
		MinAge: time.Duration(exchange.QueryInt(c, &problems, "min_age", 0, 0, maxAge)) * time.Second,
	}
	if problems.Len() > 0 {
		return nil, problems.Err()
	}
	actors, nodes, err := n.Service.Actors(c.Request.Context(), filter)
	if err != nil {
		return nil, nodeError(err, filter.Node)
	}
	return gin.H{"actors": exchange.OrEmptyList(actors), "nodes": nodes}, nil
}

// nodeError turns an error about a node into an error for the client. id is the id or
// the name of the node.
func nodeError(err error, id string) error {
	shown := textfmt.Shorten(id, 128)
	switch {
	case errors.Is(err, rowmill.ErrNotFound):
		return request.Errorf(http.StatusNotFound, "unknown_node", "there is no live node %q; GET /v1/nodes lists them", shown)
	case errors.Is(err, rowmill.ErrConflict):
		return request.Errorf(http.StatusConflict, "ambiguous_node", "several nodes are called %q; name one by its id, which GET /v1/nodes shows", shown)
	}
	return err
}
