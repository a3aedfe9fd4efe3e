package nodes

import (
	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
)

// Diagnosis is the result of the self-test of one node.
type Diagnosis struct {
	ID    string        `json:"id"`
	Name  string        `json:"name"`
	Error *string       `json:"error"` // why the node did not answer; Facts is null then
	Facts *client.Facts `json:"facts"`
}

// diagnose answers GET /v1/diagnosis with the self-tests of all nodes.
func (n *Nodes) diagnose(c *gin.Context) (any, error) {
	found, err := n.Service.Diagnose(c.Request.Context())
	if err != nil {
		return nil, err
	}
	return gin.H{"nodes": found}, nil
}

// checkStorage answers GET /v1/storage with a comparison of records and stored objects.
func (n *Nodes) checkStorage(c *gin.Context) (any, error) {
	var p request.Problems
	read := exchange.QueryBool(c, &p, "read")
	if err := p.Err(); err != nil {
		return nil, err
	}
	return n.Service.CheckStorage(c.Request.Context(), read)
}
