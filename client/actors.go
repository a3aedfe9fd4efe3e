package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// Actor is one of the parts of a node that work by themselves.
type Actor struct {
	NodeID   string    `json:"node_id"`
	Node     string    `json:"node"`
	ID       string    `json:"id"`
	Kind     string    `json:"kind"`   // node, engine, job, worker or results
	Job      string    `json:"job_id"` // empty for none
	Engine   string    `json:"engine"` // empty for none
	State    string    `json:"state"`  // running or panicked
	Since    time.Time `json:"since"`
	Restarts int       `json:"restarts"`

	MailboxDepth         int64   `json:"mailbox_depth"`
	OldestMessageSeconds float64 `json:"oldest_message_seconds"`
	Errands              int     `json:"errands"`
	Errand               string  `json:"errand"` // the one that has been out for longest
	ErrandSeconds        float64 `json:"errand_seconds"`

	LastError *struct {
		Message string    `json:"message"`
		At      time.Time `json:"at"`
	} `json:"last_error"`
}

// Age is for how long an actor has been at one thing, or has not come to it.
func (a Actor) Age() time.Duration {
	return time.Duration(max(a.OldestMessageSeconds, a.ErrandSeconds) * float64(time.Second))
}

// ActorFilter chooses actors. What is empty chooses all.
type ActorFilter struct {
	Kind, Job, Node string
	MinAge          time.Duration // to the second
}

// Actors are those of the nodes of the service.
type Actors struct {
	Actors []Actor `json:"actors"` // those that have been at one thing for longest first
	Nodes  []struct {
		ID      string `json:"id"`
		Name    string `json:"name"`
		Error   string `json:"error"` // why it has not answered
		LeftOut int    `json:"left_out"`
	} `json:"nodes"`

	Raw json.RawMessage `json:"-"` // as the service wrote it
}

// Actors lists what the nodes are at. It needs an administrator's key of the
// account default.
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
		return Actors{}, &UnreachableError{Server: c.base, Err: fmt.Errorf("its answer holds no actors: %w", err)}
	}
	return a, nil
}
