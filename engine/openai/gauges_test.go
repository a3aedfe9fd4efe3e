package openai

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/engine"
)

func TestGauges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		page string
		want engine.Gauges
		none bool
	}{
		"vLLM, two engines": {`
# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a}\"b"} 8.0
vllm:num_requests_running{engine="1",model_name="a"} 4.0 1795224372
vllm:num_requests_waiting{engine="0"} 2
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
vllm:num_preemptions_total{engine="0"} 1e+2
vllm:request_success_total{finished_reason="stop"} 9
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",mamba_block_size="None",num_gpu_blocks="1000"} 1.0
vllm:cache_config_info{block_size="16",cache_dtype="a,b=\"}",engine="1",mamba_block_size="512",num_gpu_blocks="500"} 1.0
`, engine.Gauges{Running: 12, Waiting: 2, KVUse: 0.75, Preemptions: 100, KVTokens: 24000}, false},
		"vLLM that states the tokens": {`
vllm:num_requests_running 0
vllm:cache_config_info{block_size="1568",engine="0",kv_cache_size_tokens="66901",num_gpu_blocks="49"} 1.0
`, engine.Gauges{KVUse: -1, KVTokens: 66901}, false},
		"vLLM before its cache is made": {`
vllm:num_requests_running 0
vllm:cache_config_info{block_size="16",kv_cache_size_tokens="None",num_gpu_blocks="None"} 1.0
`, engine.Gauges{KVUse: -1}, false},
		"SGLang": {
			"sglang:num_running_reqs{a=\"b\"} 3\nsglang:num_queue_reqs 1\nsglang:token_usage 0.5\nsglang:max_total_num_tokens{tp_rank=\"0\"} 156907.0\n",
			engine.Gauges{Running: 3, Waiting: 1, KVUse: 0.5, KVTokens: 156907},
			false,
		},
		"SGLang, ranks that say the same, and others": {`
sglang:num_running_reqs{dp_rank="0",tp_rank="0"} 3
sglang:num_running_reqs{dp_rank="0",tp_rank="1"} 3
sglang:num_running_reqs{dp_rank="1",tp_rank="2"} 4
sglang:max_total_num_tokens{dp_rank="0",tp_rank="0"} 60000
sglang:max_total_num_tokens{dp_rank="0",tp_rank="1"} 60000
sglang:max_total_num_tokens{dp_rank="1",tp_rank="2"} 60000
sglang:num_retracted_requests_total{dp_rank="1"} 2
`, engine.Gauges{Running: 7, KVUse: -1, Preemptions: 2, KVTokens: 120000}, false},
		"llama.cpp":     {"llamacpp:requests_processing 2\r\nllamacpp:requests_deferred 5", engine.Gauges{Running: 2, Waiting: 5, KVUse: -1}, false},
		"broken lines":  {"vllm:num_requests_running{a=\"b 3\nvllm:num_requests_waiting\n{} 3\nvllm:num_requests_running NaN\nvllm:num_requests_waiting 1\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"9} 1\nvllm:cache_config_info{block_size=} 1\nvllm:cache_config_info{} 1\nv\n", engine.Gauges{Waiting: 1, KVUse: -1}, false},
		"other metrics": {"process_open_fds 9\n", engine.Gauges{}, true},
		"switched off":  {"401 ", engine.Gauges{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := pages(t, "", map[string]string{"/metrics": c.page}).Gauges(t.Context())
			if c.none != errors.Is(err, engine.ErrNoGauges) || !c.none && (err != nil || got != c.want) {
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			}
		})
	}
	if _, err := pages(t, "", nil).Gauges(t.Context()); !errors.Is(err, engine.ErrNoGauges) {
		t.Errorf("no /metrics: %v", err)
	}
	if _, err := pages(t, "", map[string]string{"/metrics": "503 "}).Gauges(t.Context()); err == nil || errors.Is(err, engine.ErrNoGauges) {
		t.Errorf("a transient error: %v", err)
	}
}

// metricsPage returns a page of vLLM's size, with the gauges among histograms.
func metricsPage() []byte {
	var page strings.Builder
	const labels = `engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"`
	for _, name := range []string{"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:num_preemptions_total"} {
		fmt.Fprintf(&page, "# HELP %s Some words about it.\n# TYPE %s gauge\n%s{%s} 1.0\n", name, name, name, labels)
	}
	page.WriteString(`vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="27481"} 1.0` + "\n")
	for i := range 60 {
		for bucket := range 28 {
			fmt.Fprintf(&page, "vllm:request_histogram_%d_seconds_bucket{%s,le=\"%d.0\"} %d.0\n", i, labels, bucket, i*bucket)
		}
	}
	return []byte(page.String())
}

func TestGaugesAreCheap(t *testing.T) {
	page := metricsPage()
	if len(page) < 150<<10 {
		t.Fatalf("the page has only %d bytes", len(page))
	}
	allocations := testing.AllocsPerRun(10, func() {
		if g, ok := parseGauges(page); !ok || g.KVTokens != 27481*16 {
			t.Errorf("got %+v, %v", g, ok)
		}
	})
	// One allocation for each parsed number.
	if allocations > 8 {
		t.Errorf("%v allocations for a page", allocations)
	}
}

func BenchmarkGauges(b *testing.B) {
	page := metricsPage()
	b.ReportAllocs()
	b.SetBytes(int64(len(page)))
	for b.Loop() {
		if _, ok := parseGauges(page); !ok {
			b.Fatal("no gauges")
		}
	}
}
