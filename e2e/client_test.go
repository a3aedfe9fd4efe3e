package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/rowmill/rowmill/internal/wait"
)

// submission is the body of POST /v1/batch-inference.
type submission struct {
	Inputs   any             `json:"inputs"`
	Model    string          `json:"model"`
	Column   string          `json:"column_name,omitempty"`
	IDColumn string          `json:"id_column_name,omitempty"`
	Priority int             `json:"job_priority"`
	Schema   json.RawMessage `json:"json_schema,omitempty"`
	Sampling map[string]any  `json:"sampling_params,omitempty"`
	Dedup    bool            `json:"dedup,omitempty"`
}

// record holds the fields of a job that tests read.
type record struct {
	ID            string  `json:"job_id"`
	Status        string  `json:"status"`
	NumRows       *int64  `json:"num_rows"`
	RowsDone      int64   `json:"rows_done"`
	FailedRows    int64   `json:"failed_rows"`
	InputTokens   int64   `json:"input_tokens"`
	OutputTokens  int64   `json:"output_tokens"`
	Cost          float64 `json:"job_cost"`
	Completed     *string `json:"datetime_completed"`
	Message       string  `json:"message"`
	TakenOver     int64   `json:"rows_taken_over"`
	Deduplicated  int64   `json:"deduplicated_rows"`
	Continues     *string `json:"continues"`
	ContinuedBy   *string `json:"continued_by"`
	ParkedUntil   *string `json:"parked_until"`
	FailureReason *struct {
		Message string `json:"message"`
		Code    string `json:"code"`
	} `json:"failure_reason"`
}

func (r record) over() bool {
	return r.Status == "succeeded" || r.Status == "failed" || r.Status == "cancelled"
}

// send sends a request and returns status and body. err is a broken connection, which
// tests that kill the node expect.
func (n *node) send(method, path string, body any) (int, []byte, error) {
	return n.sendAs(apiKey, method, path, body)
}

// sendAs is send with another key.
func (n *node) sendAs(key, method, path string, body any) (int, []byte, error) {
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		reader = bytes.NewReader(data)
	}
	request, err := http.NewRequest(method, n.base+path, reader)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Key "+key)
	request.Header.Set("Content-Type", "application/json")
	response, err := n.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, data, err
}

// call sends a request that must succeed and decodes the answer.
func (n *node) call(t *testing.T, method, path string, body, out any) {
	t.Helper()
	status, data, err := n.send(method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if status != http.StatusOK {
		t.Fatalf("%s %s answers %d: %.500s", method, path, status, data)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatalf("%s %s answers %.500s: %v", method, path, data, err)
	}
}

func (n *node) submit(t *testing.T, s submission) string {
	t.Helper()
	var created struct {
		Results string `json:"results"`
	}
	n.call(t, http.MethodPost, "/v1/batch-inference", s, &created)
	return created.Results
}

func (n *node) job(t *testing.T, id string) record {
	t.Helper()
	var answer struct {
		Job record `json:"job"`
	}
	n.call(t, http.MethodGet, "/v1/jobs/"+id, nil, &answer)
	return answer.Job
}

// until requests a job's record until reached returns true.
func (n *node) until(t *testing.T, id, what string, reached func(record) bool) record {
	t.Helper()
	var job record
	wait.Until(t, func() error {
		if job = n.job(t, id); reached(job) {
			return nil
		}
		err := fmt.Errorf("job %s is not %s: %+v (%+v)", id, what, job, job.FailureReason)
		if job.over() {
			t.Fatal(err)
		}
		return err
	})
	return job
}

// finish waits until a job has ended.
func (n *node) finish(t *testing.T, id string) record {
	t.Helper()
	return n.until(t, id, "over", record.over)
}

// succeeds waits until a job has ended, which must succeed.
func (n *node) succeeds(t *testing.T, id string) record {
	t.Helper()
	job := n.finish(t, id)
	if job.Status != "succeeded" {
		t.Fatalf("%+v (%+v)", job, job.FailureReason)
	}
	return job
}

// succeedsWith is succeeds for a job whose rows must all succeed.
func (n *node) succeedsWith(t *testing.T, id string, rows int) record {
	t.Helper()
	job := n.succeeds(t, id)
	if job.RowsDone != int64(rows) || job.FailedRows != 0 {
		t.Fatalf("%+v", job)
	}
	return job
}

// results fetches a job's outputs and inputs as JSON.
func (n *node) results(t *testing.T, id string) (outputs []*string, inputs []string) {
	t.Helper()
	var result struct {
		Outputs []*string `json:"outputs"`
		Inputs  []string  `json:"inputs"`
	}
	n.call(t, http.MethodGet, "/v1/jobs/"+id+"/results?include_inputs=true", nil, &result)
	return result.Outputs, result.Inputs
}

// checkRows fails unless the job has exactly one output per row, in order.
func (n *node) checkRows(t *testing.T, id string, rows int) {
	t.Helper()
	outputs, inputs := n.results(t, id)
	if len(outputs) != rows || len(inputs) != rows {
		t.Fatalf("job %s has %d outputs and %d inputs, want %d", id, len(outputs), len(inputs), rows)
	}
	for i := range rows {
		if inputs[i] != rowText(i) {
			t.Fatalf("job %s: input %d is %q", id, i, inputs[i])
		}
		if outputs[i] == nil || *outputs[i] != answerText(i) {
			t.Fatalf("job %s: output %d is %v, want %q", id, i, show(outputs[i]), answerText(i))
		}
	}
}

func show(s *string) string {
	if s == nil {
		return "null"
	}
	return fmt.Sprintf("%q", *s)
}
