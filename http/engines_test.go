package http

import (
	"testing"
	"time"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/nodes"
)

func TestEngines_ForOperators(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.get("/v1/engines").wantBody(`{"engines": [], "missing_nodes": []}`)
	since, kind, url, rate, trouble := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), "vllm", "http://10.0.0.1:8000", 12.0, "connection refused"
	w.service.missing = []string{"gpu2"}
	w.service.engines = []client.Engine{
		{Node: "gpu2", Name: "10.0.0.2:8000", Kind: &kind, State: nodes.EngineUp, Models: []client.Engine_Models{{ID: "llama-3.1-8b", Name: "meta-llama/Llama-3.1-8B-Instruct", Kind: &kind}}, Window: 64, InFlight: 3, Simulated: true},
		{Node: "gpu1", Name: "b", State: nodes.EngineDown, Since: &since, LastError: &trouble},
		{Node: "gpu1", Name: "a", Kind: &kind, URL: &url, State: nodes.EngineUp, Since: &since, RowsPerSecond: &rate},
	}
	w.get("/v1/engines").wantBody(`{"engines": [
		{"node": "gpu1", "name": "a", "kind": "vllm", "url": "http://10.0.0.1:8000", "state": "up", "since": "2026-11-21T12:00:00Z", "models": [],
		 "window": 0, "in_flight": 0, "rows_per_second": 12.0, "last_error": null, "simulated": false},
		{"node": "gpu1", "name": "b", "kind": null, "url": null, "state": "down", "since": "2026-11-21T12:00:00Z", "models": [],
		 "window": 0, "in_flight": 0, "rows_per_second": null, "last_error": "connection refused", "simulated": false},
		{"node": "gpu2", "name": "10.0.0.2:8000", "kind": "vllm", "url": null, "state": "up", "since": null,
		 "models": [{"id": "llama-3.1-8b", "name": "meta-llama/Llama-3.1-8B-Instruct", "kind": "vllm"}],
		 "window": 64, "in_flight": 3, "rows_per_second": null, "last_error": null, "simulated": true}], "missing_nodes": ["gpu2"]}`)
	for _, key := range []string{w.keyOf(caller.DefaultAccount, caller.RoleUser), w.keyOf("acme", caller.RoleAdmin)} {
		w.get("/v1/engines", "Authorization", "Key "+key).wantError(403, "forbidden", "")
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	w, clock := setupClock(t)
	w.get("/v1/stats").wantBody(`{"nodes": [], "missing_nodes": [], "step_seconds": 5, "points": []}`)
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	clock.set(now)
	away := "It has not answered: no route to host"
	w.service.points = func() []nodes.NodeStats {
		return []nodes.NodeStats{
			{Node: "gpu1", Points: []nodes.StatsPoint{
				{At: now.Add(-10 * time.Second), Rows: 5, Failed: 1, InputTokens: 100, OutputTokens: 50, InFlight: 7, Window: 8},
				{At: now.Add(-5 * time.Second), Rows: 6, InFlight: 3, Window: 8},
				{At: now},
			}},
			{Node: "gpu2", Points: []nodes.StatsPoint{
				{At: now.Add(-9 * time.Second), Rows: 10, InputTokens: 1, InFlight: 2, Window: 4}, // two points in one step
				{At: now.Add(-6 * time.Second), Rows: 20, Failed: 2, OutputTokens: 3, InFlight: 4, Window: 4},
				{At: now.Add(-4 * time.Second), Rows: 30, InFlight: 1, Window: 4}, // this node has not reached the last step
			}},
			{Node: "gpu3"}, // a new node
			{Node: "gpu4", Problem: &away},
		}
	}
	w.get("/v1/stats?range=10").wantBody(`{"nodes": ["gpu1", "gpu2", "gpu3"], "missing_nodes": ["gpu4"], "step_seconds": 5, "points": [
		{"at": "2026-11-21T11:59:55Z", "rows": 36, "failed_rows": 0, "input_tokens": 0, "output_tokens": 0, "in_flight": 4, "window": 12}]}`)
	w.get("/v1/stats?range=11").wantBody(`{"nodes": ["gpu1", "gpu2", "gpu3"], "missing_nodes": ["gpu4"], "step_seconds": 5, "points": [
		{"at": "2026-11-21T11:59:50Z", "rows": 35, "failed_rows": 3, "input_tokens": 101, "output_tokens": 53, "in_flight": 11, "window": 12},
		{"at": "2026-11-21T11:59:55Z", "rows": 36, "failed_rows": 0, "input_tokens": 0, "output_tokens": 0, "in_flight": 4, "window": 12}]}`)
	if got := w.get("/v1/stats?node=gpu1", "Authorization", "Key "+w.keyOf("acme", caller.RoleReader)).want(200).json()["points"].([]any); len(got) != 3 {
		t.Errorf("%v", got)
	}
	w.get("/v1/stats?node=gpu9").wantField("node", "no node with this name")
	for _, bad := range []string{"4", "3601", "x", ""} {
		w.get("/v1/stats?range="+bad).wantField("range", "from 5 to 3600")
	}
}

func TestGPUs(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.get("/v1/gpus").wantBody(`{"nodes": []}`)
	used, busy, watts, trouble := int64(1<<30), 0.5, 300.0, "nvidia-smi cannot be read: it hangs"
	w.service.gpus = []nodes.NodeGPUs{
		{Node: "b", Problem: &trouble},
		{Node: "a", GPUs: []nodes.GPU{{Index: 1, Name: "NVIDIA H100", UUID: "GPU-1", MemoryUsed: &used, Utilization: &busy, Power: &watts}}},
	}
	w.get("/v1/gpus").wantBody(`{"nodes": [
		{"node": "a", "problem": null, "gpus": [{"index": 1, "name": "NVIDIA H100", "uuid": "GPU-1", "memory_total_bytes": null, "memory_used_bytes": 1073741824,
			"utilization": 0.5, "power_watts": 300, "temperature_celsius": null}]},
		{"node": "b", "problem": "nvidia-smi cannot be read: it hangs", "gpus": []}]}`)
	w.get("/v1/gpus", "Authorization", "Key "+w.keyOf("acme", caller.RoleAdmin)).wantError(403, "forbidden", "")
}
