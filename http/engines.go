package http

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
)

// Metered is what the API needs to know of the inference servers, and of what
// they and the node have done.
type Metered interface {
	// EngineList returns the inference servers of all nodes as far as this one
	// knows them: its own, up or down, and those of others that are up.
	EngineList(ctx context.Context) []Engine
	// Points returns what this node has done of late, StatsStep by StatsStep, oldest
	// first.
	Points() []Point
}

const (
	// StatsStep is what one Point covers.
	StatsStep = 5 * time.Second
	// StatsKept is for how long Points are kept: enough for a chart of what goes on
	// now. Longer histories are for those who collect the metrics.
	StatsKept = time.Hour
)

// Engine is an inference server. What its node does not tell others is null.
type Engine struct {
	Node      string            `json:"node"` // the name
	Name      string            `json:"name"` // on its node
	Kind      *string           `json:"kind"` // null before it has answered
	URL       *string           `json:"url"`
	State     string            `json:"state"` // up or down
	Since     *time.Time        `json:"since"` // when it came up, or went down
	Models    []EngineModel     `json:"models"`
	Window    int               `json:"window"`
	InFlight  int               `json:"in_flight"`
	Rows      *exchange.Decimal `json:"rows_per_second"` // that it has answered, over the last minute
	LastError *string           `json:"last_error"`
	Simulated bool              `json:"simulated"`
}

// The states of an Engine.
const (
	EngineUp   = "up"
	EngineDown = "down"
)

// EngineModel is a model that an inference server serves.
type EngineModel struct {
	ID   string  `json:"id"`   // of the catalog, else the name
	Name string  `json:"name"` // the server's
	Kind *string `json:"kind"` // null where nobody has said
}

// Point is what a node has done in a StatsStep.
type Point struct {
	At           time.Time `json:"at"`          // its end
	Rows         int64     `json:"rows"`        // committed of the jobs that the node owns, failed ones included
	Failed       int64     `json:"failed_rows"` // of those
	InputTokens  int64     `json:"input_tokens"`
	OutputTokens int64     `json:"output_tokens"`
	InFlight     int       `json:"in_flight"` // rows at its inference servers at the end
	Window       int       `json:"window"`    // that these take at once
}

// engines are the inference servers, and the figures of their node.
type engines struct {
	service interface {
		Fleet
		Metered
	}
	now func() time.Time
}

// list answers GET /v1/engines.
func (e *engines) list(c *gin.Context) (any, error) {
	if err := operates(c); err != nil {
		return nil, err
	}
	all := e.service.EngineList(c.Request.Context())
	slices.SortStableFunc(all, func(a, b Engine) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Name, b.Name)) })
	for i := range all {
		if all[i].Models == nil {
			all[i].Models = []EngineModel{}
		}
	}
	if all == nil {
		all = []Engine{}
	}
	return gin.H{"engines": all}, nil
}

// stats answers GET /v1/stats.
func (e *engines) stats(c *gin.Context) (any, error) {
	var p request.Problems
	most := int64(StatsKept / time.Second)
	seconds := queryInt(c, &p, "range", most, int64(StatsStep/time.Second), most)
	if err := p.Err(); err != nil {
		return nil, err
	}
	since := e.now().Add(-time.Duration(seconds) * time.Second)
	points := slices.DeleteFunc(e.service.Points(), func(p Point) bool { return !p.At.After(since) })
	if points == nil {
		points = []Point{}
	}
	return gin.H{
		"node": nameOf(e.service.Nodes(c.Request.Context())), "step_seconds": int(StatsStep / time.Second), "points": points,
	}, nil
}
