// Package peer carries requests between the nodes of a cluster. The requests are
// defined by the contract, package rowmill.peer.v1 in proto, from which peerv1 is
// generated. They are unary calls by Connect over HTTP/1.1, with mutual TLS if
// configured. The package applies limits and deadlines, and translates failures for the
// caller. It knows neither the effects of the requests nor the members of the cluster.
package peer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
)

// Protocol is the major version of requests between nodes. Nodes with different
// versions do not send requests to each other.
const Protocol = 1

// version is the value of the header headerContract in answers.
const version = "v1"

// Refusal is the error of a request that a peer has refused. The peer is alive and the
// request had no effect. Only with CodeInternal, the request may have had effects.
type Refusal struct {
	Code    string // word for programs, such as CodeBusy
	Message string // text for people
}

// Error returns the code and the message.
func (r *Refusal) Error() string { return r.Code + ": " + r.Message }

func refuse(code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// The errors of a request without an answer.
var (
	// ErrRefused means that the machine at the address answers, but no process listens
	// there: the peer has stopped. The request was not read.
	ErrRefused = errors.New("connection refused")

	// ErrUnreachable means that the state of the peer is unknown: it may be dead or
	// alive, and it may have read the request. Possible causes: no answer in time, a
	// lost connection, an invalid certificate, a foreign server.
	ErrUnreachable = errors.New("unreachable")

	// ErrBusy means that too many requests already wait in this client for this peer,
	// so the request was not sent. An error that is ErrBusy is also ErrUnreachable.
	ErrBusy = errors.New("too many requests wait for this peer")
)

// Config configures Listen and NewClient; a node uses the same Config for both.
type Config struct {
	// Listen is the HOST:PORT of the server. Port 0 takes any free port.
	Listen string

	// Node is the member ID of this node. Requests carry it, for logs.
	Node string

	// TLS names the node's certificate. If it is empty, requests are neither encrypted
	// nor authenticated, which suits loopback and closed networks.
	TLS TLS

	// MaxBody is the largest size of a request or a reply, in bytes. Default 1 MiB:
	// requests carry references and counts, never rows.
	MaxBody int64

	// MaxInFlight is how many requests a server answers at the same time. It refuses
	// further requests with CodeBusy. Default 256.
	MaxInFlight int

	// HandleTimeout limits the time of one request, at the client and at the server.
	// Default 30 s. The limit ends a handler whose caller has disappeared without
	// notice.
	HandleTimeout time.Duration

	// ReadTimeout limits how long one request may take to arrive, including its TLS
	// handshake. Default 10 s.
	ReadTimeout time.Duration

	// MaxConns is the largest number of requests in progress from one client to one
	// address, and so of connections. Default 4: answers take milliseconds.
	MaxConns int

	// MaxWaiting is how many further requests may wait in a client for one address.
	// Default 4096: many times the simultaneous requests of a node's jobs, and a
	// healthy peer answers 4096 requests within a second. Beyond this number a request
	// fails at once with ErrBusy, because a peer with such a backlog will not answer in
	// time.
	MaxWaiting int

	// DialTimeout limits the time to open a connection, including the TLS handshake.
	// Default 3 s: enough if two packets are lost.
	DialTimeout time.Duration

	// Ready tells health checks whether this node takes work. It is called only after
	// Serve. If Ready is nil, the node takes work.
	Ready func() bool

	// Interceptors run around each request, the first outermost: at a client before its
	// limits, at a server before its handler. At a server the context holds the trace
	// of the request; at a client the trace of the context is sent.
	Interceptors []connect.Interceptor

	// Carrier replaces TCP and TLS with a simulated network: it passes a client's
	// requests to the Responder for the host of their URL. When no Responder listens
	// there, it returns syscall.ECONNREFUSED.
	Carrier http.RoundTripper

	// Logger receives messages for operators. Default: nothing is logged.
	Logger *slog.Logger

	// Metrics registers the metrics. If it is nil, the metrics are not published. One
	// server and one client may share a registerer.
	Metrics prometheus.Registerer
}

// clientIdle and serverIdle are how long an idle connection stays open at the client
// and at the server. The client closes the connection first, so that it never sends on
// a connection that the server is closing.
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
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return cfg
}

func orDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}
