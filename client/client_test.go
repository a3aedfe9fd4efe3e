package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/retry"
)

// serve starts a service with a handler, and returns a client for it.
func serve(t *testing.T, handler http.HandlerFunc) (*Client, *httptest.Server) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c := must.Get(New(Config{Server: server.URL + "/", Key: "k", Retry: retry.Policy{First: time.Millisecond, Most: time.Second, Tries: 3}}))(t)
	t.Cleanup(c.Close)
	return c, server
}

func TestSubmit_SendsOnlySetFields(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object"}`
	for _, test := range []struct {
		name string
		sub  Submission
		want string
	}{
		{"url", Submission{URL: "https://example.org/a.csv?sig=x&y=<1>"}, `{"inputs":"https://example.org/a.csv?sig=x&y=<1>","job_priority":0}`},
		{"rows", Submission{Rows: RowsOf("a", "b\n\"c\"\\\r\t\x00\x1f é\u2028")}, `{"inputs":["a","b\n\"c\"\\\r\t\u0000\u001f é\u2028"],"job_priority":0}`},
		{"no rows", Submission{Rows: RowsOf()}, `{"inputs":[],"job_priority":0}`},
		{"all", Submission{
			URL: "u", Column: "c", IDColumn: "i", Model: "m", System: "s", Schema: json.RawMessage(schema),
			Sampling: map[string]any{"top_p": 0.5}, Priority: 1, RowRules: RowRules{SeedPerRow: true, NoTruncate: true, Repair: true, Dedup: new(bool)}, Estimate: true,
			Name: "n", Description: "d",
		}, `{"inputs":"u","column_name":"c","id_column_name":"i","model":"m","system_prompt":"s","json_schema":{"type":"object"},
			"sampling_params":{"top_p":0.5},"job_priority":1,"random_seed_per_input":true,"dedup":false,"truncate_rows":false,"cost_estimate":true,"repair":true,
			"name":"n","description":"d"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				var got, want any
				if err := json.Unmarshal(body, &got); err != nil {
					t.Errorf("%v in %s", err, body)
				}
				if err := json.Unmarshal([]byte(test.want), &want); err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
				if r.Header.Get("Authorization") != "Key k" || r.Header.Get("Content-Type") != "application/json" {
					t.Error(r.Header)
				}
				io.WriteString(w, `{"metadata":{"job_id":"job-1","message":"made"},"results":"job-1","warnings":["w"]}`)
			})
			got := must.Get(c.Submit(t.Context(), test.sub))(t)
			if diff := cmp.Diff(Submitted{JobID: "job-1", Metadata: Submitted_Metadata{JobID: "job-1", Message: "made"}, Warnings: []string{"w"}}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The body is streamed: a refusal before the end of the body stops the rows.
func TestSubmit_RefusalStopsRows(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, `{"message":"unknown key","code":"unauthorized","request_id":"r1"}`)
	})
	sent := 0
	_, err := c.Submit(t.Context(), Submission{Rows: func(yield func(string, error) bool) {
		for yield(strings.Repeat("x", 1<<20), nil) {
			sent++
			if sent > 64 {
				t.Error("rows were sent after the refusal")
				return
			}
		}
	}})
	if !Unauthorized(err) {
		t.Errorf("error %v", err)
	}
	if want := "unknown key (HTTP 401, unauthorized, request r1)"; err == nil || err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
}

func TestSubmit_BrokenRows(t *testing.T) {
	t.Parallel()
	broken := errors.New("line 7: unclosed quote")
	for name, seq := range map[string]iter.Seq2[string, error]{
		"line 7": func(yield func(string, error) bool) { _ = yield("a", nil) && yield("", broken) },
		"row 1 ": RowsOf("a", "\xff"),
	} {
		c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err == nil {
				t.Error("the service saw a complete body")
			}
		})
		_, err := c.Submit(t.Context(), Submission{Rows: seq})
		var fault *RowsError
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestAPIError(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status    int
		body      string
		want      string
		is        error
		temporary bool
		key       bool
	}{
		{404, `{"message":"no job"}`, "no job (HTTP 404)", rowmill.ErrNotFound, false, false},
		{409, `{"message":"is running","status":"running"}`, "is running (HTTP 409)", rowmill.ErrConflict, false, false},
		{410, `{"message":"gone"}`, "gone (HTTP 410)", rowmill.ErrExpired, false, false},
		{403, `{"message":"no","code":"forbidden"}`, "no (HTTP 403, forbidden)", nil, false, true},
		{
			400, `{"message":"bad","code":"invalid_request","errors":[{"field":"name","message":"too long"}]}`,
			"bad\n  name: too long (HTTP 400, invalid_request)", nil, false, false,
		},
		{503, `<html>`, "the server answered 503 Service Unavailable (HTTP 503)", nil, true, false},
		{429, `{"message":"slow down"}`, "slow down (HTTP 429)", nil, true, false},
		{501, `{"message":"not here"}`, "not here (HTTP 501)", nil, false, false},
		{301, ``, "the server answered 301 Moved Permanently (HTTP 301)", nil, false, false},
	} {
		c, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://elsewhere.example")
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(test.status)
			io.WriteString(w, test.body)
		})
		_, err := c.Job(t.Context(), "job-1")
		var refusal *APIError
		if !errors.As(err, &refusal) || err.Error() != test.want || refusal.RetryAfter != 3*time.Second {
			t.Errorf("%d: error %v", test.status, err)
		}
		if test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%d: %v does not match %v", test.status, err, test.is)
		}
		if Temporary(err) != test.temporary || Unauthorized(err) != test.key {
			t.Errorf("%d: temporary %v, unauthorized %v", test.status, Temporary(err), Unauthorized(err))
		}
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	c, server := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>hello</html>") })
	var unreachable *UnreachableError
	if _, err := c.Job(t.Context(), "job-1"); !errors.As(err, &unreachable) || !strings.Contains(err.Error(), "not come from a Rowmill service") {
		t.Errorf("a web page: %v", err)
	}
	other, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"nodes":"none"}`) })
	if _, _, err := other.ListNodes(t.Context()); !errors.As(err, &unreachable) || !strings.Contains(err.Error(), "GET /v1/nodes") {
		t.Errorf("JSON of another form: %v", err)
	}
	server.Close()
	if _, err := c.Job(t.Context(), "job-1"); !errors.As(err, &unreachable) || !Temporary(err) {
		t.Errorf("connection refused: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("interrupted")
	cancel(reason)
	if _, err := c.Job(ctx, "job-1"); !errors.Is(err, reason) {
		t.Errorf("cancelled: %v", err)
	}
}

// A request to a service that never answers ends after Config.Timeout.
func TestTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Config{Server: "http://silent.example"})
		must.Succeed(t, err)
		c.http.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		start := time.Now()
		_, err = c.Job(t.Context(), "job-1")
		var unreachable *UnreachableError
		if !errors.As(err, &unreachable) || time.Since(start) != time.Minute {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestJob_KeepsRaw(t *testing.T) {
	t.Parallel()
	const record = `{"job_id":"job-1","status":"RUNNING","num_rows":12345678901234567,"new_field":1.50}`
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, `{"job":%s}`, record) })
	job := must.Get(c.Job(t.Context(), "job-1"))(t)
	if string(job.Raw) != record || job.Status != rowmill.StatusRunning || *job.NumRows != 12345678901234567 {
		t.Errorf("%s, status %q", job.Raw, job.Status)
	}
}

func TestStatus_BothDialects(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"message":"m","job_status":"running","metadata":{}}`, `{"job_status":{"job-1":"RUNNING"}}`} {
		c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, body) })
		s, err := c.Status(t.Context(), "job-1")
		if err != nil || s.Status != rowmill.StatusRunning || string(s.Raw) != body {
			t.Errorf("%s: %+v, error %v", body, s, err)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{{}, {Server: "localhost:8088"}, {Server: "ftp://a"}, {Server: "http://a", Key: "Key abc"}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

// A change of quotas carries the version that it replaces, and null for no limit.
func TestPutQuotas_SendsETag(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RequestURI() != "/v1/quotas?account=a+b" {
			t.Errorf("asked for %s", r.URL.RequestURI())
		}
		if body, err := io.ReadAll(r.Body); r.Method == http.MethodPut {
			if want := `{"cost_quota_usd":null,"quotas":[{"priority":1,"row_quota":5}]}`; string(body) != want || r.Header.Get("If-Match") != `"3"` {
				t.Errorf("sent %s with tag %s, %v", body, r.Header.Get("If-Match"), err)
			}
		}
		w.Header().Set("ETag", `"3"`)
		io.WriteString(w, `{"account":"a b","quotas":[{"priority":1,"row_quota":5,"token_quota":6}],"cost_quota_usd":null,"own":{"quotas":[{"priority":1,"row_quota":5}],"cost_quota_usd":null},"new":1}`)
	})
	q, answer, err := c.ShowQuotas(t.Context(), "a b")
	if err != nil || answer.ETag != `"3"` || q.Quotas[0].TokenQuota != 6 || !strings.Contains(string(answer.Raw), `"new":1`) {
		t.Errorf("quotas %+v, %v", q, err)
	}
	if again, _, err := c.PutQuotas(t.Context(), PutQuotasParams{Account: "a b", IfMatch: answer.ETag}, q.Own); err != nil || again.Account != "a b" {
		t.Errorf("quotas %+v, %v", again, err)
	}
}
