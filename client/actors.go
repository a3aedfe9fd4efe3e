package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// Actor is an independent part of a node, such as a job or a worker.
type Actor struct {
	NodeID   string    `json:"node_id"`
	Node     string    `json:"node"`
	ID       string    `json:"id"`
	Kind     string    `json:"kind"`   // node, engine, job, worker or results
	Job      string    `json:"job_id"` // may be empty
	Engine   string    `json:"engine"` // may be empty
	State    string    `json:"state"`  // running or panicked
	Since    time.Time `json:"since"`
	Restarts int       `json:"restarts"`

	MailboxDepth         int64   `json:"mailbox_depth"`
	OldestMessageSeconds float64 `json:"oldest_message_seconds"`
	Errands              int     `json:"errands"`
	Errand               string  `json:"errand"` // the longest running errand
	ErrandSeconds        float64 `json:"errand_seconds"`

	LastError *struct {
		Message string    `json:"message"`
		At      time.Time `json:"at"`
	} `json:"last_error"`
}

// Age returns the larger of the age of the oldest waiting message and the run time of
// the longest errand.
func (a Actor) Age() time.Duration {
	return time.Duration(max(a.OldestMessageSeconds, a.ErrandSeconds) * float64(time.Second))
}

// ActorFilter selects actors. Empty fields select all.
type ActorFilter struct {
	Kind, Job, Node string
	MinAge          time.Duration // whole seconds
}

// Actors holds the actors of all nodes.
type Actors struct {
	Actors []Actor `json:"actors"` // by Age, largest first
	Nodes  []struct {
		ID      string `json:"id"`
		Name    string `json:"name"`
		Error   string `json:"error"` // why the node did not answer
		LeftOut int    `json:"left_out"`
	} `json:"nodes"`

	Raw json.RawMessage `json:"-"` // the service's JSON
}

// Actors lists the actors of all nodes. It needs an administrator's key of the account
// default.
func (c *Client) Actors(ctx context.Context, f ActorFilter) (Actors, error) {
	query := url.Values{}
	for name, value := range map[string]string{"kind": f.Kind, "job_id": f.Job, "node": f.Node} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if f.MinAge > 0 {
		query.Set("min_age", strconv.FormatInt(int64(f.MinAge/time.Second), 10))
	}
	var a Actors
	if err := c.get(ctx, "/v1/actors", query, &a.Raw); err != nil {
		return Actors{}, err
	}
	if err := json.Unmarshal(a.Raw, &a); err != nil {
		return Actors{}, &UnreachableError{Server: c.base, Err: fmt.Errorf("its answer has no actors: %w", err)}
	}
	return a, nil
}
