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

// service connects the pipeline to the API. Most methods come from actors.System, which
// pipeline embeds.
type service struct {
	*pipeline
	meter   *meter
	secrets *secrets
	recent  *recent // answers of other nodes
}

var _ http.Service = (*service)(nil)

// figuresFresh is how long this node uses an answer of other nodes before it asks them
// again, so that many open pages of the console cost as much as one. maxWhere limits the
// number of jobs for which recent keeps an answer.
const (
	figuresFresh = time.Second
	maxWhere     = 1000
)

// recent holds recent answers of other nodes.
type recent struct {
	figures cache.TTL[string, []actors.Reply[json.RawMessage]] // by question
	where   cache.TTL[string, *jobs.RowDistribution]           // by job
}

func newRecent() *recent {
	return &recent{
		figures: cache.TTL[string, []actors.Reply[json.RawMessage]]{Age: figuresFresh, Most: 3},
		where:   cache.TTL[string, *jobs.RowDistribution]{Age: figuresFresh, Most: maxWhere},
	}
}

// Nodes returns the live nodes by id.
func (s *service) Nodes(context.Context) []client.Node {
	var nodes []client.Node
	for _, n := range s.System.Nodes() {
		node := client.Node{
			ID: n.ID, Name: n.Name, Self: n.Self, Role: role(n), State: apinodes.NodeRunning,
			URL: n.API, Peer: n.Peer, Version: n.Version, Models: s.engines.modelIDs(modelsOfServers(n.Servers)),
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

// Servers returns the inference servers that take rows now.
func (s *service) Servers() (servers []served.Server) {
	for _, n := range s.System.Nodes() {
		if n.Draining {
			continue
		}
		for _, e := range n.Servers {
			servers = append(servers, served.Server{Node: n.Name, Name: e.Name, Kind: e.Kind, Counts: openai.Counts(e.Kind), Simulated: e.Simulated, Models: e.Models})
		}
	}
	return servers
}

// Counting describes how this node counts the tokens of a model's prompts. For
// embeddings the result has no error: this node cannot compare its counts with the counts of
// a server, which reports one count for a request with several rows.
func (s *service) Counting(m rowmill.Model) http.Counting {
	exact, off, compared := s.System.Counting(m)
	said := http.Counting{Exact: exact}
	if compared {
		said.MeanError = &off
	}
	return said
}

// modelsOfServers returns the models of all servers of a node.
func modelsOfServers(servers []nodes.Engine) (info engine.Info) {
	for _, s := range servers {
		info.Models = append(info.Models, s.Models...)
	}
	return info
}

func role(n nodes.Status) string {
	switch {
	case !n.Owns:
		return apinodes.NodeEngines
	case !n.Engines:
		return apinodes.NodeAPI
	}
	return apinodes.NodeBoth
}

func (s *service) DrainNode(ctx context.Context, id string) error {
	err := s.System.DrainNode(ctx, id)
	var refusal *peer.Refusal
	if errors.Is(err, peer.ErrRefused) || errors.Is(err, peer.ErrUnreachable) || errors.As(err, &refusal) {
		return fmt.Errorf("%w: %w", apinodes.ErrAway, err)
	}
	return err
}

// Actors lists the actors of the nodes.
func (s *service) Actors(ctx context.Context, f apinodes.ActorFilter) ([]apinodes.Actor, []apinodes.Answered, error) {
	replies, err := s.System.Actors(ctx, f.Node, registry.Filter{Kind: f.Kind, Job: f.Job, MinAge: f.MinAge})
	if err != nil {
		return nil, nil, err
	}
	var all []apinodes.Actor
	answered := []apinodes.Answered{}
	for _, r := range replies {
		a := apinodes.Answered{ID: r.Node.ID, Name: r.Node.Name, LeftOut: r.Answer.LeftOut}
		if r.Err != nil {
			a.Error = exchange.OrNull(short(r.Err))
		}
		answered = append(answered, a)
		for _, one := range r.Answer.Actors {
			all = append(all, actorOf(r.Node.ID, r.Node.Name, one))
		}
	}
	slices.SortStableFunc(all, func(a, b apinodes.Actor) int {
		return cmp.Compare(max(b.Oldest, b.TaskSeconds), max(a.Oldest, a.TaskSeconds))
	})
	return all, answered, nil
}

func actorOf(id, name string, a registry.Actor) apinodes.Actor {
	actor := apinodes.Actor{
		NodeID: id, Node: name, ID: a.ID, Kind: a.Kind, Job: exchange.OrNull(a.Job), Engine: exchange.OrNull(a.Engine), State: a.State, Since: a.Since,
		Restarts: a.Restarts, Depth: a.Depth, Oldest: seconds(a.Oldest),
		Tasks: a.Tasks, Task: exchange.OrNull(a.Task), TaskSeconds: seconds(a.TaskTime),
	}
	if a.Trouble != nil {
		actor.LastError = &apinodes.LastError{Message: a.Trouble.Text, At: a.Trouble.At}
	}
	return actor
}

// seconds returns a duration in seconds, to the millisecond.
func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }
