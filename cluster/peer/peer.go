// Package peer carries requests between the nodes of a cluster. What they are is a
// contract, package rowmill.peer.v1 in proto, from which peerv1 is generated: unary
// calls by Connect over HTTP/1.1, with mutual TLS where it is configured. The package
// owns limits, deadlines and what a failure means for the one who asked; it does not
// know what the requests bring about, nor who the members are.
package peer

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
)

// Protocol is the major version of requests between nodes: those of different ones do
// not speak with each other.
const Protocol = 1

// version is what answers are marked with.
const version = "v1"

// Refusal is an answer that says no. The peer is alive and has done nothing.
// Only CodeInternal leaves open how far it came.
type Refusal struct {
	Code    string // a machine word
	Message string // for a person
}

// Error joins code and message.
func (r *Refusal) Error() string { return r.Code + ": " + r.Message }

func refuse(code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// What a request ends with when there was no answer.
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

	// Node is the member ID of this node, told to those it asks, for their logs.
	Node string

	// TLS names the node's certificate. Without it requests are neither
	// encrypted nor authenticated, which suits loopback and closed networks.
	TLS TLS

	// MaxBody bounds a request and a reply, in bytes. Default 1 MiB: requests carry
	// references and counts, never rows.
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
	// second. Beyond it a request fails at once with ErrBusy, since a peer so far
	// behind will not answer in time.
	MaxWaiting int

	// DialTimeout bounds the making of a connection, TLS included, below the
	// deadline of the one who asks. Default 3 s: two lost packets.
	DialTimeout time.Duration

	// Ready reports whether this node takes work, for health checks; it is asked once
	// Serve was called. nil: it does.
	Ready func() bool

	// Interceptors stand around each request, the first outermost: at a client before
	// its limits, at a server before its handler. What trace a request is part of is in
	// the context at a server, and goes on from the context at a client.
	Interceptors []connect.Interceptor

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
