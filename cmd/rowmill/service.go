package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/openai"
	"github.com/rowmill/rowmill/engine/served"
	"github.com/rowmill/rowmill/http"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/jobs"
	apinodes "github.com/rowmill/rowmill/http/nodes"
	"github.com/rowmill/rowmill/internal/cache"
)

// nodeService implements http.Service: it gives the API the data and the actions of the
// node. Most methods come from actors.System, which pipeline embeds.
type nodeService struct {
	*jobPipeline
	meter   *metricsSampler
	secrets *secretReloader
	recent  *answerCache // cache of the answers of nodes
}

var _ http.Service = (*nodeService)(nil)

// answerCacheAge is how long this node caches the answers of the nodes. Because of the
// cache, many open pages of the console cost as much as one page. maxCachedDistributions is the
// maximum number of jobs whose row distribution is cached.
const (
	answerCacheAge         = time.Second
	maxCachedDistributions = 1000
)

// answerCache caches the recent answers of the nodes to requests of this node.
type answerCache struct {
	figures       cache.TTL[string, []actors.NodeReply[json.RawMessage]] // key: kind of figures, such as figuresEngines
	distributions cache.TTL[string, *jobs.RowDistribution]               // key: job ID
}

func newAnswerCache() *answerCache {
	return &answerCache{
		figures:       cache.TTL[string, []actors.NodeReply[json.RawMessage]]{Age: answerCacheAge, Most: 3},
		distributions: cache.TTL[string, *jobs.RowDistribution]{Age: answerCacheAge, Most: maxCachedDistributions},
	}
}

// Nodes returns the live nodes, sorted by ID, or only this node without a cluster.
func (s *nodeService) Nodes(context.Context) []client.Node {
	var nodes []client.Node
	for _, n := range s.System.Nodes() {
		node := client.Node{
			ID: n.ID, Name: n.Name, Self: n.Self, Role: apiRole(n), State: apinodes.NodeRunning,
			URL: n.API, Peer: n.Peer, Version: n.Version, Models: s.engines.modelIDs(mergeServerModels(n.Servers)),
			Jobs: int64(n.Jobs), Window: int64(n.Window), InFlight: int64(n.InFlight),
		}
		if n.Self {
			node.URL = s.members.announcedURL()
		}
		if n.Draining {
			node.State = apinodes.NodeDraining
		}
		if !n.Since.IsZero() {
			node.Since = &n.Since
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// Servers returns the inference servers that take rows now, and servers that a node starts
// for rows: the servers of all nodes that are not draining.
func (s *nodeService) Servers() (servers []served.Server) {
	for _, n := range s.System.Nodes() {
		if n.Draining {
			continue
		}
		for _, e := range n.Servers {
			servers = append(servers, served.Server{Node: n.Name, Name: e.Name, Kind: e.Kind, Counts: openai.CanCountPrompts(e.Kind), Simulated: e.Simulated, Stopped: e.Stopped, Models: e.Models})
		}
	}
	return servers
}

// Counting describes how this node counts the tokens of a model's prompts. For
// embeddings MeanError is nil: a server reports one count for a request with several
// rows, so the node cannot compare the counts of single rows.
func (s *nodeService) Counting(m rowmill.Model) http.TokenCounting {
	exact, off, compared := s.System.TokenCountAccuracy(m)
	said := http.TokenCounting{Exact: exact}
	if compared {
		said.MeanError = &off
	}
	return said
}

// mergeServerModels returns an engine.ServerInfo that lists the models of all these servers
// that run.
func mergeServerModels(servers []nodes.Engine) (info engine.ServerInfo) {
	for _, s := range servers {
		if !s.Stopped {
			info.Models = append(info.Models, s.Models...)
		}
	}
	return info
}

func apiRole(n nodes.Status) string {
	switch {
	case !n.Owns:
		return apinodes.NodeEngines
	case !n.Engines:
		return apinodes.NodeAPI
	}
	return apinodes.NodeBoth
}

func (s *nodeService) DrainNode(ctx context.Context, id string) error {
	return awayIfUnreached(s.System.DrainNode(ctx, id))
}

// awayIfUnreached adds apinodes.ErrAway to the error of a request that another node has not
// answered.
func awayIfUnreached(err error) error {
	var refusal *peer.Refusal
	if errors.Is(err, peer.ErrRefused) || errors.Is(err, peer.ErrUnreachable) || errors.As(err, &refusal) {
		return fmt.Errorf("%w: %w", apinodes.ErrAway, err)
	}
	return err
}

// Actors returns the actors that match f, and which nodes answered. An actor with an
// older message or task comes first.
func (s *nodeService) Actors(ctx context.Context, f apinodes.ActorFilter) ([]apinodes.ActorStatus, []apinodes.ActorQueryStatus, error) {
	replies, err := s.System.Actors(ctx, f.Node, registry.Filter{Kind: f.Kind, Job: f.Job, MinAge: f.MinAge})
	if err != nil {
		return nil, nil, err
	}
	var all []apinodes.ActorStatus
	answered := []apinodes.ActorQueryStatus{}
	for _, r := range replies {
		a := apinodes.ActorQueryStatus{ID: r.Node.ID, Name: r.Node.Name, LeftOut: r.Answer.LeftOut}
		if r.Err != nil {
			a.Error = exchange.NilIfZero(shortText(r.Err))
		}
		answered = append(answered, a)
		for _, one := range r.Answer.Actors {
			all = append(all, toAPIActor(r.Node.ID, r.Node.Name, one))
		}
	}
	slices.SortStableFunc(all, func(a, b apinodes.ActorStatus) int {
		return cmp.Compare(max(b.Oldest, b.TaskSeconds), max(a.Oldest, a.TaskSeconds))
	})
	return all, answered, nil
}

func toAPIActor(nodeID, nodeName string, a registry.Actor) apinodes.ActorStatus {
	actor := apinodes.ActorStatus{
		NodeID: nodeID, Node: nodeName, ID: a.ID, Kind: a.Kind, Job: exchange.NilIfZero(a.Job), Engine: exchange.NilIfZero(a.Engine), State: a.State, Since: a.Since,
		Restarts: a.Restarts, Depth: a.Depth, Oldest: toSeconds(a.Oldest),
		Tasks: a.Tasks, Task: exchange.NilIfZero(a.Task), TaskSeconds: toSeconds(a.TaskTime),
	}
	if a.Trouble != nil {
		actor.LastError = &apinodes.ActorError{Message: a.Trouble.Text, At: a.Trouble.At}
	}
	return actor
}

// toSeconds converts a duration to seconds, with a precision of one millisecond.
func toSeconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }
