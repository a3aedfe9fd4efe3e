package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	nethttp "net/http"
	"net/http/pprof"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/internal/certificate"
)

const (
	// headerTimeout is how long a client may take to send the headers of a request.
	// Bodies and answers have no time limit in the listener.
	headerTimeout = 20 * time.Second
	// idleTimeout is how long a connection without a request stays open.
	idleTimeout = 2 * time.Minute
	// headerBytes limits the headers of a request, in bytes. The API itself has a lower
	// limit, and refuses larger headers with a JSON error.
	headerBytes = 256 << 10
)

// listeners is the part of a node that has the sockets of the API address and the admin
// address.
type listeners struct {
	partBase
	Addr      net.Addr // address of the API
	AdminAddr net.Addr // address of metrics and profiles; nil if http.admin_listen is empty
	URL       string   // base URL of the API for clients on this machine

	api, admin *listener
	failed     chan error // receives the error of a listener that stopped by itself
}

// Start opens the sockets. Requests wait until the API calls serve.
func (l *listeners) Start(ctx context.Context) error {
	var err error
	set := l.Settings.HTTP
	if l.api, err = openListener(ctx, set.Listen, set.TLSCert, set.TLSKey, l.Logger); err != nil {
		return err
	}
	l.addCloser("listener", l.api.stop)
	l.Addr = l.api.Addr
	l.URL, _ = l.api.localURL()
	if set.AdminListen == "" {
		return nil
	}
	if l.admin, err = openListener(ctx, set.AdminListen, "", "", l.Logger); err != nil {
		return err
	}
	l.addCloser("admin listener", l.admin.stop)
	l.AdminAddr = l.admin.Addr
	return nil
}

// serveInBackground answers requests at a listener until the listener is stopped. If it ends in
// another way, the error goes to failed.
func (l *listeners) serveInBackground(ln *listener, handler nethttp.Handler) {
	go func() {
		if err := ln.serve(handler); err != nil {
			l.failed <- err
		}
	}()
}

// A listener accepts HTTP or HTTPS requests at one address and passes them to a
// handler.
type listener struct {
	Addr   net.Addr
	server *nethttp.Server
	socket net.Listener
	secure bool
}

// openListener opens an address. Requests wait until serve is called. certFile and keyFile
// are the files of the TLS certificate and its key, both empty for plain HTTP. The listener
// reads the files again when they change.
func openListener(ctx context.Context, address, certFile, keyFile string, log *slog.Logger) (*listener, error) {
	l := &listener{server: &nethttp.Server{
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
	if certFile != "" {
		held, err := certificate.Open(certificate.Files{Cert: certFile, Key: keyFile}, nil, log)
		if err != nil {
			return nil, fmt.Errorf("http.tls_cert and http.tls_key: %w", err)
		}
		l.server.TLSConfig = &tls.Config{GetCertificate: held.GetCertificate, MinVersion: tls.VersionTLS12}
		l.secure = true
	}
	var config net.ListenConfig
	socket, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	l.socket, l.Addr = socket, socket.Addr()
	return l, nil
}

// serve answers requests with handler until the listener is stopped.
func (l *listener) serve(handler nethttp.Handler) error {
	l.server.Handler = handler
	var err error
	if l.secure {
		err = l.server.ServeTLS(l.socket, "", "")
	} else {
		err = l.server.Serve(l.socket)
	}
	if errors.Is(err, nethttp.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", l.Addr, err)
}

// stop waits until the requests in progress have finished, until ctx ends or for
// requestGrace at most. Then it closes their connections.
func (l *listener) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestGrace)
	defer cancel()
	err := l.server.Shutdown(ctx)
	l.socket.Close() // Shutdown does not close it if serve did not run; a second close does nothing
	if err != nil {
		return errors.Join(fmt.Errorf("the node closed connections at %s, because their requests did not finish in time: %w", l.Addr, err), l.server.Close())
	}
	return nil
}

// localURL returns the listener's base URL for a client on this machine. public reports
// whether other machines also reach the listener; they need another host name.
func (l *listener) localURL() (base string, public bool) {
	host, port, err := net.SplitHostPort(l.Addr.String())
	if err != nil {
		return "", false // does not happen: openListener opens only TCP addresses
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host, public = "127.0.0.1", true
	}
	scheme := "http://"
	if l.secure {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, port), public
}

// newAdminHandler serves metrics, profiles, and the state of single rows of the jobs that
// this node owns.
func newAdminHandler(metrics prometheus.Gatherer, pipeline *actors.System) nethttp.Handler {
	mux := nethttp.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/jobs/{job}/rows/{row}", func(w nethttp.ResponseWriter, r *nethttp.Request) {
		row, err := strconv.ParseInt(r.PathValue("row"), 10, 64)
		if err != nil {
			nethttp.Error(w, "the row must be its number in the input, from 0", nethttp.StatusBadRequest)
			return
		}
		place, err := pipeline.LocateRow(r.Context(), r.PathValue("job"), row)
		if err != nil {
			nethttp.Error(w, err.Error(), nethttp.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(place) // fails only if the client has disconnected
	})
	return nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff") // row data may look like HTML
		mux.ServeHTTP(w, r)
	})
}
