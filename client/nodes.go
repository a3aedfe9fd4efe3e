package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Node is a process of the service.
type Node struct {
	ID       string     `json:"id"`    // unique for each start of the process
	Name     string     `json:"name"`  // chosen by the operator; may repeat
	Self     bool       `json:"self"`  // this node answered the request
	Role     string     `json:"role"`  // both, api or engines
	State    string     `json:"state"` // running or draining
	URL      string     `json:"url"`   // base of its API
	Peer     string     `json:"peer"`  // where other nodes reach it, HOST:PORT; empty without a cluster
	Version  string     `json:"version"`
	Models   []string   `json:"models"` // of its inference servers: ids of the catalog, else the servers' names
	Jobs     int        `json:"jobs"`   // that it owns
	Window   int        `json:"window"` // rows that its inference servers take at once
	InFlight int        `json:"in_flight"`
	Since    *time.Time `json:"since"` // when it started; nil if not known yet
}

// Nodes holds the live nodes of the service.
type Nodes struct {
	Nodes []Node `json:"nodes"` // by id

	Raw json.RawMessage `json:"-"` // the service's JSON
}

// Nodes lists the nodes. It needs an administrator's key of the account
// default.
func (c *Client) Nodes(ctx context.Context) (Nodes, error) {
	var n Nodes
	if err := c.get(ctx, "/v1/nodes", nil, &n.Raw); err != nil {
		return Nodes{}, err
	}
	if err := json.Unmarshal(n.Raw, &n); err != nil {
		return Nodes{}, &UnreachableError{Server: c.base, Err: fmt.Errorf("its answer has no nodes: %w", err)}
	}
	return n, nil
}

// DrainNode makes a node, given by id or name, finish its work and stop.
func (c *Client) DrainNode(ctx context.Context, id string) error {
	req, err := c.request(ctx, http.MethodPost, "/v1/nodes/"+url.PathEscape(id)+"/drain", nil, nil)
	if err != nil {
		return err
	}
	var done struct {
		Message string `json:"message"`
	}
	_, err = c.exchange(req, &done)
	return err
}
