package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cmd/rowmill/gpu"
	"github.com/rowmill/rowmill/http"
	"github.com/rowmill/rowmill/internal/memo"
	"github.com/rowmill/rowmill/store"
)

// What nodes tell the API of each other.
const (
	figuresEngines = "engines"
	figuresPoints  = "points"
	figuresGPUs    = "gpus"
)

// figuresFresh is for how long what other nodes have said is good for others who ask:
// many pages that are open cost no more than one. maxWhere is of how many jobs that is
// kept at once.
const (
	figuresFresh = time.Second
	maxWhere     = 1000
)

// figures are what this node tells.
func (m *Main) figures(ctx context.Context, what string) (any, error) {
	s := service{m.Pipeline, m}
	switch what {
	case figuresEngines:
		return s.ownEngines(), nil
	case figuresPoints:
		return m.meter.all(), nil
	case figuresGPUs:
		return m.ownGPUs(ctx), nil
	}
	return nil, &peer.Refusal{Code: peer.CodeUnknownKind, Message: fmt.Sprintf("no figures %q here", what)}
}

// asked is what nodes have said of late.
type asked struct {
	figures memo.Memo[string, []actors.Reply[json.RawMessage]] // by what was asked
	where   memo.Memo[string, *http.Whereabouts]               // by job
}

func newAsked() *asked {
	return &asked{
		figures: memo.Memo[string, []actors.Reply[json.RawMessage]]{Age: figuresFresh, Most: 3},
		where:   memo.Memo[string, *http.Whereabouts]{Age: figuresFresh, Most: maxWhere},
	}
}

// figuresOf asks all nodes, unless somebody just did.
func (s service) figuresOf(ctx context.Context, what string) ([]actors.Reply[json.RawMessage], error) {
	return s.node.asked.figures.Get(ctx, what, func(ctx context.Context) ([]actors.Reply[json.RawMessage], error) {
		return s.System.Figures(ctx, what)
	})
}

// A said is what one node has said, or why not.
type said[T any] struct {
	node   nodes.Status
	answer T
	err    error
}

// saidBy decodes what all nodes have said to a question.
func saidBy[T any](ctx context.Context, s service, what string) ([]said[T], error) {
	replies, err := s.figuresOf(ctx, what)
	if err != nil {
		return nil, err
	}
	all := make([]said[T], len(replies))
	for i, r := range replies {
		all[i] = said[T]{node: r.Node, err: r.Err}
		if r.Err == nil {
			all[i].err = json.Unmarshal(r.Answer, &all[i].answer)
		}
	}
	return all, nil
}

// problem is why a node has not answered; nil where it has.
func (s said[T]) problem() *string {
	if s.err == nil {
		return nil
	}
	text := "It has not answered: " + short(s.err)
	return &text
}

// EngineList lists the inference servers of all nodes. Of one that does not answer
// they are those that it has told of before.
func (s service) EngineList(ctx context.Context) (all []http.Engine, missing []string, err error) {
	replies, err := saidBy[[]http.Engine](ctx, s, figuresEngines)
	for _, r := range replies {
		if r.err == nil {
			all = append(all, r.answer...)
			continue
		}
		missing = append(missing, r.node.Name)
		for _, e := range r.node.Servers {
			all = append(all, s.node.remoteEngine(r.node.Name, e))
		}
	}
	return all, missing, err
}

func (s service) ownEngines() []http.Engine {
	all := []http.Engine{}
	name := ""
	for _, n := range s.System.Nodes() {
		if n.Self {
			name = n.Name
		}
	}
	for _, e := range s.Engines() {
		all = append(all, s.node.ownEngine(name, e))
	}
	return all
}

// Points are what the nodes have done of late.
func (s service) Points(ctx context.Context) ([]http.NodePoints, error) {
	replies, err := saidBy[[]http.Point](ctx, s, figuresPoints)
	all := make([]http.NodePoints, len(replies))
	for i, r := range replies {
		all[i] = http.NodePoints{Node: r.node.Name, Points: r.answer, Problem: r.problem()}
	}
	return all, err
}

// GPUs are those of all nodes.
func (s service) GPUs(ctx context.Context) ([]http.NodeGPUs, error) {
	replies, err := saidBy[http.NodeGPUs](ctx, s, figuresGPUs)
	all := make([]http.NodeGPUs, len(replies))
	for i, r := range replies {
		all[i] = http.NodeGPUs{Node: r.node.Name, GPUs: r.answer.GPUs, Problem: r.answer.Problem}
		if r.err != nil {
			all[i].Problem = r.problem()
		}
	}
	return all, err
}

// Whereabouts asks the owner of a job where its rows are, unless somebody just did.
func (s service) Whereabouts(ctx context.Context, record *store.Record) *http.Whereabouts {
	where, err := s.node.asked.where.Get(ctx, record.Job.ID, func(ctx context.Context) (*http.Whereabouts, error) {
		found, err := s.System.Whereabouts(ctx, record)
		if err != nil {
			return nil, err
		}
		all := &http.Whereabouts{Shards: http.ShardCount{Total: found.Shards, Complete: found.Complete}}
		for _, n := range found.Nodes {
			all.Nodes = append(all.Nodes, http.NodeRows(n))
		}
		return all, nil
	})
	if err != nil {
		s.node.Logger.Debug("where the rows of a job are is not known", "job", record.Job.ID, "err", err)
	}
	return where
}

// ownGPUs are those of this machine.
func (m *Main) ownGPUs(ctx context.Context) (own http.NodeGPUs) {
	found, err := m.gpus.Read(ctx)
	if err != nil && !errors.Is(err, gpu.ErrNone) {
		text := "nvidia-smi cannot be read: " + short(err)
		own.Problem = &text
	}
	for _, g := range found {
		own.GPUs = append(own.GPUs, http.GPU{
			Index: g.Index, Name: g.Name, UUID: g.UUID, MemoryTotal: known(g.MemoryTotal), MemoryUsed: known(g.MemoryUsed),
			Utilization: known(g.Utilisation), Power: known(g.Power), Temperature: known(g.Temperature),
		})
	}
	return own
}

// known is a figure, nil where the driver does not tell it.
func known[T int64 | float64](figure T) *T {
	if figure < 0 {
		return nil
	}
	return &figure
}
