package openai

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/rowmill/rowmill/engine"
)

// gaugeKind says which field of engine.Gauges a metric of a server sets.
type gaugeKind uint8

const (
	running gaugeKind = iota + 1
	waiting
	kvUse
	preemptions
	kvTokens
	kvConfig // a metric whose labels contain the size of the KV cache
)

// metricNames maps the name of a metric to its meaning, for all kinds of server. No two
// kinds use the same name.
var metricNames = map[string]gaugeKind{
	"vllm:num_requests_running":           running,
	"vllm:num_requests_waiting":           waiting,
	"vllm:kv_cache_usage_perc":            kvUse,
	"vllm:gpu_cache_usage_perc":           kvUse, // older versions of vLLM
	"vllm:num_preemptions_total":          preemptions,
	"vllm:cache_config_info":              kvConfig,
	"sglang:num_running_reqs":             running,
	"sglang:num_queue_reqs":               waiting,
	"sglang:token_usage":                  kvUse,
	"sglang:num_retracted_requests_total": preemptions,
	"sglang:max_total_num_tokens":         kvTokens,
	"llamacpp:requests_processing":        running,
	"llamacpp:requests_deferred":          waiting,
	"tgi_batch_current_size":              running,
	"tgi_queue_size":                      waiting,
}

// metricPages is the pool of buffers for the text of a server's /metrics.
var metricPages = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// Gauges reads the load metrics of the server.
func (e *Engine) Gauges(ctx context.Context) (engine.Gauges, error) {
	buf := metricPages.Get().(*bytes.Buffer)
	defer metricPages.Put(buf)
	buf.Reset()
	got, err := e.sendProbeRequest(ctx, http.MethodGet, "/metrics", nil, buf, maxMetrics)
	if err != nil {
		return engine.Gauges{}, fmt.Errorf("gauges of %s: %w", e.cfg.Name, err)
	}
	switch got.status {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented,
		http.StatusUnauthorized, http.StatusForbidden: // the metrics are switched off or not allowed
		return engine.Gauges{}, engine.ErrNoGauges
	default:
		return engine.Gauges{}, fmt.Errorf("gauges of %s: /metrics answered HTTP %d", e.cfg.Name, got.status)
	}
	g, ok := parseGauges(got.body)
	if !ok {
		return engine.Gauges{}, engine.ErrNoGauges
	}
	if g.KVTokens == 0 {
		e.mu.Lock()
		g.KVTokens = e.facts.kvTokens
		e.mu.Unlock()
	}
	return g, nil
}

// maxRanks is the maximum number of engines behind one server that a tally counts
// separately.
const maxRanks = 128

// A rankTally adds up one metric over the engines behind a server. vLLM has one sample per
// engine. SGLang has one sample per data-parallel rank. With some settings, SGLang also
// has equal samples for each tensor-parallel rank of a data-parallel rank. So a tally
// uses only the largest sample of each data-parallel rank.
type rankTally [maxRanks]int64

// recordSample records one sample of the engine with number rank.
func (t *rankTally) recordSample(rank int, value int64) {
	at := &t[rank%maxRanks]
	*at = max(*at, value)
}

func (t *rankTally) sum() (total int64) {
	for _, value := range t {
		total += value
	}
	return total
}

// parseGauges parses the metrics of a server in Prometheus's text format. For KVUse it
// takes the largest sample. It returns false if the text has no number of running or
// waiting rows. The text of vLLM has some 2,000 lines, mostly of histograms:
// parseGauges reads only the name in a line, and the rest only if it knows the name.
func parseGauges(text []byte) (engine.Gauges, bool) {
	g := engine.Gauges{KVUse: -1}
	var tallies [kvConfig]rankTally
	found := false
	for len(text) > 0 {
		line := text
		if end := bytes.IndexByte(text, '\n'); end >= 0 {
			line, text = text[:end], text[end+1:]
		} else {
			text = nil
		}
		what, rest := parseMetricName(line)
		if what == 0 {
			continue
		}
		labels, value, ok := parseSample(rest)
		if !ok {
			continue
		}
		// the number of the engine behind the server, in vLLM's or SGLang's label
		rank := int(cmp.Or(labelNumber(labels, "engine"), labelNumber(labels, "dp_rank")))
		switch what {
		case kvUse:
			if value <= 1 { // a value above 1 is no share
				g.KVUse = max(g.KVUse, value)
			}
		case kvConfig:
			tallies[kvTokens].recordSample(rank, kvCacheTokens(labels))
		default:
			found = found || what == running || what == waiting
			tallies[what].recordSample(rank, int64(value))
		}
	}
	g.Running, g.Waiting = tallies[running].sum(), tallies[waiting].sum()
	g.Preemptions, g.KVTokens = tallies[preemptions].sum(), min(tallies[kvTokens].sum(), maxCache)
	return g, found
}

// parseMetricName returns the meaning of the metric in a line, 0 if unknown, and the text of the
// line after the metric's name.
func parseMetricName(line []byte) (gaugeKind, []byte) {
	const shortest = len("tgi_queue_size")
	if len(line) < shortest {
		return 0, nil
	}
	switch line[0] {
	case 'v', 's', 'l', 't': // vllm:, sglang:, llamacpp:, tgi_
	default:
		return 0, nil
	}
	for i, c := range line {
		if c == '{' || c == ' ' || c == '\t' {
			return metricNames[string(line[:i])], line[i:]
		}
	}
	return 0, nil
}

// parseSample parses the text of a line after the metric's name: {label="value",…} number
// [timestamp]. It returns the labels unparsed, with their braces.
func parseSample(rest []byte) (labels []byte, value float64, ok bool) {
	if rest[0] == '{' {
		end := bytes.LastIndexByte(rest, '}') // a label's value may contain a brace, the number cannot
		if end < 0 {
			return nil, 0, false
		}
		labels, rest = rest[:end+1], rest[end+1:]
	}
	number, _, _ := bytes.Cut(bytes.Trim(rest, " \t\r"), []byte(" "))
	value, err := strconv.ParseFloat(string(number), 64)
	if err != nil || value != value || value < 0 || value > 1<<53 {
		return nil, 0, false
	}
	return labels, value, true
}

// labelNumber returns the number that is the value of a label. It returns 0 if the
// label is missing or its value is no natural number below 2^30. A quote inside the
// value of another label is escaped, so it cannot look like the begin of a label.
func labelNumber(labels []byte, name string) int64 {
	for _, before := range []string{"{", ","} {
		if _, rest, found := bytes.Cut(labels, []byte(before+name+`="`)); found {
			digits, _, _ := bytes.Cut(rest, []byte(`"`))
			n, _ := strconv.ParseUint(string(digits), 10, 30)
			return int64(n)
		}
	}
	return 0
}

// kvCacheTokens returns the size of the KV cache in tokens from the labels of vLLM's
// cache_config_info. Newer versions of vLLM report the tokens. For older versions it
// returns the number of blocks times the block size, which is too large for models with
// layers of different sizes.
func kvCacheTokens(labels []byte) int64 {
	if tokens := labelNumber(labels, "kv_cache_size_tokens"); tokens > 0 {
		return tokens
	}
	return min(labelNumber(labels, "num_gpu_blocks")*labelNumber(labels, "block_size"), maxCache)
}
