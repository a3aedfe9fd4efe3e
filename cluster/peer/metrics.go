package peer

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics holds the metrics of requests in one direction: "in" at a server, "out" at a
// client.
type metrics struct {
	requests *prometheus.CounterVec   // finished requests, by kind and outcome
	seconds  *prometheus.HistogramVec // time of a request, by kind
	bytes    *prometheus.CounterVec   // bytes of messages, by part: request or reply
	inFlight prometheus.Gauge         // requests in progress
	waiting  prometheus.Gauge         // requests that wait for a connection; nil at a server
}

func newMetrics(reg prometheus.Registerer, direction string) *metrics {
	f := promauto.With(prometheus.WrapRegistererWith(prometheus.Labels{"direction": direction}, reg))
	m := &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{Name: "rowmill_peer_requests_total", Help: "Requests between nodes, by kind and outcome: ok, the code of a refusal, refused, unreachable, busy_here or cancelled."}, []string{"kind", "outcome"}),
		seconds:  f.NewHistogramVec(prometheus.HistogramOpts{Name: "rowmill_peer_request_seconds", Help: "Time of a request between nodes, waiting included.", Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9)}, []string{"kind"}),
		bytes:    f.NewCounterVec(prometheus.CounterOpts{Name: "rowmill_peer_bytes_total", Help: "Bytes of messages between nodes, by part: request or reply."}, []string{"part"}),
		inFlight: f.NewGauge(prometheus.GaugeOpts{Name: "rowmill_peer_requests_inflight", Help: "Requests between nodes that are under way."}),
	}
	if direction == "out" {
		m.waiting = f.NewGauge(prometheus.GaugeOpts{Name: "rowmill_peer_queue_depth", Help: "Requests that wait here for a connection to their peer."})
	}
	return m
}
