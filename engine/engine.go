// Package engine runs rows on models. It defines the contract between the pipeline and
// an inference server (Engine), the classes of error, and the conformance suite for
// adapters (enginetest). Package engine/openai is the adapter that talks to real servers
// over HTTP, and also to the simulated server of package engine/sim. This package does
// not know jobs, shards or actors.
package engine

import (
	"cmp"
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
	Probe(ctx context.Context) (ServerInfo, error)

	// Gauges reads the server's load metrics. It returns ErrNoGauges if the server
	// publishes no load metrics.
	Gauges(ctx context.Context) (Gauges, error)

	// Prepare compiles the settings that all rows of a job share. The last probe must
	// have listed the job's model. An error means that the server cannot run a job with
	// these settings. The error is permanent: a retry cannot help.
	Prepare(p JobParams) (PreparedCall, error)

	// Close drops idle connections.
	Close()
}

// PreparedCall runs rows that share Params on one server. It is safe for concurrent
// use.
type PreparedCall interface {
	// Generate runs one row. The row's text is UTF-8; Generate neither changes nor
	// keeps it. A non-nil error is an *Error or the context's error. Cancelling the
	// context also cancels the request on the server, if the server supports that.
	Generate(ctx context.Context, row Row) (Reply, error)

	// Embed runs a group of rows on an embedding model and returns the replies in the
	// order of the rows. Entry i of the second result is the *Error of row i, or nil if
	// row i succeeded. If the server refuses a group because of a row, Embed splits the
	// group in halves until each bad row is alone in a request.
	Embed(ctx context.Context, rows []Row) ([]Reply, []*Error, error)

	// Warnings lists the parameters that this server ignores or changes, and problems
	// seen in its answers. The list may grow while rows run.
	Warnings() []string
}

// PromptCounter is an optional interface of a Call, for servers that count the tokens
// of a prompt. Rowmill can also count tokens itself, but it needs the model's
// vocabulary and chat template, which may be missing or wrong. The server's count
// equals the input tokens that the server later reports in its usage.
type PromptCounter interface {
	// CountPrompt returns the number of tokens of the whole prompt: the row's text with
	// the template, the system prompt and everything else that Generate or Embed would
	// send. The server generates no answer. The error is ErrNoCounting if the server
	// cannot count, otherwise an *Error or the context's error. A server either counts
	// a prompt longer than its context or refuses the prompt with TooLong. An error of
	// CountPrompt does not make the server unhealthy: a server may switch counting off,
	// or count slowly, and still run rows.
	CountPrompt(ctx context.Context, row Row) (tokens int, err error)
}

// ErrNoCounting reports that a server cannot count prompts.
var ErrNoCounting = errors.New("server does not count prompts")

// ErrCutsPrompts wraps ErrNoCounting. It reports that a server cannot count prompts and
// silently truncates prompts longer than its context. Other servers refuse such
// prompts.
var ErrCutsPrompts = fmt.Errorf("%w, and truncates prompts longer than its context", ErrNoCounting)

// JobParams are the settings that all rows of a job share.
type JobParams struct {
	Model rowmill.Model
	// Path is the request path of a raw job, whose rows are request bodies and whose
	// Model.Kind is KindRaw. A raw job uses none of the fields below except ContextLen.
	Path       string
	System     string          // system prompt; empty if the job has none
	Schema     json.RawMessage // JSON Schema that each answer must match; nil if the job has none
	Sampling   map[string]any  // checked sampling parameters of the job and the defaults of its model
	Logprobs   bool            // the job asks for log probabilities of the answer's tokens
	RowSeeds   bool            // each row has its own seed in Row.Seed
	Messages   bool            // a row is a list of messages, and not the text of a user message
	MaxTokens  int             // maximum tokens of an answer; 0 means the server's default
	ContextLen int             // context length of the job in tokens, which stays the same for the whole job
}

// Row is one request.
type Row struct {
	// Text is the UTF-8 text of the user message. With JobParams.Messages it is a JSON list of
	// messages, and for KindRaw a JSON object: the request body without the field model.
	Text []byte
	Seed *int64 // overrides the seed of Params for this row

	// Timeout is the timeout of the request, including the time in the server's queue;
	// 0 means the engine's own timeout, which is long enough for a slow server. When
	// the timeout expires, the call fails with an *Error of class Transient with Code
	// "timeout".
	Timeout time.Duration

	// Failures is the number of HTTP 500 answers that servers gave to this row. If it
	// is not 0, the engine may leave out a parameter that the engine adds by itself,
	// such as logprobs, because this parameter may have caused the failures.
	Failures int

	// Traceparent is the W3C Trace Context header of the request; empty for none. Embed
	// sends the Traceparent of the first row of a group.
	Traceparent string
}

// Reply is one accepted answer.
type Reply struct {
	Content   string // the final answer; for KindRaw the whole JSON reply, on one line
	Reasoning string // the reasoning text of a reasoning model; otherwise empty
	Embedding []float32

	Finish       rowmill.FinishReason
	InputTokens  int64 // tokens of the prompt; 0 if the server does not report them
	CachedTokens int64 // tokens of the prompt that were in the server's prefix cache; 0 if the server does not report them
	OutputTokens int64 // tokens that the model generated; 0 if the server does not report them

	// LogprobSum is the sum of the log probabilities of LogprobCount tokens of the
	// final answer, without the reasoning. LogprobCount is 0 if the server gave no log
	// probabilities.
	LogprobSum   float64
	LogprobCount int64
}

// ServerInfo is a server's description of itself.
type ServerInfo struct {
	Kind      string        // "vllm", "sglang", "llama.cpp", "ollama", "infinity", "tei", "rowmill-sim", "openai"
	Version   string        // empty if the server does not report it
	Simulated bool          // the server is a simulator: its answers are made up
	Slots     int           // maximum rows that the server runs at the same time; 0 if unknown
	Models    []ServedModel // the models that the server serves now
}

// EqualIgnoringVersion reports whether i and other have the same kind, models and number of slots.
func (i ServerInfo) EqualIgnoringVersion(other ServerInfo) bool {
	return i.Kind == other.Kind && i.Slots == other.Slots && slices.Equal(i.Models, other.Models)
}

// Describe returns the kind and the version of the server and what it serves as m, such as
// "vllm 0.11.0, model Qwen/Qwen3-8B, revision 9c925d64". Servers with different descriptions may
// answer the same row differently.
func (i ServerInfo) Describe(m ServedModel) string {
	text := strings.TrimSpace(i.Kind+" "+i.Version) + ", model " + cmp.Or(m.Origin, m.Name)
	if m.Revision != "" {
		text += ", revision " + m.Revision
	}
	return text
}

// ServedModel is a model that a server serves.
type ServedModel struct {
	Name          string // the server's name for the model
	ContextLength int    // maximum tokens of a request on this server; 0 if unknown

	// The fields below are empty or 0 if unknown.
	Origin    string       `json:",omitempty"` // the model's Hugging Face id, if Name is not that id
	Base      string       `json:",omitempty"` // for an adapter (LoRA): the server's name for the base model
	Kind      rowmill.Kind `json:",omitempty"`
	Dimension int          `json:",omitempty"` // numbers per embedding of an embedding model
	Revision  string       `json:",omitempty"` // identifies the weights: a commit of the Hugging Face repository, or Ollama's digest
	Unusable  string       `json:",omitempty"` // reason why the model cannot run rows, and the remedy; empty if it can run rows
}

// Names returns all names that select this model: Name, Name without Ollama's tag
// "latest", and Origin.
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

// FindModel returns the served model whose name is m.ID or one of m.EngineNames; false if
// there is none. It compares ServedModel.Name of all models first, because several served
// models may share their other names (see ServedModel.Names).
func (i ServerInfo) FindModel(m rowmill.Model) (ServedModel, bool) {
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

// A Route identifies one model and one request path of a server. One route can fail
// while the other routes of the same server work.
type Route string

// RouteOf returns the route that the rows of a job use.
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
	Running     int64   // rows that the server runs now
	Waiting     int64   // rows in the server's queue
	KVUse       float64 // used share of the KV cache, 0 to 1; -1 if unknown
	Preemptions int64   // number of preempted rows since the server started
	KVTokens    int64   // size of the KV cache in tokens; 0 if unknown
}

// ErrNoGauges reports that a server publishes no load metrics.
var ErrNoGauges = fmt.Errorf("server publishes no gauges")

// ErrorClass says whether a row, a job or a server caused an error. It decides whether and
// where Rowmill retries the row.
type ErrorClass uint8

// The values of ErrorClass.
const (
	// RowFault is a permanent error of the row: a retry cannot help.
	RowFault ErrorClass = iota + 1
	// Transient is a transient error that the row may have caused. Rowmill retries the row
	// a limited number of times, on another server first.
	Transient
	// Busy means that the server cannot run the row now: a rate limit, overload, a
	// model that is still loading, an exhausted quota, or a gateway without a server.
	// Busy does not count as an attempt of the row. The row waits as long as the server
	// asks for, and at least for a backoff that grows with each refusal.
	Busy
	// ServerFault is an error that the server caused, not the row. Rowmill sends the
	// row to another server and counts no attempt. The faulty server gets no rows until
	// a probe succeeds.
	ServerFault
	// JobFault means that the server rejects a setting that all rows of a job share,
	// such as a schema that it cannot compile. The job fails at once.
	JobFault
)

// RateLimit limits the requests and the tokens that Rowmill sends to a server per minute. A
// field of 0 means no limit.
type RateLimit struct {
	Requests int
	Tokens   int // tokens of prompts and answers together
}

// Error is the reason why a server gave no valid answer to a row.
type Error struct {
	Class           ErrorClass
	Status          int           // HTTP status; 0 if there was no response
	Code            string        // machine-readable code: a rowmill.Row… code or the server's own code
	Message         string        // short text for people; never contains a prompt or an answer
	Raw             string        // the rejected answer, cut to 64 KiB; empty if there was none
	RetryAfter      time.Duration // delay before a retry that the server asked for; 0 if none
	Overloaded      bool          // the server is overloaded, such as HTTP 429 or 503: its window shrinks
	ConnectionBroke bool          // the connection broke before the answer was complete: the server may have crashed
	TooLong         bool          // the prompt exceeds the server's context
	Context         int           // if TooLong: context length of the server in tokens; 0 if the server does not report it
	Prompt          int           // if TooLong: length of the prompt in tokens; 0 if the server does not report it
}

// Error returns the message and the HTTP status.
func (e *Error) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("%s (HTTP %d)", e.Message, e.Status)
	}
	return e.Message
}
