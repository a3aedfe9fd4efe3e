package actors_test

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill/engine"
)

// A scripted engine answers with a function, so a test decides the outcome of each
// row.
type scripted struct {
	name   string
	models []engine.ServedModel
	answer func(ctx context.Context, row string, try int) (engine.Reply, error)

	slots      int // default 8
	prepareErr error
	panics     bool // when a worker reads its warnings
	down       atomic.Bool
	calls      atomic.Int64

	mu    sync.Mutex
	tries map[string]int
	seeds map[string][]int64
}

func (s *scripted) Name() string { return s.name }

func (s *scripted) Probe(context.Context) (engine.ServerInfo, error) {
	if s.down.Load() {
		return engine.ServerInfo{}, &engine.Error{Class: engine.ServerFault, Message: "connection refused"}
	}
	return engine.ServerInfo{Kind: "scripted", Slots: cmp.Or(s.slots, 8), Models: s.models}, nil
}

func (s *scripted) Gauges(context.Context) (engine.Gauges, error) {
	return engine.Gauges{}, engine.ErrNoGauges
}

func (s *scripted) Prepare(engine.JobParams) (engine.PreparedCall, error) { return s, s.prepareErr }
func (s *scripted) Close()                                                {}

func (s *scripted) Warnings() []string {
	if s.panics {
		panic("no warnings today")
	}
	return nil
}

func (s *scripted) try(row engine.Row) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tries == nil {
		s.tries, s.seeds = make(map[string]int), make(map[string][]int64)
	}
	s.tries[string(row.Text)]++
	if row.Seed != nil {
		s.seeds[string(row.Text)] = append(s.seeds[string(row.Text)], *row.Seed)
	}
	return s.tries[string(row.Text)]
}

func (s *scripted) Generate(ctx context.Context, row engine.Row) (engine.Reply, error) {
	s.calls.Add(1)
	if s.down.Load() {
		return engine.Reply{}, &engine.Error{Class: engine.Transient, Message: "connection reset"}
	}
	return s.answer(ctx, string(row.Text), s.try(row))
}

func (s *scripted) Embed(ctx context.Context, rows []engine.Row) ([]engine.Reply, []*engine.Error, error) {
	replies, faults := make([]engine.Reply, len(rows)), make([]*engine.Error, len(rows))
	for i, row := range rows {
		s.try(row)
		replies[i] = engine.Reply{Embedding: []float32{float32(len(row.Text)), 0.5}, InputTokens: 2}
	}
	s.calls.Add(1)
	return replies, faults, ctx.Err()
}

// echo answers every row at once, with 3 tokens in and 2 out.
func echo(_ context.Context, row string, _ int) (engine.Reply, error) {
	return engine.Reply{Content: "re: " + row, Finish: "stop", InputTokens: 3, OutputTokens: 2, LogprobSum: -1, LogprobCount: 2}, nil
}

// slowly answers after a pause, unless the request is cancelled.
func slowly(pause time.Duration) func(context.Context, string, int) (engine.Reply, error) {
	return func(ctx context.Context, row string, try int) (engine.Reply, error) {
		select {
		case <-ctx.Done():
			return engine.Reply{}, ctx.Err()
		case <-time.After(pause):
			return echo(ctx, row, try)
		}
	}
}
