package nodes

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/engine/placement"
	"github.com/rowmill/rowmill/http/audit"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// A LogPart selects a part of a server's output.
type LogPart struct {
	Lines int   // number of lines at most
	After int64 // only output after this position, in bytes; 0: all
}

// Limits of the parameter lines. 64 KiB of output have about 500 lines.
const (
	usualLogLines = 200
	maxLogLines   = 10_000
)

// maxPosition is the largest value of the parameter after, in bytes.
const maxPosition = 1 << 50

// listServers answers GET /v1/servers with the servers that nodes start and stop.
func (n *Nodes) listServers(c *gin.Context) (any, error) {
	all, err := n.Service.ServerList(c.Request.Context())
	if err != nil {
		return nil, err
	}
	return gin.H{"servers": exchange.OrEmptyList(all)}, nil
}

// setServerMode answers PATCH /v1/servers/:node/:name: it sets who decides about a server,
// and answers with the server.
func (n *Nodes) setServerMode(c *gin.Context) (any, error) {
	var change struct {
		Mode placement.Mode `json:"mode"`
	}
	body, err := n.ReadObject(c, exchange.SmallObject)
	if err != nil {
		return nil, err
	}
	if body.Require("mode", "on, off or auto", &change.Mode, "it must be on, off or auto") &&
		!slices.Contains([]placement.Mode{placement.On, placement.Off, placement.Auto}, change.Mode) {
		body.AddProblem("mode", "must be on, off or auto")
	}
	body.RejectUnknown("mode")
	if err := body.Err(); err != nil {
		return nil, err
	}
	found, err := n.findServer(c)
	if err != nil {
		return nil, err
	}
	err = n.Audit.RecordAndRun(c, audit.Action{Name: audit.ServerSet, Account: caller.DefaultAccount, Target: found.Node + "/" + found.Name, Details: change}, func(ctx context.Context) error {
		return n.Service.SetServerMode(ctx, found.Node, found.Name, change.Mode)
	})
	if errors.Is(err, rowmill.ErrConflict) {
		return nil, request.Errorf(http.StatusConflict, "conflict", "nodes changed their servers at the same time; try again")
	}
	found.Mode = string(change.Mode)
	return found, serverError(err, found.Node, found.Name)
}

// showServerLog answers GET /v1/servers/:node/:name/log with the end of a server's output.
func (n *Nodes) showServerLog(c *gin.Context) (any, error) {
	var p request.Problems
	part := LogPart{
		Lines: int(exchange.QueryInt(c, &p, "lines", usualLogLines, 1, maxLogLines)),
		After: exchange.QueryInt(c, &p, "after", 0, 0, maxPosition),
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	found, err := n.findServer(c)
	if err != nil {
		return nil, err
	}
	log, err := n.Service.ServerLog(c.Request.Context(), found.NodeID, found.Name, part)
	if errors.Is(err, ErrAway) {
		n.Logger.Warn("asking a node for the output of a server failed", exchange.KeyRequest, exchange.RequestID(c), "node", found.Node, exchange.KeyErr, err)
		return nil, request.Errorf(http.StatusBadGateway, "node_away", "node %q, which has the output, does not answer", found.Node)
	}
	return log, serverError(err, found.Node, found.Name)
}

// findServer returns the server that the path names by its name, and by the id or the name
// of its node.
func (n *Nodes) findServer(c *gin.Context) (found client.Server, err error) {
	node, name := c.Param("node"), c.Param("name")
	all, err := n.Service.ServerList(c.Request.Context())
	if err != nil {
		return found, err
	}
	named := 0
	for _, s := range all {
		switch {
		case s.Name != name:
		case s.NodeID == node:
			return s, nil
		case s.Node == node:
			found = s
			named++
		}
	}
	switch named {
	case 0:
		return found, serverError(rowmill.ErrNotFound, node, name)
	case 1:
		return found, nil
	}
	return found, nodeError(rowmill.ErrConflict, node)
}

// serverError turns the error rowmill.ErrNotFound about a server into an error for the
// client.
func serverError(err error, node, name string) error {
	if errors.Is(err, rowmill.ErrNotFound) {
		return request.Errorf(http.StatusNotFound, "unknown_server", "no live node %q starts a server %q; GET /v1/servers lists the servers",
			textfmt.Shorten(node, 128), textfmt.Shorten(name, 128))
	}
	return err
}
