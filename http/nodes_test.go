package http

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/nodes"
)

func twoNodes(w *world) {
	since := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	w.service.nodes = []client.Node{
		{
			ID: "gpu1-k3x", Name: "gpu1", Self: true, Role: nodes.NodeEngines, State: nodes.NodeRunning, URL: "http://10.0.0.1:8088", Peer: "10.0.0.1:7947",
			Version: "v1", Models: []string{"llama-3.1-8b"}, Window: 256, InFlight: 17, Since: &since,
		},
		{ID: "web-9f2", Name: "web", Role: nodes.NodeAPI, State: nodes.NodeRunning, URL: "http://10.0.0.2:8088"},
	}
}

func TestNodes_List(t *testing.T) {
	t.Parallel()
	w := setup(t)
	twoNodes(w)
	w.get("/v1/nodes").wantBody(`{"nodes": [
		{"id": "gpu1-k3x", "name": "gpu1", "self": true, "role": "engines", "state": "running", "url": "http://10.0.0.1:8088", "peer": "10.0.0.1:7947",
		 "version": "v1", "models": ["llama-3.1-8b"], "jobs": 0, "window": 256, "in_flight": 17, "since": "2026-11-21T12:00:00Z"},
		{"id": "web-9f2", "name": "web", "self": false, "role": "api", "state": "running", "url": "http://10.0.0.2:8088", "peer": "",
		 "version": "", "models": [], "jobs": 0, "window": 0, "in_flight": 0, "since": null}]}`)
}

func TestNodes_DrainReachesTheNode(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.do("POST", "/v1/nodes/gpu1-k3x/drain", "").want(200)
	if !slices.Equal(w.service.drained, []string{"gpu1-k3x"}) {
		t.Errorf("drained %q", w.service.drained)
	}
	w.service.drainErr = rowmill.ErrNotFound
	w.do("POST", "/v1/nodes/gpu9/drain", "").wantError(404, "unknown_node", `"gpu9"`)
	w.service.drainErr = rowmill.ErrConflict
	w.do("POST", "/v1/nodes/gpu1/drain", "").wantError(409, "ambiguous_node", "by its id")
	w.service.drainErr = fmt.Errorf("ask 10.0.0.9: %w", nodes.ErrAway)
	w.do("POST", "/v1/nodes/gpu1/drain", "").wantError(502, "node_away", "SIGTERM")
	w.service.drainErr = errors.New("connection to 10.0.0.9 refused")
	w.do("POST", "/v1/nodes/gpu1/drain", "").wantError(500, "internal_error", "log")
	w.get("/v1/nodes/gpu1/drain").want(405)
}

// Nodes serve all accounts, so only operators may see or stop them.
func TestNodes_OnlyForOperators(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, key := range []string{w.keyOf(caller.DefaultAccount, caller.RoleUser), w.keyOf("acme", caller.RoleAdmin)} {
		auth := []string{"Authorization", "Key " + key}
		w.get("/v1/nodes", auth...).want(403)
		w.do("POST", "/v1/nodes/gpu1/drain", "", auth...).want(403)
	}
	w.get("/v1/nodes", bare...).want(401)
	if w.service.drained != nil {
		t.Errorf("drained %q", w.service.drained)
	}
}

func TestNodes_EnginesOnlyNamesAnother(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.EnginesOnly = true })
	w.get("/v1/list-jobs").wantError(503, "engines_only", "no such node is known")
	twoNodes(w)
	w.post(`{"inputs":["a"]}`).wantError(503, "engines_only", "send the request to http://10.0.0.2:8088")
	w.service.nodes[1].State = nodes.NodeDraining
	w.get("/v1/jobs/job-1").wantError(503, "engines_only", "no such node is known")
	w.get("/v1/nodes").want(200)
	w.get("/readyz", bare...).want(200)
	w.noJobs()
}
