// Package peer carries requests between the nodes of a cluster. The requests are
// defined by the contract, package rowmill.peer.v1 in proto, from which peerv1 is
// generated. They are unary calls by Connect over HTTP/1.1, with mutual TLS if
// configured. The package owns limits, deadlines and the meaning of failures for the
// caller. It does not know the effects of the requests, nor the members of the cluster.
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

// Protocol is the major version of requests between nodes. Nodes with different
// versions do not talk to each other.
const Protocol = 1

// version is the value of headerContract in answers.
const version = "v1"

// Refusal is a negative answer. The peer is alive and has done nothing. Only with
// CodeInternal it is unknown what the peer has done.
type Refusal struct {
	Code    string // machine-readable
	Message string // for people
}

// Error joins code and message.
func (r *Refusal) Error() string { return r.Code + ": " + r.Message }

func refuse(code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// The errors of a request without an answer.
var (
	// ErrRefused means that the machine at the address answers, but no process listens:
	// the process is gone. The request was not read.
	ErrRefused = errors.New("connection refused")

	// ErrUnreachable means that the state of the peer is unknown: it may be dead or
	// alive, and it may have read the request. Possible causes: no answer in time, a
	// lost connection, an invalid certificate, a foreign server.
	ErrUnreachable = errors.New("unreachable")

	// ErrBusy means that too many requests already wait here for this peer. It is also
	// an ErrUnreachable. This request was not sent.
	ErrBusy = errors.New("too many requests wait for this peer")
)

// Config configures Listen and NewClient; a node uses the same for both.
type Config struct {
	// Listen is the HOST:PORT of the server. Port 0 takes any free port.
	Listen string

	// Node is the member ID of this node. Requests carry it, for logs.
	Node string

	// TLS names the node's certificate. If it is empty, requests are neither encrypted
	// nor authenticated, which suits loopback and closed networks.
	TLS TLS

	// MaxBody limits a request and a reply, in bytes. Default 1 MiB: requests carry
	// references and counts, never rows.
	MaxBody int64

	// MaxInFlight is how many requests a server answers at the same time. It refuses
	// further requests with CodeBusy. Default 256.
	MaxInFlight int

	// HandleTimeout limits one request, at the client and at the server. Default 30 s.
	// The limit frees the resources of a handler if its caller disappears without notice.
	HandleTimeout time.Duration

	// ReadTimeout limits the arrival of one request, with its TLS handshake, from the
	// first byte. Default 10 s.
	ReadTimeout time.Duration

	// MaxConns is the most requests in progress from one client to one address, and so
	// the most connections. Default 4: answers take milliseconds.
	MaxConns int

	// MaxWaiting is how many further requests wait at a client for one address. Default
	// 4096: many times the simultaneous requests of a node's jobs, and a healthy peer
	// answers 4096 requests within a second. Beyond this number a request fails at once
	// with ErrBusy, because a peer with such a backlog will not answer in time.
	MaxWaiting int

	// DialTimeout limits the opening of a connection, with its TLS handshake, within
	// the caller's deadline. Default 3 s: two lost packets.
	DialTimeout time.Duration

	// Ready reports for health checks whether this node takes work. It is called only
	// after Serve. A nil Ready means yes.
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

	// Metrics registers the metrics; nil measures without publishing. One server and
	// one client may share a registerer.
	Metrics prometheus.Registerer
}

// How long an idle connection stays open. The client closes the connection first, so that
// it never sends on a connection that the server is closing.
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
