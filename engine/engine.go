// Package engine runs rows on models. It owns the contract between the
// pipeline and an inference server (Engine), the classes of error, and the
// suite that every adapter must pass (enginetest). engine/openai speaks to
// real servers over HTTP; sim is a simulated server behind the same
// adapter. It knows nothing of jobs, shards or actors.
package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
)

// Engine is one inference server. All methods are safe for concurrent use.
type Engine interface {
	// Name is unique among a node's engines and stable over restarts, such as
	// "127.0.0.1:8000".
	Name() string

	// Probe asks the server what it is and what it serves now. An error means
	// that it is not usable at present.
	Probe(ctx context.Context) (Info, error)

	// Gauges reads how busy the server is. ErrNoGauges where it does not say.
	Gauges(ctx context.Context) (Gauges, error)

	// Prepare compiles what all rows of a job have in common. The job's model
	// must be served by the last probe. An error here is a configuration the
	// server cannot honour, never a passing fault.
	Prepare(p Params) (Call, error)

	// Close drops idle connections.
	Close()
}

// Call runs rows that share Params on one server. It is safe for concurrent
// use.
type Call interface {
	// Generate runs one row. Its text is UTF-8, and is neither changed nor kept. A non-nil
	// error is an *Error, or the context's. Closing the context cancels the
	// request on the server where that can be done.
	Generate(ctx context.Context, row Row) (Reply, error)

	// Embed runs a group of rows on an embedding model; replies come in the
	// order of the rows. A row's own fault is in its Reply's place of the
	// second result (nil for the good ones): the group is halved until the bad
	// rows stand alone.
	Embed(ctx context.Context, rows []Row) ([]Reply, []*Error, error)

	// Warnings lists parameters that this server cannot honour or changes, and what its
	// answers have shown: it may become longer while rows run.
	Warnings() []string
}

// PromptCounter is an optional interface of a Call, for servers that count
// prompts themselves. Our own count is made from a vocabulary and a template
// that may be missing or wrong; the server's is what its usage will say.
type PromptCounter interface {
	// CountPrompt returns the tokens of the whole prompt as the server would
	// see it: the row's text with template, system prompt and everything else
	// that Generate or Embed would send. Nothing is generated. The error is
	// ErrNoCounting where the server cannot do it, else an *Error or the
	// context's; a prompt beyond the server's context is either counted or
	// refused with TooLong. No error says anything of how the server runs rows:
	// servers switch counting off, or are slow at it, and work.
	CountPrompt(ctx context.Context, row Row) (tokens int, err error)
}

// ErrNoCounting says that a server cannot count prompts.
var ErrNoCounting = errors.New("server counts no prompts")

// ErrCutsPrompts is the ErrNoCounting of a server that, beyond its context, cuts
// prompts without saying so, where others refuse them.
var ErrCutsPrompts = fmt.Errorf("%w, and cuts those beyond its context", ErrNoCounting)

// Params is what the rows of a job have in common.
type Params struct {
	Model      rowmill.Model
	Path       string          // of requests whose bodies are the rows: then Model's kind is KindRaw, and what follows means nothing
	System     string          // system prompt; empty for none
	Schema     json.RawMessage // JSON Schema the answer must conform to; nil for none
	Sampling   map[string]any  // effective sampling parameters, validated
	Logprobs   bool            // ask for log probabilities
	RowSeeds   bool            // rows come with seeds of their own
	MaxTokens  int             // upper bound of the answer, tokens; 0 is the server's own
	ContextLen int             // pinned context length of the job, tokens
}

// Row is one request.
type Row struct {
	Text []byte // the prompt as the user message, UTF-8; of KindRaw an object, the body but for its model
	Seed *int64 // overrides the seed of Params for this row

	// Patience is how long to wait for the answer, queueing on the server
	// included; 0 is the engine's own bound, made for the slowest server. When
	// it is over the call fails with a Moment whose Code is "timeout".
	Patience time.Duration

	// Failures is how often servers have answered the row with HTTP 500. What the engine
	// adds to the request by itself may be the cause.
	Failures int

	// Traceparent is a header of the request, as the W3C's Trace Context has it: the
	// span that the request is. Empty for none; of a group the first row's is meant.
	Traceparent string
}

// Reply is one accepted answer.
type Reply struct {
	Content   string // the final answer; of KindRaw the whole reply, on one line
	Reasoning string // reasoning models; empty otherwise
	Embedding []float32

	Finish       rowmill.FinishReason
	InputTokens  int64 // 0 where the server does not count them
	CachedTokens int64 // of InputTokens: those the server had in its prefix cache; 0 where it does not say
	OutputTokens int64

	// LogprobSum and LogprobCount cover the tokens of the final answer,
	// reasoning excluded; count 0 means that the server gave none.
	LogprobSum   float64
	LogprobCount int64
}

// Info is what a server says about itself.
type Info struct {
	Kind      string        // "vllm", "sglang", "llama.cpp", "ollama", "infinity", "tei", "rowmill-sim", "openai"
	Version   string        // empty where the server does not say
	Simulated bool          // outputs are made up
	Slots     int           // rows it runs at once; 0 when unknown
	Models    []ServedModel // what it serves now
}

// Same reports whether both offer the same models, in as many slots.
func (i Info) Same(other Info) bool {
	return i.Kind == other.Kind && i.Slots == other.Slots && slices.Equal(i.Models, other.Models)
}

// ServedModel is a model a server offers.
type ServedModel struct {
	Name          string // the server's name for it
	ContextLength int    // tokens a request may use on this server; 0 when unknown

	// What it is, each empty where nobody has said.
	Origin    string       `json:",omitempty"` // its Hugging Face id, where Name is another
	Base      string       `json:",omitempty"` // of an adapter: the server's name for what it adapts
	Kind      rowmill.Kind `json:",omitempty"`
	Dimension int          `json:",omitempty"` // of an embedding
	Unusable  string       `json:",omitempty"` // why nothing can run on it, with the remedy
}

// Names are what the model may be asked for as: what the server calls it, where
// Ollama's tag "latest" may be left out as it may there, and its Hugging Face id.
func (s ServedModel) Names() []string {
	names := []string{s.Name}
	if short, latest := strings.CutSuffix(s.Name, ":latest"); latest {
		names = append(names, short)
	}
	if s.Origin != "" {
		names = append(names, s.Origin)
	}
	return names
}

// Find returns the served model that is m: one called by its id or one of its
// engine names. What servers call theirs goes before their other names, which
// several may share.
func (i Info) Find(m rowmill.Model) (ServedModel, bool) {
	meant := func(name string) bool { return name == m.ID || slices.Contains(m.EngineNames, name) }
	for _, served := range i.Models {
		if meant(served.Name) {
			return served, true
		}
	}
	for _, served := range i.Models {
		if slices.ContainsFunc(served.Names()[1:], meant) {
			return served, true
		}
	}
	return ServedModel{}, false
}

// A Route is a way of rows through a server: a model, and the path that it is
// asked by. One can be broken while the server's others work.
type Route string

// RouteOf is the route of a job's rows.
func RouteOf(spec *rowmill.Spec) Route {
	switch m := spec.Model; m.Kind {
	case rowmill.KindEmbedding:
		return Route(m.ID + " (embeddings)")
	case rowmill.KindRaw:
		return Route(m.ID + " (" + spec.Raw.Path + ")")
	default:
		return Route(m.ID)
	}
}

// Gauges are a server's own load figures.
type Gauges struct {
	Running     int64   // rows in the batch
	Waiting     int64   // rows in the server's queue
	KVUse       float64 // share of the KV cache in use, 0 to 1; -1 when unknown
	Preemptions int64   // total since the server started
	KVTokens    int64   // size of the KV cache in tokens; 0 when unknown
}

// ErrNoGauges says that a server publishes no load figures.
var ErrNoGauges = fmt.Errorf("server publishes no gauges")

// Class says whose fault an error is, which decides what happens next.
type Class uint8

// The classes of error.
const (
	// RowFault is final: sending the row again cannot help.
	RowFault Class = iota + 1
	// Moment is a passing fault that the row may have caused: the row is tried
	// again, elsewhere first, a bounded number of times.
	Moment
	// Busy is the state of the server: a rate limit, too much load, a model that is
	// still loading, a used-up quota, a gateway without a server behind it. It costs
	// the row no attempt. The row waits as long as the server asks, or longer each time.
	Busy
	// ServerFault is the server's: the row goes elsewhere without blame and
	// the server is taken out of use until a probe succeeds.
	ServerFault
	// JobFault refuses what all rows have in common, such as a schema the
	// server cannot compile: the job fails at once.
	JobFault
)

// Pace is the most that is sent to a server in a minute. Zero is no limit.
type Pace struct {
	Requests int
	Tokens   int // of prompts and answers
}

// Error is why a server gave no answer.
type Error struct {
	Class      Class
	Status     int           // HTTP status; 0 when there was none
	Code       string        // machine word: a rowmill.Row… code, or the server's own
	Message    string        // short; never holds a prompt or an answer
	Raw        string        // the answer that was not accepted, if any, cut to 64 KiB
	RetryAfter time.Duration // what the server asked for; 0 when nothing
	Overloaded bool          // 429 or 503: the window should shrink
	Broke      bool          // the connection ended before the answer: the server may have crashed
	TooLong    bool          // the prompt exceeds the server's context
	Context    int           // of a prompt that does: the context, tokens, where the server says it; else 0
	Prompt     int           // of a prompt that does: its own tokens, likewise
}

// Error returns the message with the status.
func (e *Error) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("%s (HTTP %d)", e.Message, e.Status)
	}
	return e.Message
}
