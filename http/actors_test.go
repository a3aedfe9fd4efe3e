package http

import (
	"fmt"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/nodes"
)

func TestDiagnosis(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.get("/v1/diagnosis").wantBody(`{"nodes": [
		{"id": "gpu1-a", "name": "gpu1", "error": null, "facts": {"version": "", "deployment": "", "catalog": "", "members": ["gpu1-a"],
		 "settings": {"jobs.max_active": "64"}, "findings": [{"check": "bucket", "level": "fail", "text": "cannot be written", "remedy": "allow s3:PutObject"}],
		 "storage": {"commit_seconds": [0.002], "sync_seconds": [], "put_seconds": [0.01], "get_seconds": [], "object_bytes": 1024}}},
		{"id": "gpu2-b", "name": "gpu2", "error": "no answer in time", "facts": null}]}`)
	for _, key := range []string{w.keyOf(caller.DefaultAccount, caller.RoleUser), w.keyOf("acme", caller.RoleAdmin)} {
		w.get("/v1/diagnosis", "Authorization", "Key "+key).want(403)
	}
	w.get("/v1/diagnosis", bare...).want(401)
}

func TestStorage(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const report = `{"records_at": "/data/rowmill.db", "objects_at": "/data/objects", "records": null, "bucket": null, "known": 7,
		"unknown": [], "missing": [{"job_id": "job-1", "key": "k"}], "damaged": [%s], "clock_skew_seconds": 1}`
	w.get("/v1/storage").wantBody(fmt.Sprintf(report, ""))
	w.get("/v1/storage?read=true").wantBody(fmt.Sprintf(report, `{"job_id": "job-2", "key": "p", "reason": "the page's checksum is wrong"}`))
	w.get("/v1/storage?read=all").wantError(400, "invalid_request", "read")
}

func TestActors_List(t *testing.T) {
	t.Parallel()
	w := setup(t)
	job, task, away := "job-1", "write a part", "ask 10.0.0.2:7947 for actors: no answer in time"
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	w.service.actors = []nodes.ActorStatus{{
		NodeID: "gpu1-k3x", Node: "gpu1", ID: "node/worker-1", Kind: "worker", Job: &job, State: "running", Since: at, Restarts: 2, Depth: 3, Oldest: 1.5,
		Tasks: 1, Task: &task, TaskSeconds: 90, LastError: &nodes.ActorError{Message: "503 SlowDown", At: at},
	}}
	w.service.answered = []nodes.ActorQueryStatus{{ID: "gpu1-k3x", Name: "gpu1"}, {ID: "gpu2-a", Name: "gpu2", Error: &away}}
	w.get("/v1/actors?kind=worker&job_id=job-1&node=gpu1&min_age=60").wantBody(`{"actors": [
		{"node_id": "gpu1-k3x", "node": "gpu1", "id": "node/worker-1", "kind": "worker", "job_id": "job-1", "engine": null, "state": "running",
		 "since": "2026-11-21T12:00:00Z", "restarts": 2, "mailbox_depth": 3, "oldest_message_seconds": 1.5, "tasks": 1, "task": "write a part",
		 "task_seconds": 90, "last_error": {"message": "503 SlowDown", "at": "2026-11-21T12:00:00Z"}}],
		"nodes": [{"id": "gpu1-k3x", "name": "gpu1", "error": null, "left_out": 0},
		 {"id": "gpu2-a", "name": "gpu2", "error": "ask 10.0.0.2:7947 for actors: no answer in time", "left_out": 0}]}`)
	if want := (nodes.ActorFilter{Kind: "worker", Job: "job-1", Node: "gpu1", MinAge: time.Minute}); w.service.asked != want {
		t.Errorf("asked for %+v", w.service.asked)
	}
	w.get("/v1/actors?kind=jobs").wantError(400, "invalid_request", "one of node, engine, job, worker, results")
	w.get("/v1/actors?min_age=-1").wantError(400, "invalid_request", "min_age")
	w.service.actorsErr = rowmill.ErrNotFound
	w.get("/v1/actors?node=gpu9").wantError(404, "unknown_node", `"gpu9"`)
	w.service.actorsErr = rowmill.ErrConflict
	w.get("/v1/actors?node=gpu1").wantError(409, "ambiguous_node", "by its id")
	for _, key := range []string{w.keyOf(caller.DefaultAccount, caller.RoleUser), w.keyOf("acme", caller.RoleAdmin)} {
		w.get("/v1/actors", "Authorization", "Key "+key).want(403)
	}
	w.get("/v1/actors", bare...).want(401)
}
