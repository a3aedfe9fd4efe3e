package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/bench/verdict"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/openai"
)

// Limits of the climb, which doubles the number of requests in flight at each server
// until the rate no longer grows. The climb ends after climbFlat steps in a row that
// gained less than climbGain, so that a single slow step does not end it. It also ends
// after a third of the time, or at mostInFlight, the most requests that vLLM runs at
// once by default.
const (
	firstInFlight = 8
	mostInFlight  = 1024
	climbGain     = 1.05
	climbFlat     = 2
	climbWaves    = 3 // least number of requests in a step, as a multiple of the number in flight
)

// benchServers are all servers of a model. The bench sends requests to all of them at the
// same time, and makes the requests as Rowmill does.
type benchServers []benchServer

type benchServer struct {
	name   string
	engine engine.Engine
	call   engine.PreparedCall
}

func (t benchServers) close() {
	for _, one := range t {
		one.engine.Close()
	}
}

// samplingParams returns the sampling parameters of direct requests and of jobs.
func (b *benchRun) samplingParams() map[string]any {
	return map[string]any{"max_tokens": b.maxTokens, "temperature": 0.7}
}

// connectServers returns the servers, ready for direct requests. If this machine cannot
// reach one of them, connectServers returns no servers and writes the reason to b.measured.
func (b *benchRun) connectServers(ctx context.Context, api *client.Client, model client.Model, servers []client.Engine) (benchServers, error) {
	key, err := b.readEngineKey()
	if err != nil {
		return nil, err
	}
	here, err := findLocalNodes(ctx, api)
	if err != nil {
		return nil, err
	}
	var all benchServers
	for _, e := range servers {
		one, err := b.openTarget(ctx, model, e, here[e.Node], key)
		if err != nil {
			all.close()
			b.measured.Unreached = fmt.Sprintf("%s of node %s: %v", e.Name, e.Node, err)
			return nil, context.Cause(ctx)
		}
		all = append(all, one)
		b.reached = append(b.reached, e.Node+"/"+e.Name)
	}
	return all, nil
}

func (b *benchRun) openTarget(ctx context.Context, model client.Model, e client.Engine, onThisMachine bool, key string) (benchServer, error) {
	if e.URL == nil {
		return benchServer{}, errors.New("the node has not announced the URL of this inference server")
	}
	if isLoopbackURL(*e.URL) && !onThisMachine {
		return benchServer{}, fmt.Errorf("the server listens at %s, the loopback address of another machine", *e.URL)
	}
	name := servedModelName(e, model.ID)
	server, err := openai.New(openai.Config{Name: e.Name, BaseURL: *e.URL, APIKey: key, ModelMap: map[string]string{model.ID: name}})
	if err != nil {
		return benchServer{}, err
	}
	if _, err := server.Probe(ctx); err != nil {
		server.Close()
		return benchServer{}, fmt.Errorf("the server does not answer this machine at %s: %w; if it requires a key, give --engine-key-file", *e.URL, err)
	}
	call, err := server.Prepare(engine.JobParams{
		Model:    rowmill.Model{ID: model.ID, Kind: model.Kind, ContextLength: int(model.ContextLength), EngineNames: []string{name}},
		Sampling: b.samplingParams(), MaxTokens: b.maxTokens, ContextLen: int(model.ContextLength),
	})
	if err != nil {
		server.Close()
		return benchServer{}, err
	}
	return benchServer{name: e.Name, engine: server, call: call}, nil
}

// findLocalNodes returns the names of the nodes that run on this machine: the node that
// answers, and nodes that announce a loopback address. If the address of api is not a
// loopback address, it returns none, because the nodes may run anywhere.
func findLocalNodes(ctx context.Context, api *client.Client) (map[string]bool, error) {
	here := map[string]bool{}
	if !isLoopbackURL(api.Server()) {
		return here, nil
	}
	found, _, err := api.ListNodes(ctx)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range found.Nodes {
		here[n.Name] = n.Self || isLoopbackURL(n.URL)
	}
	return here, nil
}

// isLoopbackURL reports whether a URL has a loopback address.
func isLoopbackURL(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// findPeakRate finds the number of requests in flight at which the servers are fastest, and
// returns their rate there in rows per second.
func (b *benchRun) findPeakRate(ctx context.Context, t benchServers) (float64, error) {
	begun := time.Now()
	// The first answers of a server are slow, so they must not count for its rate.
	if _, err := t.sendAllRows(ctx, b.makePrompts("first", firstInFlight*len(t)), firstInFlight); err != nil {
		return 0, err
	}
	b.sent += firstInFlight * len(t)
	best, flat := 0.0, 0
	for n := firstInFlight; n <= mostInFlight; n *= 2 {
		step, sent, err := t.measureRate(ctx, b.makePrompts(fmt.Sprint("step ", n), max(b.maxRows, climbWaves*n*len(t))), n, b.length/40)
		b.sent += sent
		var refused *engine.Error
		if errors.As(err, &refused) && refused.Overloaded && best > 0 {
			b.Term.Say("%d rows in flight at each server are too many for one server: %s", n, terminal.SanitizeLine(err.Error()))
			return best, nil
		}
		if err != nil {
			return 0, err
		}
		b.measured.Steps = append(b.measured.Steps, verdict.LoadStep{InFlight: n, Rows: step})
		b.Term.Say("%d in flight at each server: %s rows/s", n, formatFigure(step))
		if flat++; step > climbGain*best {
			flat = 0
		}
		best = max(best, step)
		if flat == climbFlat {
			break
		}
		if time.Since(begun) > b.length/3 || 2*n > mostInFlight {
			b.measured.Rising = flat == 0
			break
		}
	}
	return best, nil
}

// sendAllRows sends all rows to the servers, with inFlight rows at each server. It returns
// the rate, in rows per second, from the first request to the last answer.
func (t benchServers) sendAllRows(ctx context.Context, rows []string, inFlight int) (float64, error) {
	begun := time.Now()
	if _, err := t.sendRows(ctx, rows, inFlight, func(int) bool { return false }, func() {}); err != nil {
		return 0, err
	}
	return float64(len(rows)) / time.Since(begun).Seconds(), nil
}

// measureRate sends rows to the servers for the time minDuration, or longer: until
// climbWaves times the number of rows in flight were sent. It returns the rate while all
// slots are in use: the measurement begins when as many rows are answered as run at once,
// and ends when the last row is sent.
func (t benchServers) measureRate(ctx context.Context, rows []string, inFlight int, minDuration time.Duration) (rate float64, sent int, err error) {
	begun := time.Now()
	var mu sync.Mutex
	var answers []time.Time
	var last time.Time
	sent, err = t.sendRows(ctx, rows, inFlight, func(next int) bool {
		over := next >= climbWaves*inFlight*len(t) && time.Since(begun) > minDuration
		mu.Lock()
		defer mu.Unlock()
		if !over {
			last = time.Now()
		}
		return over
	}, func() {
		mu.Lock()
		defer mu.Unlock()
		answers = append(answers, time.Now())
	})
	if err != nil {
		return 0, sent, err
	}
	slices.SortFunc(answers, time.Time.Compare)
	first := answers[min(inFlight*len(t), len(answers))-1]
	steady := 0
	for _, at := range answers {
		if at.After(first) && !at.After(last) {
			steady++
		}
	}
	if span := last.Sub(first); steady > 0 && span > 0 {
		return float64(steady) / span.Seconds(), sent, nil
	}
	return float64(len(answers)) / answers[len(answers)-1].Sub(begun).Seconds(), sent, nil
}

// sendRows sends rows in order, each to a server with fewer than inFlight rows in flight,
// until shouldStop returns true or all rows are sent. It returns how many rows were
// answered. If a server refuses a row, the run ends with an error, because refused rows
// would make the rate wrong.
func (t benchServers) sendRows(ctx context.Context, rows []string, inFlight int, shouldStop func(next int) bool, onAnswer func()) (int, error) {
	group, ctx := errgroup.WithContext(ctx)
	var next, sent atomic.Int64
	for _, one := range t {
		for range inFlight {
			group.Go(func() error {
				for {
					i := int(next.Add(1) - 1)
					if i >= len(rows) || shouldStop(i) {
						return nil
					}
					if _, err := one.call.Generate(ctx, engine.Row{Text: []byte(rows[i])}); err != nil {
						return fmt.Errorf("%s: %w", one.name, err)
					}
					sent.Add(1)
					onAnswer()
				}
			})
		}
	}
	err := group.Wait()
	return int(sent.Load()), err
}
