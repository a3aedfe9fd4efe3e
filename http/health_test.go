package http

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/spantest"
	"github.com/rowmill/rowmill/store"
)

func TestReadyz_VerboseListsEveryCheck(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.service.checks = []ReadinessCheck{{Name: "engines", OK: true, Text: "outputs are\nsimulated"}}
	if got := string(w.get("/readyz", bare...).want(200).text); got != "ready\n" {
		t.Errorf("got %q", got)
	}
	want := "[+] store: records can be written\n[+] engines: outputs are simulated\nready\n"
	for _, query := range []string{"?verbose", "?verbose=1"} {
		if got := string(w.get("/readyz" + query).want(200).text); got != want {
			t.Errorf("%s: got %q", query, got)
		}
	}
	w.service.checks = append(w.service.checks, ReadinessCheck{Name: "disk", Text: "full"})
	if got := string(w.get("/readyz?verbose").want(503).text); !strings.HasSuffix(got, "[-] disk: full\nnot ready\n") {
		t.Errorf("got %q", got)
	}
}

func TestReadyz_503WhileDraining(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.service.draining = true
	if got := string(w.get("/readyz?verbose", bare...).want(503).text); !strings.Contains(got, "[-] draining") {
		t.Errorf("got %q", got)
	}
	w.get("/livez", bare...).want(200)
}

// Operators get all details. Callers without a key, and keys of other accounts, get no
// path, address or error.
func TestReadyz_HidesDetailsFromNonOperators(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.service.checks = []ReadinessCheck{
		{Name: "records", OK: true, Text: "at /var/lib/rowmill/rowmill.db"},
		{Name: "node gpu1-af3fbcdb", OK: true, Text: "at http://10.0.0.1:8088"},
		{Name: "engine 10.0.0.1:8000", OK: true, Text: "up"},
		{Name: "engine 10.0.0.2:8000", OK: true, Text: "DOWN: dial tcp 10.0.0.2:8000: connection refused"},
		{Name: "objects", Text: "CANNOT BE USED: s3://mill at http://10.0.0.4:7070"},
		{Name: "objects", OK: true, Text: "s3://mill"},
	}
	const outline = "[+] store\n[+] records\n[+] node\n[+] engine\n[-] objects\nnot ready\n"
	for who, headers := range map[string][]string{
		"nobody":          bare,
		"no known key":    {"Authorization", "Key rk_00_x"},
		"no key at all":   {"Authorization", "Bearer " + adminKey},
		"a client":        w.newKey(`{}`).header(),
		"another's admin": w.newKey(`{"account":"acme","role":"admin"}`).header(),
	} {
		if got := string(w.get("/readyz?verbose", headers...).want(503).text); got != outline {
			t.Errorf("%s gets %q", who, got)
		}
		if got := string(w.get("/readyz", headers...).want(503).text); got != "not ready\n" {
			t.Errorf("%s gets %q", who, got)
		}
	}
	for who, headers := range map[string][]string{
		"the configured key": nil,
		"a key of the store": w.newKey(`{"role":"admin"}`).header(),
	} {
		got := string(w.get("/readyz?verbose", headers...).want(503).text)
		for _, check := range w.service.checks {
			if !strings.Contains(got, check.Name+": "+check.Text+"\n") {
				t.Errorf("%s gets no check %s: %q", who, check.Name, got)
			}
		}
	}
}

// deafStore cannot be written to.
type deafStore struct{ store.Store }

func (deafStore) Ping(context.Context) error { return errors.New("broken disk at /secret/place") }

func TestReadyz_503WhenTheStoreCannotBeWritten(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Store = deafStore{c.Store} })
	got := string(w.get("/readyz?verbose").want(503).text)
	if !strings.Contains(got, "[-] store:") || strings.Contains(got, "secret") {
		t.Errorf("got %q", got)
	}
	if !strings.Contains(w.logs.String(), "broken disk") {
		t.Error("the reason was not logged")
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	want := `{"version":"1.2.3","commit":"abc","built":"2026-11-21","go":"go1.26"}` + "\n"
	if got := string(setup(t).get("/version", bare...).want(200).text); got != want {
		t.Errorf("got %s", got)
	}
}

func TestMetrics_TimeRequestsByRoute(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.get("/v1/jobs/" + unknownIDs[0]).want(404)
	w.get("/nowhere").want(404)
	w.do("BREW", "/v1/list-jobs", "").want(405)
	text := string(w.get("/metrics", bare...).want(200).text)
	for _, want := range []string{
		`rowmill_http_request_duration_seconds_count{code="404",method="GET",route="/v1/jobs/:job_id"} 1`,
		`rowmill_http_request_duration_seconds_count{code="404",method="GET",route="unmatched"} 1`,
		`rowmill_http_request_duration_seconds_count{code="405",method="other",route="unmatched"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %s:\n%s", want, text)
		}
	}
	if strings.Contains(text, unknownIDs[0]) {
		t.Error("a job id is a label")
	}
}

// In the OpenMetrics format, metrics have exemplars with the ids of spans.
func TestMetrics_HaveExemplars(t *testing.T) {
	t.Parallel()
	var c spantest.Collector
	tracer := c.StartTracer(t, nil)
	w := setup(t, func(cfg *Config) { cfg.Tracer = tracer })
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	w.get("/v1/list-jobs", "Traceparent", "00-"+trace+"-"+span+"-01").want(200)
	w.get("/v1/list-jobs").want(200)
	answer := w.get("/metrics", append(bare, "Accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")...).want(200)
	tracer.Close(t.Context())
	found := c.Named("GET /v1/list-jobs")
	if len(found) != 1 || found[0].Trace != trace || found[0].Parent != span || found[0].Attributes["http.response.status_code"] != int64(200) {
		t.Fatalf("spans are %+v", c.Spans())
	}
	exemplar := regexp.MustCompile(`rowmill_http_request_duration_seconds_bucket\{.*route="/v1/list-jobs".* # \{(span_id="` + found[0].ID + `"|,|trace_id="` + trace + `"){3}\} `)
	if !exemplar.Match(answer.text) || !strings.HasSuffix(string(answer.text), "# EOF\n") {
		t.Errorf("%s has no exemplar of %s:\n%s", answer.header.Get("Content-Type"), found[0].ID, answer.text)
	}
}

// A job's record has the span of its submission, and no answer shows it.
func TestSubmit_WithinATrace(t *testing.T) {
	t.Parallel()
	var c spantest.Collector
	tracer := c.StartTracer(t, nil)
	w, off := setup(t, func(cfg *Config) { cfg.Tracer = tracer }), setup(t)
	const trace = "0af7651916cd43dd8448eb211c80319c"
	record := func(w *world, headers ...string) string {
		t.Helper()
		id, _ := w.do("POST", "/v1/batch-inference", `{"model":"llama-3.1-8b","inputs":["a"]}`, headers...).want(200).json()["results"].(string)
		rec, err := w.store.Get(t.Context(), id)
		must.Succeed(t, err)
		return rec.Trace
	}
	sampled, refused := "00-"+trace+"-b7ad6b7169203331-01", "00-"+trace+"-b7ad6b7169203331-00"
	if got := record(w, "Traceparent", refused); got != refused {
		t.Errorf("of a trace that is not sampled the record has %q", got)
	}
	if got := record(w); got != "" {
		t.Errorf("of no trace the record has %q", got)
	}
	if got := record(off, "Traceparent", sampled); got != "" {
		t.Errorf("where nothing is traced the record has %q", got)
	}
	got := record(w, "Traceparent", sampled)
	tracer.Close(t.Context())
	if spans := c.Spans(); len(spans) != 1 || got != "00-"+trace+"-"+spans[0].ID+"-01" || spans[0].Name != "POST /v1/batch-inference" {
		t.Errorf("the record has %q of %+v", got, spans)
	}
}

func TestMetrics_404WithoutGatherer(t *testing.T) {
	t.Parallel()
	setup(t, func(c *Config) { c.Gatherer = nil }).get("/metrics", bare...).wantError(404, "not_found", "not served")
}

// Load balancers send HEAD.
func TestProbesTakeHEAD(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, path := range []string{"/livez", "/readyz"} {
		if got := w.do("HEAD", path, "", bare...).want(200); len(got.text) != 0 {
			t.Errorf("HEAD %s has the body %q", path, got.text)
		}
	}
}
