package http

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/http/audit"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/nodes"
)

// stoppedServer returns a server that has never run.
func (w *world) stoppedServer(node, name string) client.Server {
	return client.Server{
		NodeID: node + "-id", Node: node, Name: name, Models: []string{}, GPUs: 1, On: []int64{}, Phase: "stopped",
		Since: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Mode: "auto", LoadSeconds: 120, TokensPerSecond: 1000,
	}
}

func TestServers_ForOperators(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.get("/v1/servers").wantBody(`{"servers": []}`)
	running, trouble := w.stoppedServer("gpu1", "qwen"), "the server ended with code 1"
	running.Phase, running.On, running.Models, running.LoadSeconds = "running", []int64{0, 1}, []string{"qwen-3-32b"}, 61.5
	failed := w.stoppedServer("gpu2", "llama")
	failed.Error, failed.RetryAt, failed.FailingSince = &trouble, &failed.Since, &failed.Since
	w.service.starting = []client.Server{running, failed}
	w.get("/v1/servers").wantBody(`{"servers": [
		{"node_id": "gpu1-id", "node": "gpu1", "name": "qwen", "models": ["qwen-3-32b"], "gpus": 1, "on": [0, 1], "phase": "running", "since": "2026-11-21T12:00:00Z",
		 "mode": "auto", "load_seconds": 61.5, "tokens_per_second": 1000.0, "retry_at": null, "failing_since": null, "error": null},
		{"node_id": "gpu2-id", "node": "gpu2", "name": "llama", "models": [], "gpus": 1, "on": [], "phase": "stopped", "since": "2026-11-21T12:00:00Z",
		 "mode": "auto", "load_seconds": 120.0, "tokens_per_second": 1000.0, "retry_at": "2026-11-21T12:00:00Z", "failing_since": "2026-11-21T12:00:00Z", "error": "the server ended with code 1"}]}`)
	for _, key := range []string{w.keyOf(caller.DefaultAccount, caller.RoleUser), w.keyOf("acme", caller.RoleAdmin)} {
		auth := []string{"Authorization", "Key " + key}
		w.get("/v1/servers", auth...).wantError(403, "forbidden", "")
		w.get("/v1/servers/gpu1/qwen/log", auth...).wantError(403, "forbidden", "")
		w.do("PATCH", "/v1/servers/gpu1/qwen", `{"mode":"off"}`, auth...).wantError(403, "forbidden", "")
	}
	if mode := w.service.starting[0].Mode; mode != "auto" {
		t.Errorf("mode %s after refused requests", mode)
	}
}

func TestServers_ModeByNameAndID(t *testing.T) {
	t.Parallel()
	w := setup(t)
	twin := w.stoppedServer("gpu1", "qwen")
	twin.NodeID = "twin-id"
	w.service.starting = []client.Server{w.stoppedServer("gpu1", "qwen"), w.stoppedServer("gpu2", "qwen")}
	for path, mode := range map[string]string{"/v1/servers/gpu1/qwen": "off", "/v1/servers/gpu2-id/qwen": "on"} {
		if got := w.do("PATCH", path, fmt.Sprintf(`{"mode":%q}`, mode)).want(200).json()["mode"]; got != mode {
			t.Errorf("%s: the answer has mode %v", path, got)
		}
	}
	if all := w.service.starting; all[0].Mode != "off" || all[1].Mode != "on" {
		t.Errorf("modes %s and %s", all[0].Mode, all[1].Mode)
	}
	entries, _, err := w.store.ListAudit(t.Context(), caller.DefaultAccount, 10, "")
	if err != nil || len(entries) != 2 || entries[0].Action != audit.ServerSet {
		t.Errorf("audit record %v, %v", entries, err)
	}
	for body, text := range map[string]string{`{}`: "is missing", `{"mode":"start"}`: "on, off or auto", `{"mode":1}`: "on, off or auto", `{"mode":"on","run":"sh"}`: "run"} {
		w.do("PATCH", "/v1/servers/gpu1/qwen", body).wantError(400, "invalid_request", text)
	}
	w.do("PATCH", "/v1/servers/gpu1/llama", `{"mode":"on"}`).wantError(404, "unknown_server", `"llama"`)
	w.do("PATCH", "/v1/servers/gpu3/qwen", `{"mode":"on"}`).wantError(404, "unknown_server", `"gpu3"`)
	w.service.starting = append(w.service.starting, twin)
	w.do("PATCH", "/v1/servers/gpu1/qwen", `{"mode":"on"}`).wantError(409, "ambiguous_node", "by its id")
	w.do("PATCH", "/v1/servers/twin-id/qwen", `{"mode":"on"}`).want(200)
	w.service.serverErr = rowmill.ErrConflict
	w.do("PATCH", "/v1/servers/gpu2/qwen", `{"mode":"on"}`).wantError(409, "conflict", "try again")
	w.service.serverErr = rowmill.ErrNotFound
	w.do("PATCH", "/v1/servers/gpu2/qwen", `{"mode":"on"}`).wantError(404, "unknown_server", `"qwen"`)
}

func TestServers_Log(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.service.starting = []client.Server{w.stoppedServer("gpu1", "qwen")}
	w.service.log = func(nodeID, name string, part nodes.LogPart) client.ServerLog {
		return client.ServerLog{Text: fmt.Sprintln(nodeID, name, part.Lines, part.After), End: 7}
	}
	w.get("/v1/servers/gpu1/qwen/log").wantBody(`{"text": "gpu1-id qwen 200 0\n", "end": 7}`)
	w.get("/v1/servers/gpu1-id/qwen/log?lines=3&after=5").wantBody(`{"text": "gpu1-id qwen 3 5\n", "end": 7}`)
	w.get("/v1/servers/gpu1/qwen/log?lines=0").wantError(400, "invalid_request", "lines")
	w.get("/v1/servers/gpu1/qwen/log?after=-1").wantError(400, "invalid_request", "after")
	w.get("/v1/servers/gpu1/..%2Fqwen/log").want(404)
	w.service.serverErr = fmt.Errorf("ask 10.0.0.9: %w", nodes.ErrAway)
	w.get("/v1/servers/gpu1/qwen/log").wantError(502, "node_away", "gpu1")
	w.service.serverErr = rowmill.ErrNotFound
	w.get("/v1/servers/gpu1/qwen/log").wantError(404, "unknown_server", "qwen")
	w.service.serverErr = errors.New("the disk is broken")
	w.get("/v1/servers/gpu1/qwen/log").wantError(500, "internal_error", "log")
}
