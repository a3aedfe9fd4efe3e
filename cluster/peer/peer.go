// Package peer carries requests between the nodes of a cluster: one envelope,
// one way in. A request is an HTTP/1.1 POST of JSON, with mutual TLS where it
// is configured. It owns limits, deadlines and what a failure means for the
// one who asked; it does not know what the kinds of request mean, nor who the
// members are.
package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Protocol is the version of Envelope and of every Body in it. A server
// refuses any other with CodeProtocol; members announce theirs, so that a new
// kind is asked only of those who know it.
const Protocol = 1

// Envelope is one request.
type Envelope struct {
	Protocol int             `json:"protocol"`        // Ask fills it in
	From     string          `json:"from"`            // member ID of the asker
	Kind     string          `json:"kind"`            // what is asked, such as "adopt_shard": a-z, 0-9 and _, at most 64 bytes
	Job      string          `json:"job,omitempty"`   // the job it is about, if any
	Epoch    int64           `json:"epoch,omitempty"` // the asker's epoch of that job
	Body     json.RawMessage `json:"body,omitempty"`  // the kind's own fields
}

// Handler answers one request. Its reply is sent as JSON. An error that is a
// *Refusal reaches the asker as it is; any other is logged here and reaches
// the asker as CodeInternal. The context ends when the asker hangs up, and
// after Config.HandleTimeout.
//
// An asker that gave up does not undo a request: a process that was stopped
// may read it later. What must not happen late is for the epoch to prevent.
type Handler func(ctx context.Context, e Envelope) (reply any, err error)

// The codes of refusals that this package makes itself. Handlers add theirs.
const (
	CodeStarting    = "starting"     // the node listens and does not answer yet
	CodeBusy        = "busy"         // MaxInFlight requests are being answered
	CodeProtocol    = "protocol"     // the node speaks another version
	CodeInvalid     = "invalid"      // no envelope could be read
	CodeTooLarge    = "too_large"    // the request or the reply is over MaxBody
	CodeUnknownKind = "unknown_kind" // for handlers: this kind has no meaning here
	CodeInternal    = "internal"     // the handler failed or panicked; its node's log says how
)

// Refusal is an answer that says no. The peer is alive and has done nothing.
// Only CodeInternal leaves open how far it came.
type Refusal struct {
	Code    string `json:"code"`    // a machine word
	Message string `json:"message"` // for a person
}

// Error joins code and message.
func (r *Refusal) Error() string { return r.Code + ": " + r.Message }

func refuse(code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// What Ask returns when there was no answer.
var (
	// ErrRefused says that nobody listens at the address although its machine
	// answers: the process that was there is gone. The request was not read.
	ErrRefused = errors.New("connection refused")

	// ErrUnreachable says that it cannot be told whether the peer is alive,
	// nor whether it read the request: no answer in time, a lost connection, a
	// certificate that is not accepted, somebody else's server.
	ErrUnreachable = errors.New("unreachable")

	// ErrBusy says that too many requests already wait here for that peer. It
	// is an ErrUnreachable as well; this request was not sent.
	ErrBusy = errors.New("too many requests wait for this peer")
)

// Config is for Listen and NewClient: a node uses the same for both.
type Config struct {
	// Listen is the HOST:PORT of the server. Port 0 takes any free one.
	Listen string

	// TLS names the node's certificate. Without it requests are neither
	// encrypted nor authenticated, which suits loopback and closed networks.
	TLS TLS

	// MaxBody bounds a request and a reply, in bytes of JSON. Default 1 MiB:
	// requests carry references and counts, never rows.
	MaxBody int64

	// MaxInFlight is how many requests a server answers at a time; further
	// ones are refused with CodeBusy. Default 256.
	MaxInFlight int

	// HandleTimeout bounds one request, at the asker and at the one who
	// answers. Default 30 s: it frees what a handler holds for an asker that
	// has vanished without a sign.
	HandleTimeout time.Duration

	// ReadTimeout bounds the arrival of one request, TLS included, from its
	// first byte. Default 10 s.
	ReadTimeout time.Duration

	// MaxConns is how many requests a client has under way to one address, and
	// so its connections. Default 4: answers take milliseconds.
	MaxConns int

	// MaxWaiting is how many further requests wait at a client for one
	// address. Default 4096: many times what the jobs of a node can have to say at
	// once, however many those are, and what a peer that is well answers within a
	// second. Beyond it Ask fails at once with ErrBusy, since a peer so far behind
	// will not answer in time.
	MaxWaiting int

	// DialTimeout bounds the making of a connection, TLS included, below the
	// deadline of the one who asks. Default 3 s: two lost packets.
	DialTimeout time.Duration

	// Carrier brings a client's requests to a Responder at their URL's host, in
	// place of TCP and TLS: a network that is simulated. That nobody listens
	// there is syscall.ECONNREFUSED.
	Carrier http.RoundTripper

	// Logger receives what an operator should know. Default: nothing is logged.
	Logger *slog.Logger

	// Metrics registers the figures; nil measures without publishing. One
	// server and one client may share a registerer.
	Metrics prometheus.Registerer
}

// How long an idle connection is kept. The client lets go first, so that it
// does not send into a connection that the server is closing.
const (
	clientIdle = 30 * time.Second
	serverIdle = 90 * time.Second
)

func (cfg Config) withDefaults() Config {
	orDefault(&cfg.MaxBody, 1<<20)
	orDefault(&cfg.MaxInFlight, 256)
	orDefault(&cfg.HandleTimeout, 30*time.Second)
	orDefault(&cfg.ReadTimeout, 10*time.Second)
	orDefault(&cfg.MaxConns, 4)
	orDefault(&cfg.MaxWaiting, 4096)
	orDefault(&cfg.DialTimeout, 3*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return cfg
}

func orDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// path is where requests are posted.
const path = "/peer"

// mediaType marks an answer as one of this package's, so that somebody else's
// server at the address is recognised.
const mediaType = "application/vnd.rowmill.peer+json"

// answer is the body of every response; one of the two is set.
type answer struct {
	Reply   json.RawMessage `json:"reply,omitempty"`
	Refusal *Refusal        `json:"refusal,omitempty"`
}

// maxKind bounds Envelope.Kind, in bytes. Kinds are labels of metrics.
const maxKind = 64

// decode reads an envelope. Its errors are refusals.
func decode(text []byte) (Envelope, *Refusal) {
	var e Envelope
	if err := json.Unmarshal(text, &e); err != nil {
		return Envelope{}, refuse(CodeInvalid, "the request is no envelope: %v", err)
	}
	// The version comes first: what else an unknown version means is unknown.
	if e.Protocol != Protocol {
		return e, refuse(CodeProtocol, "this node speaks version %d and was asked in version %d; run the same release on all nodes", Protocol, e.Protocol)
	}
	if !validKind(e.Kind) {
		return e, refuse(CodeInvalid, "kind %.80q is not 1 to %d of a-z, 0-9 and _", e.Kind, maxKind)
	}
	return e, nil
}

func validKind(kind string) bool {
	for _, c := range []byte(kind) {
		if c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return kind != "" && len(kind) <= maxKind
}
