package openai

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/hostile"
	"github.com/rowmill/rowmill/internal/must"
)

// hostileAnswer is the correct answer of the server.
const hostileAnswer = `{"n":5}`

// A hostileServer sends a hostile answer at one path and correct answers at all others.
type hostileServer struct {
	path string
	kind atomic.Pointer[hostile.AnswerKind] // nil: correct answers
	most int64                              // limit of a body for the engine; 0 means its default
}

// fewBytes limits answers that never end.
const fewBytes = 16 << 20

// meet starts a server of a kind and returns an engine that has probed it while it
// answered correctly.
func (h *hostileServer) meet(t *testing.T, flavor string) *Engine {
	t.Helper()
	s := must.Get(hostile.Start(t.Context(), hostile.Config{
		Flavor: flavor, Model: "m", Answer: hostileAnswer,
		Choose: func(r hostile.Request, _ uint64) *hostile.AnswerKind {
			if r.Path != h.path {
				return nil
			}
			return h.kind.Load()
		},
	}))(t)
	t.Cleanup(s.Stop)
	e := probed(t, Config{BaseURL: s.URL(), MaxBodyBytes: h.most})
	h.becomes(e, nil)
	return e
}

// becomes switches the server to a kind of hostile answer; nil means correct answers.
// Only a kind that leaves requests without an answer gets a short timeout: the machine
// may pause.
func (h *hostileServer) becomes(e *Engine, kind *hostile.AnswerKind) {
	h.kind.Store(kind)
	patience := 30 * time.Second
	if kind != nil && kind.Waits {
		patience = 300 * time.Millisecond
	}
	e.cfg.ProbeTimeout, e.probeClient.Timeout = patience, patience
}

// within fails the test if do takes too much processor time or allocates too much
// memory. It measures the whole process, so its tests run one at a time.
func within(t *testing.T, do func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := processorTime(t)
	do()
	if took := processorTime(t) - began; took > 20*time.Second {
		t.Errorf("it took %v of the processor", took)
	}
	runtime.ReadMemStats(&after)
	// The sum of all allocations: most become garbage at once.
	if took, limit := after.TotalAlloc-before.TotalAlloc, uint64(64<<20); took > limit {
		t.Errorf("%d MiB were allocated, want at most %d", took>>20, limit>>20)
	}
}

// processorTime returns the processor time of this process.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	must.Succeed(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// wantClassified checks that an error has a class and a short printable message.
func wantClassified(t *testing.T, err error) {
	t.Helper()
	var fault *engine.Error
	if !errors.As(err, &fault) {
		t.Fatalf("%T: %v, want an *engine.Error", err, err)
	}
	if fault.Class == 0 || fault.Class == engine.JobFault || fault.Code == "" || fault.Message == "" || len(fault.Message) > 1000 {
		t.Errorf("%#v", fault)
	}
	wantPrintable(t, fault.Message)
	wantPrintable(t, fault.Code)
	if fault.RetryAfter < 0 || fault.RetryAfter > maxRetryAfter {
		t.Errorf("RetryAfter is %v", fault.RetryAfter)
	}
}

// wantPrintable checks that a text can be shown in a terminal.
func wantPrintable(t testing.TB, text string) {
	t.Helper()
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7F || r == '\u202e' }) {
		t.Errorf("%.100q is not printable", text)
	}
}

// wantPlausible checks that the numbers of a reply are possible for the requests of
// these tests.
func wantPlausible(t *testing.T, r engine.Reply) {
	t.Helper()
	if r.InputTokens < 0 || r.InputTokens > 1<<20 || r.OutputTokens < 0 || r.OutputTokens > 1<<20 || r.CachedTokens > r.InputTokens {
		t.Errorf("%d, %d and %d tokens", r.InputTokens, r.CachedTokens, r.OutputTokens)
	}
	if math.IsNaN(r.LogprobSum) || math.IsInf(r.LogprobSum, 0) || !utf8.ValidString(r.Content) || !utf8.ValidString(r.Reasoning) {
		t.Errorf("log probabilities %v, content %.100q", r.LogprobSum, r.Content)
	}
}

// TestHostileAnswers checks each hostile answer to a row: it ends in a classified error
// or in the correct answer, with limited time and memory. Afterwards the engine works
// as before.
func TestHostileAnswers(t *testing.T) {
	for _, c := range []struct {
		name, flavor, path, kinds string
		model                     rowmill.Model
	}{
		{"body", "vllm", hostile.Chat, hostile.Chat, generator},
		{"stream", "llama.cpp", hostile.Chat, hostile.Stream, generator},
		{"embeddings", "vllm", hostile.Embeddings, hostile.Embeddings, embedder},
	} {
		h := &hostileServer{path: c.path}
		if c.name != "body" { // with a line of 100 MB
			h.most = fewBytes
		}
		e := h.meet(t, c.flavor)
		params := engine.JobParams{Model: c.model}
		if c.model.Kind != rowmill.KindEmbedding {
			params.MaxTokens = 1000
		}
		call := prepared(t, e, params)
		run := func(ctx context.Context, patience time.Duration) (engine.Reply, error) {
			row := engine.Row{Text: []byte("a row"), Timeout: patience}
			if c.model.Kind != rowmill.KindEmbedding {
				return call.Generate(ctx, row)
			}
			replies, faults, err := call.Embed(ctx, []engine.Row{row})
			switch {
			case err != nil:
				return engine.Reply{}, err
			case faults[0] != nil:
				return engine.Reply{}, faults[0]
			}
			return replies[0], nil
		}
		right := func(r engine.Reply) bool {
			return r.Content == hostileAnswer && r.InputTokens == 3 && r.OutputTokens == 3 ||
				len(r.Embedding) == 2 && r.Embedding[0] == 0.5 && r.InputTokens == 3
		}
		for _, kind := range hostile.Kinds(c.kinds) {
			if kind.Bulky && testing.Short() {
				continue
			}
			t.Run(c.name+"/"+kind.Name, func(t *testing.T) {
				within(t, func() {
					h.becomes(e, &kind)
					patience := 10 * time.Minute // else the speed of the machine would decide
					if kind.Waits {
						patience = 50 * time.Millisecond
					}
					reply, err := run(t.Context(), patience)
					h.becomes(e, nil)
					switch {
					case err != nil && kind.Outcome == hostile.Keeps:
						t.Errorf("%v, want the right answer", err)
					case err != nil:
						wantClassified(t, err)
						var fault *engine.Error
						if errors.As(err, &fault) && fault.Code == "timeout" && !kind.Waits {
							t.Errorf("only the timeout ended it")
						}
					case kind.Outcome == hostile.Breaks && c.name == "stream" && right(reply):
						// The last event completes it, whatever follows.
					case kind.Outcome == hostile.Breaks:
						t.Errorf("accepted: %.200q, %d and %d tokens", reply.Content, reply.InputTokens, reply.OutputTokens)
					case kind.Outcome == hostile.Keeps && !right(reply):
						t.Errorf("%.200q, want the right answer", reply.Content)
					default:
						wantPlausible(t, reply)
						if kind.Text != "" && (reply.Content != kind.Text || reply.InputTokens != 3 || reply.OutputTokens != 3) {
							t.Errorf("%.200q with %d and %d tokens, want the answer that was sent", reply.Content, reply.InputTokens, reply.OutputTokens)
						}
					}
					if reply, err = run(t.Context(), 10*time.Minute); err != nil || !right(reply) {
						t.Errorf("afterwards: %+v, %v", reply, err)
					}
				})
			})
		}
	}
}

// TestHostileFields replaces the value of every field of every answer with values of
// other types and with extreme values, one at a time.
func TestHostileFields(t *testing.T) {
	for flavor, paths := range map[string][]string{
		"vllm":      {hostile.Chat, hostile.Embeddings, hostile.Models, "/version", hostile.Tokenize},
		"llama.cpp": {hostile.Models, "/props", "/v1/chat/completions/input_tokens"},
		"sglang":    {hostile.Models, "/server_info", "/model_info", hostile.Tokenize},
		"ollama":    {hostile.Models, "/api/version", "/api/ps", "/api/tags", "/api/show"},
	} {
		for _, path := range paths {
			t.Run(flavor+path, func(t *testing.T) {
				var body string
				h := &hostileServer{path: path}
				e := h.meet(t, flavor)
				generation := prepared(t, e, engine.JobParams{Model: generator, MaxTokens: 100})
				for _, body = range hostile.Mutations(h.page(t, e, path)) {
					kind := hostile.NewPageKind(body)
					h.becomes(e, &kind)
					var err error
					var reply engine.Reply
					switch path {
					case hostile.Chat:
						reply, err = generation.Generate(t.Context(), engine.Row{Text: []byte("x")})
					case hostile.Embeddings:
						var replies []engine.Reply
						if replies, _, err = prepared(t, e, engine.JobParams{Model: embedder}).Embed(t.Context(), []engine.Row{{Text: []byte("x")}}); err == nil {
							reply = replies[0]
						}
					case hostile.Tokenize, "/v1/chat/completions/input_tokens":
						var n int
						n, err = prepared(t, e, engine.JobParams{Model: generator}).(engine.PromptCounter).CountPrompt(t.Context(), engine.Row{Text: []byte("x")})
						if errors.Is(err, engine.ErrNoCounting) {
							err = nil
						}
						if n < 0 || n > 1<<20 {
							t.Errorf("%.200s: %d tokens", body, n)
						}
					default:
						info, _ := e.Probe(t.Context()) // an unreadable server counts as down
						wantValidInfo(t, info)
					}
					if err != nil {
						wantClassified(t, err)
					} else {
						wantPlausible(t, reply)
					}
					if t.Failed() {
						t.Fatalf("%.300s", body)
					}
				}
			})
		}
	}
}

// page returns the correct answer of the server at a path.
func (h *hostileServer) page(t *testing.T, e *Engine, path string) []byte {
	t.Helper()
	var good []byte
	kind := hostile.SpyKind(&good)
	h.becomes(e, &kind)
	defer h.becomes(e, nil)
	switch path {
	case hostile.Chat:
		_, _ = prepared(t, e, engine.JobParams{Model: generator, MaxTokens: 100}).Generate(t.Context(), engine.Row{})
	case hostile.Embeddings:
		_, _, _ = prepared(t, e, engine.JobParams{Model: embedder}).Embed(t.Context(), []engine.Row{{}})
	default:
		_, _ = e.fetchPath(t.Context(), path)
	}
	if len(good) == 0 {
		t.Fatalf("there is no page %s", path)
	}
	return good
}

// wantValidInfo checks a server's description before it is stored and sent to other
// nodes: short, printable, and within the limits.
func wantValidInfo(t testing.TB, info engine.ServerInfo) {
	t.Helper()
	if info.Slots < 0 || info.Slots > maxSlots || len(info.Version) > maxVersion || len(info.Models) > maxModels {
		t.Errorf("slots %d, version of %d bytes, %d models", info.Slots, len(info.Version), len(info.Models))
	}
	wantPrintable(t, info.Version)
	for _, m := range info.Models {
		if m.ContextLength < 0 || m.ContextLength > maxContext || len(m.Name) > maxName {
			t.Errorf("a model with a name of %d bytes and a context of %d", len(m.Name), m.ContextLength)
		}
		wantPrintable(t, m.Name)
	}
}

// TestHostilePages checks that a probe of hostile pages stays within its limits of time
// and memory, and that the resulting description is valid.
func TestHostilePages(t *testing.T) {
	for flavor, paths := range map[string][]string{
		"vllm":      {hostile.Models, "/version", "/health"},
		"llama.cpp": {hostile.Models, "/props", "/health"},
		"sglang":    {hostile.Models, "/server_info", "/model_info"},
		"ollama":    {hostile.Models, "/", "/api/version", "/api/ps", "/api/tags", "/api/show"},
	} {
		for _, path := range paths {
			h := &hostileServer{path: path}
			e := h.meet(t, flavor)
			kinds := hostile.ContentKinds(path)
			if flavor == "vllm" { // HTTP errors are the same for all servers
				kinds = hostile.Kinds(path)
			}
			for _, kind := range kinds {
				if kind.Bulky && testing.Short() {
					continue
				}
				t.Run(flavor+path+"/"+kind.Name, func(t *testing.T) {
					within(t, func() {
						h.becomes(e, &kind)
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						defer cancel()
						info, err := e.Probe(ctx)
						h.becomes(e, nil)
						if err == nil {
							wantValidInfo(t, info)
						} else if len(err.Error()) > 1000 {
							t.Errorf("an error of %d bytes", len(err.Error()))
						}
						if path == hostile.Models && kind.Outcome == hostile.Breaks && err == nil {
							t.Errorf("accepted: %.200q", fmt.Sprint(info))
						}
						if _, err = e.Probe(t.Context()); err != nil {
							t.Errorf("afterwards: %v", err)
						}
					})
				})
			}
		}
	}
}

// TestHostileGauges checks that hostile metrics give valid gauges, which a window can
// use.
func TestHostileGauges(t *testing.T) {
	h := &hostileServer{path: hostile.Metrics}
	e := h.meet(t, "vllm")
	for _, kind := range hostile.Kinds(hostile.Metrics) {
		if kind.Bulky && testing.Short() {
			continue
		}
		t.Run(kind.Name, func(t *testing.T) {
			within(t, func() {
				h.becomes(e, &kind)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				g, err := e.Gauges(ctx)
				if err == nil {
					wantValidGauges(t, g)
				}
			})
		})
	}
}

// wantValidGauges checks that gauges are possible values of a server.
func wantValidGauges(t testing.TB, g engine.Gauges) {
	t.Helper()
	if g.Running < 0 || g.Waiting < 0 || g.Preemptions < 0 || g.KVTokens < 0 || g.KVTokens > maxCache ||
		!(g.KVUse == -1 || g.KVUse >= 0 && g.KVUse <= 1) {
		t.Errorf("%+v", g)
	}
	w := engine.NewWindow(0)
	now := time.Now()
	for i := range 10 {
		now = now.Add(time.Second)
		w.RecordGauges(g, 8, 1000, now)
		w.RecordAnswers(8, 100, 100, 8, now)
		if n := w.RowLimit(false); n < 1 || n > 2000 || w.TokenLimit() < 0 {
			t.Fatalf("after %d readings of %+v the window is %d, %d tokens", i, g, n, w.TokenLimit())
		}
	}
}

// TestHostileCounts checks that an impossible count of a server is not used.
func TestHostileCounts(t *testing.T) {
	h := &hostileServer{path: hostile.Tokenize, most: fewBytes}
	e := h.meet(t, "sglang")
	for _, kind := range hostile.Kinds(hostile.Tokenize) {
		if kind.Waits || kind.Bulky && testing.Short() {
			continue
		}
		t.Run(kind.Name, func(t *testing.T) {
			within(t, func() {
				h.becomes(e, &kind)
				n, err := prepared(t, e, engine.JobParams{Model: generator}).(engine.PromptCounter).CountPrompt(t.Context(),
					engine.Row{Text: []byte("a row"), Timeout: 10 * time.Minute})
				switch {
				case err == nil && (n < 0 || n > 1<<20):
					t.Errorf("%d tokens", n)
				case err != nil && !errors.Is(err, engine.ErrNoCounting):
					wantClassified(t, err)
				}
			})
		})
	}
}
