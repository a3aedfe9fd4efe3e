package nodes

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
)

const (
	// StatsStep is the length of the time step that one StatsPoint covers.
	StatsStep = 5 * time.Second
	// StatsKept is how long a node keeps each StatsPoint: enough for a chart. For a longer
	// history collect the metrics of the nodes.
	StatsKept = time.Hour
)

// Values of the field State of client.Engine.
const (
	EngineUp   = "up"
	EngineDown = "down"
)

// StatsPoint has the work of a node in one time step of length StatsStep.
type StatsPoint struct {
	At           time.Time `json:"at"`          // end of the step
	Rows         int64     `json:"rows"`        // committed rows of jobs that the node owns, failed rows included
	Failed       int64     `json:"failed_rows"` // failed rows, which Rows counts too
	InputTokens  int64     `json:"input_tokens"`
	OutputTokens int64     `json:"output_tokens"`
	InFlight     int       `json:"in_flight"` // rows at the node's inference servers, at the end of the step
	Window       int       `json:"window"`    // how many rows these servers may have in flight: the sum of their windows
}

// NodeStats has the Points of a node, oldest first.
type NodeStats struct {
	Node    string // name of the node
	Points  []StatsPoint
	Problem *string // why the node did not answer; nil if it answered
}

// NodeGPUs has the NVIDIA GPUs of a node.
type NodeGPUs struct {
	Node    string  `json:"node"` // name of the node
	GPUs    []GPU   `json:"gpus"`
	Problem *string `json:"problem"` // why the GPUs are unknown; null if they are known
}

// GPU describes a GPU as its driver reports it. Fields that the driver does not report
// are null.
type GPU struct {
	Index       int      `json:"index"` // number of the GPU on its node
	Name        string   `json:"name"`
	UUID        string   `json:"uuid"`
	MemoryTotal *int64   `json:"memory_total_bytes"`
	MemoryUsed  *int64   `json:"memory_used_bytes"`
	Utilization *float64 `json:"utilization"` // share of the latest sample period in which the GPU was busy, 0 to 1
	Power       *float64 `json:"power_watts"`
	Temperature *float64 `json:"temperature_celsius"`
}

// listEngines answers GET /v1/engines with the inference servers of all nodes.
func (n *Nodes) listEngines(c *gin.Context) (any, error) {
	all, missing, err := n.Service.EngineList(c.Request.Context())
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b client.Engine) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Name, b.Name)) })
	for i := range all {
		all[i].Models = exchange.OrEmptyList(all[i].Models)
	}
	return gin.H{"engines": exchange.OrEmptyList(all), "missing_nodes": exchange.OrEmptyList(missing)}, nil
}

// listGPUs answers GET /v1/gpus with the GPUs of all nodes.
func (n *Nodes) listGPUs(c *gin.Context) (any, error) {
	all, err := n.Service.GPUs(c.Request.Context())
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b NodeGPUs) int { return cmp.Compare(a.Node, b.Node) })
	for i := range all {
		all[i].GPUs = exchange.OrEmptyList(all[i].GPUs)
	}
	return gin.H{"nodes": exchange.OrEmptyList(all)}, nil
}

// showStats answers GET /v1/stats with the recent work of all nodes, or of one node.
func (n *Nodes) showStats(c *gin.Context) (any, error) {
	var p request.Problems
	most := int64(StatsKept / time.Second)
	seconds := exchange.QueryInt(c, &p, "range", most, int64(StatsStep/time.Second), most)
	all, err := n.Service.Points(c.Request.Context())
	if err != nil {
		return nil, err
	}
	if only, given := c.GetQuery("node"); given {
		one := slices.IndexFunc(all, func(n NodeStats) bool { return n.Node == only })
		if one < 0 {
			p.Add("node", "is %q; there is no node with this name. GET /v1/nodes lists them", textfmt.Shorten(only, 64))
		} else {
			all = all[one : one+1]
		}
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	asked, missing := []string{}, []string{}
	for _, n := range all {
		if n.Problem != nil {
			missing = append(missing, n.Node)
			continue
		}
		asked = append(asked, n.Node)
	}
	since := n.Now().Add(-time.Duration(seconds) * time.Second)
	points := slices.DeleteFunc(sumOfPoints(all), func(p StatsPoint) bool { return !p.At.After(since) })
	return gin.H{"nodes": asked, "missing_nodes": missing, "step_seconds": int(StatsStep / time.Second), "points": exchange.OrEmptyList(points)}, nil
}

// sumOfPoints adds up the points of all nodes for each step. It leaves out the newest
// steps if some nodes have no point for them yet; otherwise the sum would drop at the
// end of a chart.
func sumOfPoints(all []NodeStats) []StatsPoint {
	sums := make(map[time.Time]StatsPoint)
	var until time.Time
	for _, n := range all {
		if len(n.Points) == 0 {
			continue
		}
		if last := n.Points[len(n.Points)-1].At.Truncate(StatsStep); until.IsZero() || last.Before(until) {
			until = last
		}
		gauges := make(map[time.Time]StatsPoint) // latest point of the node by step: two points may end in one step, and InFlight and Window must count once
		for _, p := range n.Points {
			at := p.At.Truncate(StatsStep)
			sum, before := sums[at], gauges[at]
			gauges[at] = p
			sums[at] = StatsPoint{
				At: at, Rows: sum.Rows + p.Rows, Failed: sum.Failed + p.Failed,
				InputTokens: sum.InputTokens + p.InputTokens, OutputTokens: sum.OutputTokens + p.OutputTokens,
				InFlight: sum.InFlight + p.InFlight - before.InFlight, Window: sum.Window + p.Window - before.Window,
			}
		}
	}
	points := slices.SortedFunc(maps.Values(sums), func(a, b StatsPoint) int { return a.At.Compare(b.At) })
	return slices.DeleteFunc(points, func(p StatsPoint) bool { return p.At.After(until) })
}
