package nodes

import (
	"context"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/http/caller"
)

// Finding is what a check has found.
type Finding struct {
	Check  string `json:"check"` // such as "records"
	Level  string `json:"level"` // ok, warn or fail
	Text   string `json:"text"`
	Remedy string `json:"remedy"` // what to do; empty where it is ok
}

// Facts are what a node knows and has tried of itself.
type Facts struct {
	Version    string            `json:"version"`
	Deployment string            `json:"deployment"` // whose records and objects it uses
	Catalog    string            `json:"catalog"`    // a hash of its models
	Members    []string          `json:"members"`    // ids of the nodes that it sees
	Settings   map[string]string `json:"settings"`   // those that nodes should have alike
	Findings   []Finding         `json:"findings"`
	Storage    StorageTimes      `json:"storage"`
}

// StorageTimes are how long a node's storage took while it was tried, in seconds, one
// try after the other. A list ends where time ran out or a try failed.
type StorageTimes struct {
	Commits     []float64 `json:"commit_seconds"` // a small record written
	Syncs       []float64 `json:"sync_seconds"`   // 4 KiB appended to a file beside the records and flushed; empty where these are in Redis
	Puts        []float64 `json:"put_seconds"`    // an object of ObjectBytes written
	Gets        []float64 `json:"get_seconds"`    // and read
	ObjectBytes int       `json:"object_bytes"`
}

// Diagnosis is what is known of a node.
type Diagnosis struct {
	ID    string  `json:"id"`
	Name  string  `json:"name"`
	Error *string `json:"error"` // why it has not answered; Facts are null then
	Facts *Facts  `json:"facts"`
}

// A Doctor examines the nodes.
type Doctor interface {
	// Diagnose has every node examine itself. It takes seconds.
	Diagnose(ctx context.Context) ([]Diagnosis, error)
}

// diagnose answers GET /v1/diagnosis.
func (n *Nodes) diagnose(c *gin.Context) (any, error) {
	if err := caller.Operates(c); err != nil {
		return nil, err
	}
	found, err := n.Service.Diagnose(c.Request.Context())
	if err != nil {
		return nil, err
	}
	return gin.H{"nodes": found}, nil
}
