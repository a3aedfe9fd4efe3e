package http

import (
	"testing"

	"github.com/rowmill/rowmill/engine/served"
)

func TestMe(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.get("/v1/me").wantBody(`{"account": "default", "role": "admin", "operator": true, "key_id": null, "key_name": "configuration",
		"version": "1.2.3", "node": "", "simulated": false}`)
	twoNodes(w)
	w.service.servers = []served.Server{{Name: "real"}, {Name: "made up", Simulated: true}}
	k := w.newKey(`{"account":"acme","role":"reader","name":"wall"}`)
	w.get("/v1/me", k.header()...).wantBody(`{"account": "acme", "role": "reader", "operator": false, "key_id": "` + k.id + `", "key_name": "wall",
		"version": "1.2.3", "node": "gpu1", "simulated": true}`)
	admin := w.newKey(`{"account":"acme","role":"admin"}`)
	if body := w.get("/v1/me", admin.header()...).want(200).json(); body["operator"] != false || body["key_name"] != nil {
		t.Errorf("got %v", body)
	}
	w.get("/v1/me", bare...).want(401)
}

// A reader may read what a user may read, and cannot change anything by any route.
func TestReaderChangesNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.submitted(`{"inputs":["a"]}`)
	reader := w.newKey(`{"role":"reader"}`).header()
	for _, path := range []string{"/v1/list-jobs", "/v1/jobs/" + id, "/v1/job-status/" + id, "/v1/usage", "/v1/models", "/v1/functions", "/v1/settings", "/v1/settings/preview"} {
		w.get(path, reader...).want(200)
	}
	w.get("/v1/files", "Authorization", "Bearer "+reader[1][len("Key "):]).want(200)
	for _, path := range []string{"/v1/keys", "/v1/audit", "/v1/nodes"} {
		w.get(path, reader...).wantError(403, "forbidden", "administrator")
	}
	before := w.record(id).Version
	w.get("/v1/job-cancel/"+id, reader...).wantError(403, "forbidden", "role reader")
	for _, route := range w.engine.Routes() {
		if route.Method == "GET" || route.Method == "HEAD" || visits[route.Method+" "+route.Path].open {
			continue
		}
		got := w.do(route.Method, pathTo(route.Path, id), "", reader...)
		if got.status != 403 {
			t.Errorf("%s %s: %d %s", route.Method, route.Path, got.status, got.text)
		}
	}
	if w.record(id).Version != before {
		t.Error("the job was changed")
	}
}

func TestJobs_CancelByPOST(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.submitted(`{"inputs":["a"]}`)
	for _, want := range []bool{true, false} {
		if got := w.do("POST", "/v1/jobs/"+id+"/cancel", "").want(200).json()["cancelled"]; got != want {
			t.Errorf("cancelled %v, want %v", got, want)
		}
	}
	if got := w.do("POST", "/v1/jobs/"+unknownIDs[0]+"/cancel", "").wantError(404, "job_not_found", "no job").json()["cancelled"]; got != false {
		t.Errorf("cancelled %v", got)
	}
}
