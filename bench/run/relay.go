package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
)

// relayGauges are the metric names of a relay.
var relayGauges = gauges{done: "relay_done_total", per: 1, running: "relay_running", waiting: "relay_waiting", every: readEvery}

// A relay forwards requests to a server without gauges, and counts the rows. It costs
// all contenders the same.
type relay struct {
	address       string
	server        *http.Server
	running, done atomic.Int64
}

func startRelay(to string) (*relay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start relay: %w", err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: to}) },
	}
	r := &relay{address: listener.Addr().String()}
	mux := http.NewServeMux()
	mux.Handle("/", proxy)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%s %d\n%s %d\n", relayGauges.done, r.done.Load(), relayGauges.running, r.running.Load())
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, request *http.Request) {
		r.running.Add(1)
		defer r.running.Add(-1)
		proxy.ServeHTTP(w, request)
		r.done.Add(1)
	})
	r.server = &http.Server{Handler: mux} //nolint:gosec // on loopback, for a benchmark
	go func() { _ = r.server.Serve(listener) }()
	return r, nil
}

func (r *relay) close() { _ = r.server.Close() }
