// Package engine runs rows on models. It defines the contract between the pipeline and
// an inference server (Engine), the classes of error, and the conformance suite for
// adapters (enginetest). Package engine/openai is the adapter that talks to real servers
// over HTTP, and also to the simulated server of package engine/sim. This package does
// not know jobs, shards or actors.
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
	// Name returns a name that is unique among a node's engines and stable over
	// restarts, such as "127.0.0.1:8000".
	Name() string

	// Probe asks the server for its kind and its current models. After an error the
	// server is unusable until a later probe succeeds.
	Probe(ctx context.Context) (Info, error)

	// Gauges reads the server's load. It returns ErrNoGauges if the server publishes
	// none.
	Gauges(ctx context.Context) (Gauges, error)

	// Prepare compiles the settings that all rows of a job share. The last probe must
	// have listed the job's model. An error means that the server cannot run this
	// configuration; it is never transient.
	Prepare(p Params) (Call, error)

	// Close drops idle connections.
	Close()
}

// Call runs rows that share Params on one server. It is safe for concurrent
// use.
type Call interface {
	// Generate runs one row. The row's text is UTF-8; Generate neither changes nor
	// keeps it. A non-nil error is an *Error or the context's error. Cancelling the
	// context also cancels the request on the server, if the server supports that.
	Generate(ctx context.Context, row Row) (Reply, error)

	// Embed runs a group of rows on an embedding model and returns the replies in the
	// order of the rows. The second result holds the *Error of each bad row, nil for
	// good rows: Embed halves a refused group until each bad row is alone.
	Embed(ctx context.Context, rows []Row) ([]Reply, []*Error, error)

	// Warnings lists the parameters that this server ignores or changes, and problems
	// seen in its answers. The list may grow while rows run.
	Warnings() []string
}

// PromptCounter is an optional interface of a Call, for servers that count the tokens
// of a prompt. Rowmill's own count needs a vocabulary and a template, which may be
// missing or wrong. The server's count equals the input tokens in the server's usage.
type PromptCounter interface {
	// CountPrompt returns the tokens of the whole prompt: the row's text with the
	// template, the system prompt and everything else that Generate or Embed would
	// send. It generates nothing. The error is ErrNoCounting if the server cannot
	// count, otherwise an *Error or the context's error. A prompt longer than the
	// server's context is either counted or refused with TooLong. Errors of CountPrompt
	// do not affect the server's health: a server may switch counting off, or count
	// slowly, and still run rows.
	CountPrompt(ctx context.Context, row Row) (tokens int, err error)
}

// ErrNoCounting reports that a server cannot count prompts.
var ErrNoCounting = errors.New("server does not count prompts")

// ErrCutsPrompts is an ErrNoCounting for a server that also truncates prompts longer
// than its context without saying so. Other servers refuse such prompts.
var ErrCutsPrompts = fmt.Errorf("%w, and truncates prompts longer than its context", ErrNoCounting)

// Params are the settings that all rows of a job share.
type Params struct {
	Model      rowmill.Model
	Path       string          // request path of a raw job (rows are request bodies, Model's kind is KindRaw); of the fields below, a raw job uses only ContextLen
	System     string          // system prompt; empty for none
	Schema     json.RawMessage // JSON Schema the answer must conform to; nil for none
	Sampling   map[string]any  // effective sampling parameters, validated
	Logprobs   bool            // ask for log probabilities
	RowSeeds   bool            // each row brings its own seed
	MaxTokens  int             // limit of the answer, tokens; 0 means the server's default
	ContextLen int             // pinned context length of the job, tokens
}

// Row is one request.
type Row struct {
	Text []byte // the prompt as the user message, UTF-8; for KindRaw a JSON object, the body without its model
	Seed *int64 // overrides the seed of Params for this row

	// Patience is the timeout of the request, including the time in the server's queue;
	// 0 means the engine's own timeout, which suits the slowest server. When the timeout
	// has passed, the call fails with an *Error of class Moment with Code "timeout".
	Patience time.Duration

	// Failures counts the HTTP 500 answers of servers to this row. The engine may then
	// leave out a parameter that it adds by itself, because this parameter may be the
	// cause.
	Failures int

	// Traceparent is the W3C Trace Context header of the request; empty for none. Embed
	// sends the Traceparent of the first row of a group.
	Traceparent string
}

// Reply is one accepted answer.
type Reply struct {
	Content   string // the final answer; for KindRaw the whole reply, on one line
	Reasoning string // reasoning models; empty otherwise
	Embedding []float32

	Finish       rowmill.FinishReason
	InputTokens  int64 // 0 if the server does not count them
	CachedTokens int64 // the part of InputTokens found in the server's prefix cache; 0 if the server does not report it
	OutputTokens int64

	// LogprobSum and LogprobCount cover the tokens of the final answer without
	// reasoning. A count of 0 means that the server gave no log probabilities.
	LogprobSum   float64
	LogprobCount int64
}

// Info is a server's description of itself.
type Info struct {
	Kind      string        // "vllm", "sglang", "llama.cpp", "ollama", "infinity", "tei", "rowmill-sim", "openai"
	Version   string        // empty if the server does not report it
	Simulated bool          // outputs are made up
	Slots     int           // rows that the server runs at once; 0 if unknown
	Models    []ServedModel // the models that the server serves now
}

// Same reports whether i and other have the same kind, models and number of slots.
func (i Info) Same(other Info) bool {
	return i.Kind == other.Kind && i.Slots == other.Slots && slices.Equal(i.Models, other.Models)
}

// ServedModel is a model that a server serves.
type ServedModel struct {
	Name          string // the server's name for the model
	ContextLength int    // maximum tokens of a request on this server; 0 if unknown

	// Each of these fields is empty if unknown.
	Origin    string       `json:",omitempty"` // the model's Hugging Face id, if Name is not that id
	Base      string       `json:",omitempty"` // for an adapter (LoRA): the server's name for the base model
	Kind      rowmill.Kind `json:",omitempty"`
	Dimension int          `json:",omitempty"` // of an embedding model
	Unusable  string       `json:",omitempty"` // why the model cannot run rows, with the remedy
}

// Names returns the names that select this model: the server's name, this name without
// Ollama's tag "latest", and the Hugging Face id.
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

// Find returns the served model with m's id or one of its engine names. It compares the
// servers' own names first, because several served models may share their other names.
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

// A Route is a model and a request path of one server. One route can fail while the
// server's other routes work.
type Route string

// RouteOf returns the route of a job's rows.
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

// Gauges are the load metrics of a server.
type Gauges struct {
	Running     int64   // rows in the batch
	Waiting     int64   // rows in the server's queue
	KVUse       float64 // used share of the KV cache, 0 to 1; -1 if unknown
	Preemptions int64   // total since the server started
	KVTokens    int64   // size of the KV cache in tokens; 0 if unknown
}

// ErrNoGauges reports that a server publishes no load metrics.
var ErrNoGauges = fmt.Errorf("server publishes no gauges")

// Class is the cause of an error. It decides what happens next.
type Class uint8

// The classes of error.
const (
	// RowFault is permanent: retrying the row cannot help.
	RowFault Class = iota + 1
	// Moment is a transient fault that the row may have caused. The row is retried a
	// limited number of times, on another server first.
	Moment
	// Busy is a state of the server: a rate limit, overload, a model that is still
	// loading, an exhausted quota, or a gateway without a server. Busy does not count as
	// an attempt of the row. The row waits as long as the server asks for, but at least
	// for a time that grows with each refusal.
	Busy
	// ServerFault is caused by the server. The row goes to another server and no
	// attempt is counted. The server gets no rows until a probe succeeds.
	ServerFault
	// JobFault rejects a setting that all rows share, such as a schema that the server
	// cannot compile. The job fails at once.
	JobFault
)

// Pace limits what Rowmill sends to a server per minute. Zero means no limit.
type Pace struct {
	Requests int
	Tokens   int // of prompts and answers
}

// Error describes why a server gave no answer.
type Error struct {
	Class      Class
	Status     int           // HTTP status; 0 if there was no response
	Code       string        // machine-readable: a rowmill.Row… code, or the server's own
	Message    string        // short; never holds a prompt or an answer
	Raw        string        // the rejected answer, if any, cut to 64 KiB
	RetryAfter time.Duration // delay that the server asked for; 0 if none
	Overloaded bool          // 429 or 503: the window should shrink
	Broke      bool          // the connection ended before the answer: the server may have crashed
	TooLong    bool          // the prompt exceeds the server's context
	Context    int           // if TooLong: the server's context length, tokens; 0 if the server does not report it
	Prompt     int           // if TooLong: the tokens of the prompt; 0 if the server does not report them
}

// Error returns the message with the status.
func (e *Error) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("%s (HTTP %d)", e.Message, e.Status)
	}
	return e.Message
}
