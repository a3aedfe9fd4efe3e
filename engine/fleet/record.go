package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/placement"
	"github.com/rowmill/rowmill/store"
)

// recordName is the name of the document that all nodes share.
const recordName = "servers"

// A record describes the servers of all nodes. Each node writes its own entry.
type record struct {
	Nodes map[string]nodeEntry      `json:"nodes,omitempty"` // by id of the node
	Modes map[string]placement.Mode `json:"modes,omitempty"` // what operators want, by NODE/SERVER with the name of the node
}

// A nodeEntry describes the servers of one node.
type nodeEntry struct {
	Name    string        `json:"name"`
	GPUs    []int         `json:"gpus,omitempty"`
	Servers []serverEntry `json:"servers,omitempty"`
}

// A serverEntry describes one server for placement, and for operators.
type serverEntry struct {
	Name      string               `json:"name"`
	Served    []engine.ServedModel `json:"served,omitempty"` // models of the server; empty before its first start
	GPUs      int                  `json:"gpus,omitempty"`
	Phase     placement.Phase      `json:"phase"`
	Since     time.Time            `json:"since"`
	On        []int                `json:"on,omitempty"` // GPUs of the process
	Load      float64              `json:"load_seconds"`
	Wake      float64              `json:"wake_seconds,omitempty"`
	Rate      float64              `json:"tokens_per_second"`
	Always    bool                 `json:"always,omitempty"` // the server runs without rows too
	Idle      float64              `json:"idle_seconds,omitempty"`
	IdleSince time.Time            `json:"idle_since,omitzero"`
	RetryAt   time.Time            `json:"retry_at,omitzero"`
	Error     string               `json:"error,omitempty"` // why the last run ended
	// FailingSince is the time of the first end after the last answer.
	FailingSince time.Time `json:"failing_since,omitzero"`
}

// loadRecord reads the record and its version.
func loadRecord(ctx context.Context, values store.NamedValues) (record, int64, error) {
	r := record{}
	doc, version, err := values.GetValue(ctx, recordName)
	switch {
	case errors.Is(err, rowmill.ErrNotFound):
	case err != nil:
		return r, 0, fmt.Errorf("read which servers run: %w", err)
	default:
		if err := json.Unmarshal(doc, &r); err != nil {
			return r, 0, fmt.Errorf("read which servers run: %w", err)
		}
	}
	if r.Nodes == nil {
		r.Nodes = map[string]nodeEntry{}
	}
	return r, version, nil
}

// save writes the record if its version is still the same. Otherwise isConflict is true for
// the error.
func (r *record) save(ctx context.Context, values store.NamedValues, version int64) error {
	if _, err := store.RewriteValue(ctx, values, recordName, r, version); err != nil {
		return fmt.Errorf("write which servers run: %w", err)
	}
	return nil
}

func isConflict(err error) bool { return errors.Is(err, rowmill.ErrConflict) }

// has reports whether a node with this name has the server.
func (r *record) has(node, name string) bool {
	for _, n := range r.Nodes {
		if n.Name == node && slices.ContainsFunc(n.Servers, func(s serverEntry) bool { return s.Name == name }) {
			return true
		}
	}
	return false
}

func modeKey(node, server string) string { return node + "/" + server }

// keepOnly removes the entries of nodes that are not live, and reports whether there were any.
func (r *record) keepOnly(live []string) (removed bool) {
	before := len(r.Nodes)
	maps.DeleteFunc(r.Nodes, func(id string, _ nodeEntry) bool { return !slices.Contains(live, id) })
	return len(r.Nodes) < before
}

// put sets the entry of a node. It reports whether the entry has changed so much that other
// nodes must know.
func (r *record) put(id string, n nodeEntry) (changed bool) {
	before, known := r.Nodes[id]
	r.Nodes[id] = n
	return !known || !before.isCloseTo(n)
}

// isCloseTo reports whether two entries of a node differ only by a small change of measured
// values.
func (n nodeEntry) isCloseTo(o nodeEntry) bool {
	return n.Name == o.Name && slices.Equal(n.GPUs, o.GPUs) && slices.EqualFunc(n.Servers, o.Servers, serverEntry.isCloseTo)
}

func (s serverEntry) isCloseTo(o serverEntry) bool {
	const step = 0.2 // of a measured value
	near := func(a, b float64) bool { return math.Abs(a-b) <= step*max(a, b) }
	if !near(s.Load, o.Load) || !near(s.Wake, o.Wake) || !near(s.Rate, o.Rate) {
		return false
	}
	s.Load, s.Wake, s.Rate, s.Since, s.IdleSince, s.RetryAt = o.Load, o.Wake, o.Rate, o.Since, o.IdleSince, o.RetryAt
	return reflect.DeepEqual(s, o)
}

// placementNodes returns the nodes for placement. A server gets the models of demand that it
// serves.
func (r *record) placementNodes(demand []Demand) (nodes []placement.Node) {
	for _, id := range slices.Sorted(maps.Keys(r.Nodes)) {
		entry := r.Nodes[id]
		n := placement.Node{ID: id, GPUs: entry.GPUs}
		for _, s := range entry.Servers {
			n.Servers = append(n.Servers, s.placementServer(r.modeOf(entry.Name, s), demand))
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// modeOf returns the mode of a server. A server with unknown models runs once, so that its
// node learns them.
func (r *record) modeOf(node string, s serverEntry) placement.Mode {
	switch mode := r.Modes[modeKey(node, s.Name)]; {
	case mode == placement.On, mode == placement.Off:
		return mode
	case s.Always, len(s.Served) == 0:
		return placement.On
	}
	return placement.Auto
}

func (s serverEntry) placementServer(mode placement.Mode, demand []Demand) placement.Server {
	seconds := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	p := placement.Server{
		Name: s.Name, GPUs: s.GPUs, Phase: s.Phase, Since: s.Since, On: s.On, Load: seconds(s.Load), Wake: seconds(s.Wake), Rate: s.Rate,
		Mode: mode, Idle: seconds(s.Idle), IdleSince: s.IdleSince, RetryAt: s.RetryAt,
	}
	info := engine.ServerInfo{Models: s.Served}
	for _, d := range demand {
		if _, serves := info.FindModel(rowmill.Model{ID: d.Model, EngineNames: d.Names}); serves {
			p.Models = append(p.Models, d.Model)
		}
	}
	return p
}

func plainDemand(list []Demand) (plain []placement.Demand) {
	for _, d := range list {
		plain = append(plain, d.Demand)
	}
	return plain
}
