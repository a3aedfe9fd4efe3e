package sim

import (
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/rowmill/rowmill/engine/sim/batching"
)

// counters count events since the start of the server.
type counters struct {
	status       [600]atomic.Int64 // answers by HTTP status
	faults       [len(faultWords)]atomic.Int64
	stopped      atomic.Int64 // complete answers
	cut          atomic.Int64 // answers cut by their limit
	aborted      atomic.Int64
	disconnects  atomic.Int64 // clients that disconnected before they had their answer
	promptTokens atomic.Int64
	outputTokens atomic.Int64
}

// countFinished counts an ended answer by its finish reason.
func (c *counters) countFinished(reason string) {
	switch reason {
	case "stop":
		c.stopped.Add(1)
	case "length":
		c.cut.Add(1)
	default:
		c.aborted.Add(1)
	}
}

// serveMetrics serves /metrics in Prometheus's text format. It uses vLLM's names, which clients
// read, and names with rowmill_sim_ for metrics that only a simulator has.
func (s *Server) serveMetrics(x *httpExchange) {
	const labels = `{engine="0",model_name="rowmill-sim"}`
	c, load := &s.counts, s.pace.Load()
	out := x.buffer()
	family := func(name, kind, help string) {
		out = fmt.Appendf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	}
	single := func(name, kind, help, labels string, value float64) {
		family(name, kind, help)
		out = append(out, name...)
		out = append(out, labels...)
		out = append(out, ' ')
		out = strconv.AppendFloat(out, value, 'f', -1, 64)
		out = append(out, '\n')
	}
	single("vllm:num_requests_running", "gauge", "Requests in the batch.", labels, float64(load.Running))
	single("vllm:num_requests_waiting", "gauge", "Requests in the queue.", labels, float64(load.Waiting))
	single("vllm:kv_cache_usage_perc", "gauge", "Share of the KV cache in use, 0 to 1.", labels, load.KVUse)
	single("vllm:num_preemptions_total", "counter", "Requests preempted.", labels, float64(load.Preemptions))
	single("vllm:prompt_tokens_total", "counter", "Prompt tokens processed.", labels, float64(c.promptTokens.Load()))
	single("vllm:generation_tokens_total", "counter", "Tokens generated.", labels, float64(c.outputTokens.Load()))
	single("vllm:cache_config_info", "gauge", "Size of the KV cache.",
		fmt.Sprintf(`{block_size="%d",engine="0",num_gpu_blocks="%d"}`, batching.BlockTokens, load.KVBlocks), 1)
	family("vllm:request_success_total", "counter", "Requests finished, by reason.")
	for _, reason := range []struct {
		name  string
		count *atomic.Int64
	}{{"stop", &c.stopped}, {"length", &c.cut}, {"abort", &c.aborted}} {
		out = fmt.Appendf(out, "vllm:request_success_total{engine=\"0\",finished_reason=%q,model_name=\"rowmill-sim\"} %d\n", reason.name, reason.count.Load())
	}
	if load.Slots > 0 {
		single("rowmill_sim_slots", "gauge", "Requests that can run at once.", "", float64(load.Slots))
	}
	single("rowmill_sim_disconnects_total", "counter", "Clients gone before their answer.", "", float64(c.disconnects.Load()))
	family("rowmill_sim_responses_total", "counter", "Responses, by HTTP status.")
	for status := range c.status {
		if count := c.status[status].Load(); count > 0 {
			out = fmt.Appendf(out, "rowmill_sim_responses_total{status=\"%d\"} %d\n", status, count)
		}
	}
	family("rowmill_sim_faults_total", "counter", "Faults injected, by kind.")
	for kind, word := range faultWords {
		if word != "" {
			out = fmt.Appendf(out, "rowmill_sim_faults_total{kind=%q} %d\n", word, c.faults[kind].Load())
		}
	}
	s.replyOK(x, typeText, out)
}
