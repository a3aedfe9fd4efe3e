package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cmd/rowmill/gpu"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/jobs"
	apinodes "github.com/rowmill/rowmill/http/nodes"
	"github.com/rowmill/rowmill/store"
)

// Kinds of figures that a node requests from all nodes to answer a request to its API.
const (
	figuresEngines = "engines"
	figuresPoints  = "points"
	figuresGPUs    = "gpus"

	figuresServerLog = "server-log" // of one node; "?" and the question as a URL query follow
)

// localNodeData returns this node's figures of one kind: engines, measurements, GPUs or the
// output of a server. Other nodes call it. For an unknown kind it returns a *peer.Refusal.
func (s *nodeService) localNodeData(ctx context.Context, kind string) (any, error) {
	kind, question, _ := strings.Cut(kind, "?")
	switch kind {
	case figuresEngines:
		return s.listLocalEngines(), nil
	case figuresPoints:
		return s.meter.recentPoints(), nil
	case figuresGPUs:
		return s.readLocalGPUs(ctx), nil
	case figuresServerLog:
		return s.readLocalServerLog(question)
	}
	return nil, &peer.Refusal{Code: peer.CodeUnknownKind, Message: fmt.Sprintf("this node has no figures called %q", kind)}
}

// fetchNodeData requests the figures of one kind from all nodes, unless the cache has
// recent answers.
func (s *nodeService) fetchNodeData(ctx context.Context, kind string) ([]actors.NodeReply[json.RawMessage], error) {
	return s.recent.figures.Get(ctx, kind, func(ctx context.Context) ([]actors.NodeReply[json.RawMessage], error) {
		return s.System.Figures(ctx, "", kind)
	})
}

// A nodeAnswer holds the figures of one node, or the error of the request to this node.
type nodeAnswer[T any] struct {
	node  nodes.Status
	value T
	err   error
}

// fetchDecodedData returns the decoded figures of one kind from all nodes.
func fetchDecodedData[T any](ctx context.Context, s *nodeService, kind string) ([]nodeAnswer[T], error) {
	replies, err := s.fetchNodeData(ctx, kind)
	if err != nil {
		return nil, err
	}
	all := make([]nodeAnswer[T], len(replies))
	for i, r := range replies {
		all[i] = nodeAnswer[T]{node: r.Node, err: r.Err}
		if r.Err == nil {
			all[i].err = json.Unmarshal(r.Answer, &all[i].value)
		}
	}
	return all, nil
}

// errorText returns a text that says why a node has not answered; nil if it has answered.
func (a nodeAnswer[T]) errorText() *string {
	if a.err == nil {
		return nil
	}
	text := "The node has not answered: " + shortText(a.err)
	return &text
}

// EngineList returns the inference servers of all nodes. missing has the names of the
// nodes that did not answer; for these nodes it returns the servers that they announced
// before.
func (s *nodeService) EngineList(ctx context.Context) (all []client.Engine, missing []string, err error) {
	replies, err := fetchDecodedData[[]client.Engine](ctx, s, figuresEngines)
	for _, r := range replies {
		if r.err == nil {
			all = append(all, r.value...)
			continue
		}
		missing = append(missing, r.node.Name)
		for _, e := range r.node.Servers {
			if !e.Stopped {
				all = append(all, s.toAPIRemoteEngine(r.node.Name, e))
			}
		}
	}
	return all, missing, err
}

func (s *nodeService) listLocalEngines() []client.Engine {
	all := []client.Engine{}
	name := ""
	for _, n := range s.System.Nodes() {
		if n.Self {
			name = n.Name
		}
	}
	for _, e := range s.Engines() {
		all = append(all, s.toAPIEngine(name, e))
	}
	return all
}

// Points returns the recent measurements of all nodes, for the graphs of the console.
func (s *nodeService) Points(ctx context.Context) ([]apinodes.NodeStats, error) {
	replies, err := fetchDecodedData[[]apinodes.StatsPoint](ctx, s, figuresPoints)
	all := make([]apinodes.NodeStats, len(replies))
	for i, r := range replies {
		all[i] = apinodes.NodeStats{Node: r.node.Name, Points: r.value, Problem: r.errorText()}
	}
	return all, err
}

// GPUs returns the GPUs of all nodes.
func (s *nodeService) GPUs(ctx context.Context) ([]apinodes.NodeGPUs, error) {
	replies, err := fetchDecodedData[apinodes.NodeGPUs](ctx, s, figuresGPUs)
	all := make([]apinodes.NodeGPUs, len(replies))
	for i, r := range replies {
		all[i] = apinodes.NodeGPUs{Node: r.node.Name, GPUs: r.value.GPUs, Problem: r.value.Problem}
		if r.err != nil {
			all[i].Problem = r.errorText()
		}
	}
	return all, err
}

// RowDistribution returns how many rows of a job each node has. It asks the owner of
// the job, unless the cache has a recent answer. After an error it returns nil.
func (s *nodeService) RowDistribution(ctx context.Context, record *store.Record) *jobs.RowDistribution {
	where, err := s.recent.distributions.Get(ctx, record.Job.ID, func(ctx context.Context) (*jobs.RowDistribution, error) {
		found, err := s.System.RowDistribution(ctx, record)
		if err != nil {
			return nil, err
		}
		all := &jobs.RowDistribution{Shards: client.ShardCounts{Total: int64(found.Shards), Complete: int64(found.Complete)}}
		for _, n := range found.Nodes {
			all.Nodes = append(all.Nodes, client.NodeRows{Node: n.Node, RowsAssigned: n.Assigned, RowsDone: n.Done, RowsPerSecond: n.Rate})
		}
		return all, nil
	})
	if err != nil {
		s.Logger.Debug("finding the nodes that have a job's rows failed", "job", record.Job.ID, "err", err)
	}
	return where
}

// readLocalGPUs returns the GPUs of this machine.
func (s *nodeService) readLocalGPUs(ctx context.Context) (own apinodes.NodeGPUs) {
	found, err := s.engines.gpus.Read(ctx)
	if err != nil && !errors.Is(err, gpu.ErrNone) {
		text := "nvidia-smi cannot be read: " + shortText(err)
		own.Problem = &text
	}
	for _, g := range found {
		own.GPUs = append(own.GPUs, apinodes.GPU{
			Index: g.Index, Name: g.Name, UUID: g.UUID, MemoryTotal: nilIfUnknown(g.MemoryTotal), MemoryUsed: nilIfUnknown(g.MemoryUsed),
			Utilization: nilIfUnknown(g.Utilisation), Power: nilIfUnknown(g.Power), Temperature: nilIfUnknown(g.Temperature),
		})
	}
	return own
}

// nilIfUnknown returns a pointer to a measured value, or nil if the driver does not report the
// value.
func nilIfUnknown[T int64 | float64](figure T) *T {
	if figure < 0 {
		return nil
	}
	return &figure
}

// toAPIRemoteEngine describes an engine of another node with the data that the other node
// announced.
func (s *nodeService) toAPIRemoteEngine(node string, e nodes.Engine) client.Engine {
	return client.Engine{
		Node: node, Name: e.Name, Kind: exchange.NilIfZero(e.Kind), State: apinodes.EngineUp, Models: s.engines.toAPIModels(e.Models), Window: int64(e.Window), InFlight: int64(e.InFlight),
		LastError: exchange.NilIfZero(strings.Join(actors.DescribeResting(e.Resting), "; ")), Simulated: e.Simulated,
	}
}

func (s *nodeService) toAPIEngine(node string, e actors.EngineStatus) client.Engine {
	url := s.engines.engineURL(e.Name)
	since := e.Since.UTC()
	shown := client.Engine{
		Node: node, Name: e.Name, Kind: exchange.NilIfZero(e.Info.Kind), URL: &url, State: apinodes.EngineDown, Since: &since,
		Models: s.engines.toAPIModels(e.Info.Models), RowsPerSecond: s.meter.engineRate(e.Name), Simulated: e.Info.Simulated,
	}
	if e.Up {
		shown.State, shown.LastError = apinodes.EngineUp, exchange.NilIfZero(strings.Join(e.Waits(), "; "))
		window, inFlight, _ := e.Load()
		shown.Window, shown.InFlight = int64(window), int64(inFlight)
	} else if e.Err != nil {
		shown.LastError = exchange.NilIfZero(shortText(e.Err))
	}
	if e.Since.IsZero() {
		shown.Since = nil
	}
	return shown
}
