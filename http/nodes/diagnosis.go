package nodes

import (
	"context"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/client"
)

// Diagnosis is what is known of a node.
type Diagnosis struct {
	ID    string        `json:"id"`
	Name  string        `json:"name"`
	Error *string       `json:"error"` // why it has not answered; Facts are null then
	Facts *client.Facts `json:"facts"`
}

// A Doctor examines the nodes.
type Doctor interface {
	// Diagnose has every node examine itself. It takes seconds.
	Diagnose(ctx context.Context) ([]Diagnosis, error)
}

// diagnose answers GET /v1/diagnosis.
func (n *Nodes) diagnose(c *gin.Context) (any, error) {
	found, err := n.Service.Diagnose(c.Request.Context())
	if err != nil {
		return nil, err
	}
	return gin.H{"nodes": found}, nil
}
