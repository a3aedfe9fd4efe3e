package http

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/http/quotas"
	"github.com/rowmill/rowmill/internal/must"
)

// goClient returns a client of package client with a key of the account default.
func (w *world) goClient() *client.Client {
	w.Helper()
	c, err := client.New(client.Config{Server: w.http.URL, Key: w.keyOf("default", "user")})
	must.Succeed(w, err)
	w.Cleanup(c.Close)
	return c
}

// streamed returns the outputs of a job, read with the client's Stream.
func (w *world) streamed(c *client.Client, id string, partial bool) (outputs []*string, err error) {
	w.Helper()
	var out bytes.Buffer
	if _, err := c.Stream(w.Context(), id, client.Results{Format: "json", Partial: partial}, &out); err != nil {
		return nil, err
	}
	var all struct{ Outputs []*string }
	must.Succeed(w, json.Unmarshal(out.Bytes(), &all))
	return all.Outputs, nil
}

func TestGoClient_PartialResults(t *testing.T) {
	t.Parallel()
	w := setup(t)
	c := w.goClient()
	id := w.ended(rowmill.StatusCancelled)
	var refusal *client.APIError
	if _, err := w.streamed(c, id, false); !errors.As(err, &refusal) || refusal.Code != "job_not_succeeded" {
		t.Errorf("results of a cancelled job: %v", err)
	}
	text := func(s string) *string { return &s }
	outputs, err := w.streamed(c, id, true)
	want := []*string{nil, text("b"), nil, nil, text("e"), text("f"), text("g"), nil, nil, nil}
	if diff := cmp.Diff(want, outputs); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	// Parquet of an ended job comes from a URL. Parquet of a running job is streamed.
	f := w.running(`{"inputs":["a"]}`, 4)
	w.commit(f, w.some(f, 0, 0, 2, "a.parquet", "c"))
	for _, id := range []string{id, f.JobID} {
		path := filepath.Join(t.TempDir(), "some.parquet")
		must.Get(c.Save(t.Context(), id, client.Results{Format: "parquet", Partial: true}, path, nil))(t)
		got, err := os.ReadFile(path)
		if direct := w.get("/v1/jobs/" + id + "/results?partial=true&format=parquet").want(200); err != nil || !bytes.Equal(got, direct.text) {
			t.Errorf("%d bytes were saved, %d are served: %v", len(got), len(direct.text), err)
		}
		if _, err := c.Save(t.Context(), id, client.Results{Format: "parquet"}, path, nil); !errors.As(err, &refusal) || refusal.Code != "job_not_succeeded" {
			t.Errorf("results of a job that has not succeeded: %v", err)
		}
	}
}

// The client decodes the quotas that the service sends, each with its priority.
func TestGoClient_Limits(t *testing.T) {
	t.Parallel()
	limits, _, err := setup(t).goClient().GetQuotas(t.Context())
	var want []client.Quota
	for _, q := range quotas.Defaults() {
		want = append(want, client.Quota(q))
	}
	if err != nil || !slices.Equal(limits.Quotas, want) {
		t.Errorf("the client read %+v, error %v; want %+v", limits, err, want)
	}
}

func TestGoClient_Resume(t *testing.T) {
	t.Parallel()
	w := setup(t)
	c := w.goClient()
	id := w.ended(rowmill.StatusCancelled)
	high := rowmill.Production
	want := client.Resumption{Rows: "failed", JobPriority: &high, Name: "again"}
	once := client.ResumeJobParams{IdempotencyKey: "k"}
	made, _, err := c.ResumeJob(t.Context(), id, once, want)
	must.Succeed(t, err)
	if again, _, err := c.ResumeJob(t.Context(), id, once, want); err != nil || again.JobID != made.JobID {
		t.Errorf("repeated, it is %+v, %v", again, err)
	}
	job, err := c.Job(t.Context(), made.JobID)
	if err != nil || *job.Continues != id || job.Priority != 1 || *job.Name != "again" || !w.record(made.JobID).Spec.Continue.Failed {
		t.Errorf("%+v, %v", job, err)
	}
	old, err := c.Job(t.Context(), id)
	if err != nil || *old.ContinuedBy != made.JobID || old.Status != rowmill.StatusCancelled {
		t.Errorf("%+v, %v", old, err)
	}
	var refusal *client.APIError
	if _, _, err := c.ResumeJob(t.Context(), id, client.ResumeJobParams{}, client.Resumption{}); !errors.As(err, &refusal) || refusal.Code != "already_continued" {
		t.Errorf("another continuation: %v", err)
	}
	again := true
	plain, _, err := c.ResumeJob(t.Context(), id, client.ResumeJobParams{}, client.Resumption{Again: &again})
	if err != nil || plain.JobID == made.JobID || plain.Metadata.Message == "" || w.record(plain.JobID).Spec.Continue.Failed {
		t.Errorf("%+v, %v", plain, err)
	}
	if _, _, err := c.ResumeJob(t.Context(), made.JobID, client.ResumeJobParams{}, client.Resumption{}); !errors.As(err, &refusal) || refusal.Code != "job_not_over" {
		t.Errorf("a job that is not over: %v", err)
	}
	if _, _, err := c.ResumeJob(t.Context(), id, client.ResumeJobParams{}, client.Resumption{Rows: "some"}); !errors.As(err, &refusal) || len(refusal.Fields) != 1 || refusal.Fields[0].Field != "rows" {
		t.Errorf("rows that are none: %v", err)
	}
}

// A file has three parts, and the upload breaks after the first. The client continues the
// upload. Completing it again returns the same answer.
func TestClient_ResumesUploads(t *testing.T) {
	t.Parallel()
	w := setup(t)
	c := w.goClient()
	text := strings.Repeat("0123456789abcde\n", 40<<20/16)
	var saved client.Uploaded
	sent := 0
	upload := client.Upload{Name: "a.csv", Size: int64(len(text)), File: strings.NewReader(text), Save: func(u client.Uploaded) {
		if saved = u; len(u.Parts) > 0 {
			sent++
		}
	}}
	ctx, stop := context.WithCancel(t.Context())
	upload.Progress = func(done, _ int64) {
		if done > 0 {
			stop()
		}
	}
	if _, err := c.Upload(ctx, upload); !errors.Is(err, context.Canceled) || len(saved.Parts) != 1 {
		t.Fatalf("%v after %v", err, saved)
	}
	upload.Progress, upload.From, sent = nil, saved, 0
	file, err := c.Upload(t.Context(), upload)
	if err != nil || sent != 2 {
		t.Fatalf("%d parts, %v", sent, err)
	}
	if got := w.get("/v1/files/" + file + "/content").want(200).text; string(got) != text {
		t.Errorf("%d bytes of another content", len(got))
	}
	upload.From = saved
	if again, err := c.Upload(t.Context(), upload); again != file || err != nil {
		t.Errorf("again: %s, %v", again, err)
	}
	if _, _, err := c.DeleteFile(t.Context(), file); err != nil {
		t.Error(err)
	}
	upload.File, upload.Size, upload.From = strings.NewReader("x"), 1, client.Uploaded{Upload: "upload_" + strings.Repeat("0", 32), Part: 1}
	if _, err := c.Upload(t.Context(), upload); err != nil { // the service does not know this upload
		t.Error(err)
	}
}
