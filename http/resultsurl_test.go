package http

import (
	"testing"

	"github.com/rowmill/rowmill/blob/layout"
)

func TestResultsURL_Descriptor(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a"]}`, answers("x"))
	body := w.get("/v1/jobs/" + id + "/results-url").want(200).json()
	artifact := body["artifact"].(map[string]any)
	filename := "service-results~" + id + "~inputs=0~logprobs=0.parquet"
	if body["job_id"] != id || body["format"] != "parquet" || body["include_inputs"] != false ||
		body["include_cumulative_logprobs"] != false || body["expires_in_seconds"] != 3600.0 ||
		artifact["bucket"] != w.bucket.Name() || artifact["filename"] != filename {
		t.Errorf("body %v", body)
	}
	if object := w.object(artifact["key"].(string)); float64(len(object)) != artifact["size_bytes"] {
		t.Errorf("size_bytes %v of %d", artifact["size_bytes"], len(object))
	}
	body = w.get("/v1/jobs/" + id + "/results-url?format=parquet&include_inputs=True&include_cumulative_logprobs=True&expires_in_seconds=604800").want(200).json()
	artifact = body["artifact"].(map[string]any)
	if body["include_inputs"] != true || body["include_cumulative_logprobs"] != true || body["expires_in_seconds"] != 604800.0 ||
		artifact["key"] != w.record(id).Artifacts[layout.Full].Key {
		t.Errorf("body %v", body)
	}
	w.get("/v1/jobs/" + id + "/results-url?expires_in_seconds=1").want(200)
}

func TestResultsURL_ArtifactIsMadeOnceAndKept(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a"]}`, answers("x"))
	before := w.bucket.created
	keys := make(chan any, 8)
	for range cap(keys) {
		go func() {
			keys <- w.get("/v1/jobs/" + id + "/results-url").json()["artifact"].(map[string]any)["key"]
		}()
	}
	distinct := map[any]bool{}
	for range cap(keys) {
		distinct[<-keys] = true
	}
	if len(distinct) != 1 || w.bucket.created != before+1 {
		t.Errorf("keys %v, %d objects made", distinct, w.bucket.created-before)
	}
	distinct[w.get("/v1/jobs/" + id + "/results-url").json()["artifact"].(map[string]any)["key"]] = true
	if len(distinct) != 1 {
		t.Errorf("keys %v", distinct)
	}
}
