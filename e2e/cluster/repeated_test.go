package cluster

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// repeated sends requests 40 times at once, spread over the nodes. A repetition that would cost
// money twice has the effect of one request.
func (c *Cluster) repeated(t *testing.T) {
	const times = 40
	submission := func(text string) map[string]any {
		return map[string]any{"inputs": []string{text}, "model": model, "sampling_params": map[string]any{"max_tokens": maxTokens}}
	}
	ended := must.Get(c.submit(t.Context(), t.Name(), []string{"a row that is cancelled"}))(t)
	must.Succeed(t, c.insist(t.Context(), http.MethodPost, "/v1/jobs/"+ended+"/cancel", nil, nil))
	messages := map[string]any{"requests": []map[string]any{{"custom_id": "a", "params": asked("a row of a batch")}}}
	for _, r := range []struct {
		name, path string
		header     http.Header
		body       any
		names      string // member of the answer with the id of the effect
		effects    int
	}{
		{"a submission with a key", "/v1/batch-inference", http.Header{"Idempotency-Key": {t.Name() + " once"}}, submission("a row that runs once"), "results", 1},
		{"a submission without a key", "/v1/batch-inference", nil, submission("a row that runs 40 times"), "results", times},
		{"a resume", "/v1/jobs/" + ended + "/resume", nil, map[string]any{}, "results", 1},
		{"a batch that a client repeats", "/v1/messages/batches", http.Header{"X-Stainless-Retry-Count": {"1"}}, messages, "id", 1},
	} {
		body := must.Get(json.Marshal(r.body))(t)
		start, came := make(chan struct{}), make(chan string, times)
		for i := range times {
			node := c.nodes()[i%len(c.nodes())]
			go func() {
				<-start
				var answer map[string]any
				text, err := c.client.send(t.Context(), http.MethodPost, node.API+r.path, r.header, body)
				if err == nil {
					err = json.Unmarshal(text, &answer)
				}
				id, _ := answer[r.names].(string)
				if err != nil || id == "" {
					t.Errorf("%s at %s: %s, %v", r.name, node.name, text, err)
				}
				came <- id
			}()
		}
		close(start)
		seen := make(map[string]bool)
		for range times {
			seen[<-came] = true
		}
		if len(seen) != r.effects {
			t.Errorf("%s, %d times at once: %d effects, want %d: %v", r.name, times, len(seen), r.effects, seen)
		}
	}
}
