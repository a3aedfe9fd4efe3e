package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// requestTimeout limits one request: a stopped node does not answer.
const requestTimeout = 15 * time.Second

// client calls nodes like a program of a user.
type client struct{ http *http.Client }

func newClient() *client {
	return &client{&http.Client{Timeout: requestTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 4}}}
}

// A refusal is an answer other than 200.
type refusal struct {
	status int
	body   string
}

func (r *refusal) Error() string { return fmt.Sprintf("answer %d: %.300s", r.status, r.body) }

// send sends one request to one node.
func (c *client) send(ctx context.Context, method, url string, header http.Header, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Key "+adminKey)
	for name, values := range header {
		request.Header[name] = values
	}
	return c.answer(request)
}

// answer sends a request and returns the body, or an error unless the status is 200.
func (c *client) answer(request *http.Request) ([]byte, error) {
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = &refusal{response.StatusCode, string(data)}
	}
	return data, err
}

func (c *client) get(ctx context.Context, url string) ([]byte, error) {
	return c.send(ctx, http.MethodGet, url, nil, nil)
}

// download fetches a signed URL, without a key.
func (c *client) download(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return c.answer(request)
}

// probe returns nil if the status is 200.
func (c *client) probe(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := c.get(ctx, url)
	return err
}

// setFaults sets the faults of a simulator, as JSON.
func (c *client) setFaults(ctx context.Context, url, faults string) error {
	_, err := c.send(ctx, http.MethodPost, url+"/sim/faults", http.Header{"Content-Type": {"application/json"}}, []byte(faults))
	return err
}

// elsewhere reports whether a client tries the next node: no process listens at this one, or
// the node drains.
func elsewhere(err error) bool {
	var r *refusal
	return errors.Is(err, syscall.ECONNREFUSED) ||
		errors.As(err, &r) && r.status == http.StatusServiceUnavailable && strings.Contains(r.body, `"draining"`)
}

// call sends a request to an API node, or to the next one if that is down, and decodes the
// answer into out unless out is nil.
func (c *Cluster) call(ctx context.Context, method, path string, header http.Header, body, out any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	return c.callBytes(ctx, method, path, header, data, out)
}

// callText is call for an answer without JSON.
func (c *Cluster) callText(ctx context.Context, path string) (text []byte, err error) {
	return text, c.anyone(func(n *Node) (err error) {
		text, err = c.client.get(ctx, n.API+path)
		return err
	})
}

// callBytes is call with the bytes of a body.
func (c *Cluster) callBytes(ctx context.Context, method, path string, header http.Header, data []byte, out any) error {
	return c.anyone(func(n *Node) error {
		answer, err := c.client.send(ctx, method, n.API+path, header, data)
		if err == nil && out != nil {
			err = json.Unmarshal(answer, out)
		}
		if err != nil {
			err = fmt.Errorf("%s %s at %s: %w", method, path, n.Name, err)
		}
		return err
	})
}

// anyone calls ask with the API nodes that are up, in random order, until one answers.
func (c *Cluster) anyone(ask func(*Node) error) error {
	nodes := c.nodes()
	rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	err := errors.New("no node is up")
	for _, n := range nodes {
		if !n.Owns || !n.up() {
			continue
		}
		from := time.Now()
		if err = c.requests.note(n, from, ask(n)); !elsewhere(err) {
			break
		}
	}
	return err
}

// insist repeats a call until it has an answer: during a fault, a client must expect
// errors.
func (c *Cluster) insist(ctx context.Context, method, path string, body, out any) error {
	return await(ctx, "an answer", patience, func(ctx context.Context) error {
		return c.call(ctx, method, path, nil, body, out)
	})
}

// submit submits a job with an idempotency key, so that the HTTP client may repeat a lost
// request. inputs are the rows, or their URL.
func (c *Cluster) submit(ctx context.Context, key string, inputs any) (id string, err error) {
	return c.submitWith(ctx, key, inputs, nil)
}

// submitWith is submit with more fields of the submission.
func (c *Cluster) submitWith(ctx context.Context, key string, inputs any, more map[string]any) (id string, err error) {
	var created struct {
		Results string `json:"results"`
	}
	body := map[string]any{
		"inputs": inputs, "model": model, "job_priority": 1, "sampling_params": map[string]any{"max_tokens": maxTokens},
	}
	if _, download := inputs.(string); download {
		body["column_name"] = "text"
	}
	maps.Copy(body, more)
	err = c.call(ctx, http.MethodPost, "/v1/batch-inference", http.Header{"Idempotency-Key": {key}}, body, &created)
	return created.Results, err
}

// A Record is the record of a job in the API.
type Record struct {
	Status       string   `json:"status"`
	NumRows      *int64   `json:"num_rows"`
	RowsDone     int64    `json:"rows_done"`
	FailedRows   int64    `json:"failed_rows"`
	InputTokens  int64    `json:"input_tokens"`
	OutputTokens int64    `json:"output_tokens"`
	Cost         *float64 `json:"job_cost"`
	Completed    *string  `json:"datetime_completed"`
	Failure      *struct {
		Message string `json:"message"`
		Code    string `json:"code"`
	} `json:"failure_reason"`
}

func (r Record) over() bool {
	return r.Status == "succeeded" || r.Status == "failed" || r.Status == "cancelled"
}

func (c *Cluster) record(ctx context.Context, id string) (Record, error) {
	var answer struct {
		Job Record `json:"job"`
	}
	err := c.call(ctx, http.MethodGet, "/v1/jobs/"+id, nil, nil, &answer)
	return answer.Job, err
}

// Results are the outputs and inputs of a job, in order.
type Results struct {
	Outputs []*string `json:"outputs"`
	Inputs  []string  `json:"inputs"`
}

func (c *Cluster) results(ctx context.Context, id string) (Results, error) {
	var r Results
	err := c.insist(ctx, http.MethodGet, "/v1/jobs/"+id+"/results?include_inputs=true", nil, &r)
	return r, err
}

// A Ledger is the total of GET /v1/usage.
type Ledger struct {
	Rows         int64 `json:"rows"`
	FailedRows   int64 `json:"failed_rows"`
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
}

// charge adds rows with these answers.
func (l *Ledger) charge(answers []Answer) {
	for _, a := range answers {
		l.Rows++
		l.InputTokens += a.Input
		l.OutputTokens += a.Output
	}
}

func (c *Cluster) ledger(ctx context.Context) (Ledger, error) {
	var answer struct {
		Total Ledger `json:"total"`
	}
	// The range includes the days of nodes with a wrong clock, and midnight.
	day := func(offset int) string { return time.Now().UTC().AddDate(0, 0, offset).Format(time.DateOnly) }
	err := c.insist(ctx, http.MethodGet, "/v1/usage?from="+day(-1)+"&to="+day(1), nil, &answer)
	return answer.Total, err
}
