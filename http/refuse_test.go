package http

import (
	"strings"
	"testing"
)

func TestSubmit_NamesAllBrokenFields(t *testing.T) {
	t.Parallel()
	w := setup(t)
	fields := w.post(`{"inputs":["a",1,2],"model":"x","job_priority":7,"name":5,"sampling_params":{"top_p":0,"min_p":9},"column_name":"c"}`).fields()
	for _, want := range []string{"inputs[1]", "inputs[2]", "model", "job_priority", "name", "sampling_params.top_p", "sampling_params.min_p", "column_name"} {
		if fields[want] == "" {
			t.Errorf("%s is missing in %v", want, fields)
		}
	}
}

func TestSubmit_BodyTooLarge(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.MaxBodyBytes = 1000; c.MaxInlineBytes = 100 })
	body := `{"inputs":["` + strings.Repeat(`a","`, 400) + `"]}`
	w.post(body).wantError(413, "body_too_large", "1000 bytes")
	// Without Content-Length the size is noticed while the body is read.
	chunked := w.request("POST", "/v1/batch-inference", body)
	chunked.ContentLength = -1
	w.send(chunked).wantError(413, "body_too_large", "1000 bytes")
	w.noJobs()
	if w.bucket.writing != 0 {
		t.Errorf("%d writers are open", w.bucket.writing)
	}
	w.submitted(`{"inputs":["a"]}`)
}

func TestSubmit_CompressedBodyIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.post(`{"inputs":["a"]}`, "Content-Encoding", "gzip").wantError(415, "unsupported_encoding", "gzip")
	w.submitted(`{"inputs":["a"]}`, "Content-Encoding", "identity")
}
