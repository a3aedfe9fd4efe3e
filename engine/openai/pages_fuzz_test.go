package openai

import (
	"encoding/json"
	"testing"

	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/hostile"
)

// FuzzGauges looks for pages of metrics that give impossible gauges.
func FuzzGauges(f *testing.F) {
	f.Add([]byte("vllm:num_requests_running{engine=\"0\"} 3\nvllm:num_requests_waiting 1e308\nvllm:kv_cache_usage_perc NaN\n"))
	f.Add([]byte("vllm:cache_config_info{num_gpu_blocks=\"999999999\",block_size=\"999999999\",engine=\"127\"} 1\n"))
	f.Add([]byte("sglang:num_running_reqs{dp_rank=\"-1\"} 0x1p40 1700000000\nsglang:max_total_num_tokens 9007199254740992\ntgi_queue_size{a=\"\\\""))
	f.Fuzz(func(t *testing.T, page []byte) {
		if g, ok := parseGauges(page); ok {
			wantValidGauges(t, g)
		}
	})
}

// FuzzModels looks for lists of models that give an invalid description.
func FuzzModels(f *testing.F) {
	for i, text := range hostile.Mutations([]byte(`{"data":[{"id":"m","owned_by":"vllm","max_model_len":4096,"meta":{"n_ctx":1}}],"slots":3}`)) {
		if i%7 == 0 {
			f.Add([]byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, page []byte) {
		var list modelsResponse
		if json.Unmarshal(page, &list) != nil {
			return
		}
		info, found := engine.ServerInfo{Slots: wholeOrZero(list.Slots)}, probeFacts{}
		for _, m := range list.Data {
			info.Models = append(info.Models, engine.ServedModel{Name: m.ID.value, ContextLength: wholeOrZero(m.MaxModelLen)})
		}
		dropImplausible(&info, &found)
		wantValidInfo(t, info)
	})
}
