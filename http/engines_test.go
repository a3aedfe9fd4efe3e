package http

import (
	"testing"
	"time"

	"github.com/rowmill/rowmill/http/exchange"
)

func TestEngines_ForOperators(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.get("/v1/engines").wantBody(`{"engines": []}`)
	since, kind, url, rate, trouble := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), "vllm", "http://10.0.0.1:8000", exchange.Decimal(12), "connection refused"
	w.service.engines = []Engine{
		{Node: "gpu2", Name: "10.0.0.2:8000", Kind: &kind, State: EngineUp, Models: []EngineModel{{ID: "llama-3.1-8b", Name: "meta-llama/Llama-3.1-8B-Instruct", Kind: &kind}}, Window: 64, InFlight: 3, Simulated: true},
		{Node: "gpu1", Name: "b", State: EngineDown, Since: &since, LastError: &trouble},
		{Node: "gpu1", Name: "a", Kind: &kind, URL: &url, State: EngineUp, Since: &since, Rows: &rate},
	}
	w.get("/v1/engines").wantBody(`{"engines": [
		{"node": "gpu1", "name": "a", "kind": "vllm", "url": "http://10.0.0.1:8000", "state": "up", "since": "2026-11-21T12:00:00Z", "models": [],
		 "window": 0, "in_flight": 0, "rows_per_second": 12.0, "last_error": null, "simulated": false},
		{"node": "gpu1", "name": "b", "kind": null, "url": null, "state": "down", "since": "2026-11-21T12:00:00Z", "models": [],
		 "window": 0, "in_flight": 0, "rows_per_second": null, "last_error": "connection refused", "simulated": false},
		{"node": "gpu2", "name": "10.0.0.2:8000", "kind": "vllm", "url": null, "state": "up", "since": null,
		 "models": [{"id": "llama-3.1-8b", "name": "meta-llama/Llama-3.1-8B-Instruct", "kind": "vllm"}],
		 "window": 64, "in_flight": 3, "rows_per_second": null, "last_error": null, "simulated": true}]}`)
	for _, key := range []string{w.keyOf(DefaultAccount, RoleUser), w.keyOf("acme", RoleAdmin)} {
		w.get("/v1/engines", "Authorization", "Key "+key).wantError(403, "forbidden", "")
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	w, clock := setupClock(t)
	w.get("/v1/stats").wantBody(`{"node": "", "step_seconds": 5, "points": []}`)
	twoNodes(w)
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	clock.set(now)
	w.service.points = func() []Point {
		return []Point{
			{At: now.Add(-10 * time.Second), Rows: 5, Failed: 1, InputTokens: 100, OutputTokens: 50, InFlight: 7, Window: 8},
			{At: now.Add(-5 * time.Second), Rows: 6},
			{At: now},
		}
	}
	w.get("/v1/stats?range=10").wantBody(`{"node": "gpu1", "step_seconds": 5, "points": [
		{"at": "2026-11-21T11:59:55Z", "rows": 6, "failed_rows": 0, "input_tokens": 0, "output_tokens": 0, "in_flight": 0, "window": 0},
		{"at": "2026-11-21T12:00:00Z", "rows": 0, "failed_rows": 0, "input_tokens": 0, "output_tokens": 0, "in_flight": 0, "window": 0}]}`)
	if got := w.get("/v1/stats?range=3600", "Authorization", "Key "+w.keyOf("acme", RoleReader)).want(200).json()["points"].([]any); len(got) != 3 {
		t.Errorf("%v", got)
	}
	for _, bad := range []string{"4", "3601", "x", ""} {
		w.get("/v1/stats?range="+bad).wantField("range", "from 5 to 3600")
	}
}
