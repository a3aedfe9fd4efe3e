package openai

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/rowmill/rowmill/engine"
)

// meaning says which gauge a metric feeds.
type meaning uint8

const (
	running meaning = iota + 1
	waiting
	kvUse
	preemptions
)

// metricNames are the metrics of all kinds of server; no two kinds share one.
var metricNames = map[string]meaning{
	"vllm:num_requests_running":    running,
	"vllm:num_requests_waiting":    waiting,
	"vllm:kv_cache_usage_perc":     kvUse,
	"vllm:gpu_cache_usage_perc":    kvUse, // older versions
	"vllm:num_preemptions_total":   preemptions,
	"sglang:num_running_reqs":      running,
	"sglang:num_queue_reqs":        waiting,
	"sglang:token_usage":           kvUse,
	"llamacpp:requests_processing": running,
	"llamacpp:requests_deferred":   waiting,
	"tgi_batch_current_size":       running,
	"tgi_queue_size":               waiting,
}

// Gauges reads the server's own load figures.
func (e *Engine) Gauges(ctx context.Context) (engine.Gauges, error) {
	got, err := e.get(ctx, "/metrics")
	if err != nil {
		return engine.Gauges{}, fmt.Errorf("gauges of %s: %w", e.cfg.Name, err)
	}
	switch got.status {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented,
		http.StatusUnauthorized, http.StatusForbidden: // switched off, or not for us
		return engine.Gauges{}, engine.ErrNoGauges
	default:
		return engine.Gauges{}, fmt.Errorf("gauges of %s: /metrics answered HTTP %d", e.cfg.Name, got.status)
	}
	g, ok := parseGauges(got.body)
	if !ok {
		return engine.Gauges{}, engine.ErrNoGauges
	}
	return g, nil
}

// parseGauges reads Prometheus's text format. A server with several engines has
// a sample for each: they are added up, of KV use the largest counts. It reports
// false where the page says nothing about rows.
func parseGauges(text []byte) (engine.Gauges, bool) {
	g := engine.Gauges{KVUse: -1}
	found := false
	for line := range bytes.Lines(text) {
		name, value, ok := sample(line)
		if !ok {
			continue
		}
		switch metricNames[name] {
		case running:
			g.Running += int64(value)
			found = true
		case waiting:
			g.Waiting += int64(value)
			found = true
		case kvUse:
			g.KVUse = max(g.KVUse, value)
		case preemptions:
			g.Preemptions += int64(value)
		}
	}
	return g, found
}

// sample parses one line: name{label="value",…} number [timestamp].
func sample(line []byte) (name string, value float64, ok bool) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] == '#' {
		return "", 0, false
	}
	end := bytes.IndexAny(line, "{ \t")
	if end <= 0 {
		return "", 0, false
	}
	name, rest := string(line[:end]), line[end:]
	if rest[0] == '{' {
		after := labelsEnd(rest)
		if after < 0 {
			return "", 0, false
		}
		rest = rest[after:]
	}
	number, _, _ := bytes.Cut(bytes.TrimLeft(rest, " \t"), []byte(" "))
	value, err := strconv.ParseFloat(string(number), 64)
	if err != nil || value != value || value < 0 || value > 1<<53 {
		return "", 0, false
	}
	return name, value, true
}

// labelsEnd returns the offset behind the closing brace, which may also stand
// inside a quoted value.
func labelsEnd(b []byte) int {
	quoted := false
	for i := 0; i < len(b); i++ {
		switch {
		case quoted && b[i] == '\\':
			i++
		case b[i] == '"':
			quoted = !quoted
		case b[i] == '}' && !quoted:
			return i + 1
		}
	}
	return -1
}
