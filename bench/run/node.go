package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// apiKey is the administrator's key of every measured node. Nodes listen on this
// machine only.
const apiKey = "bench-key-0123456789abcdef0123456789abcdef"

// node is a measured Rowmill node.
type node struct {
	*process
	base   string // http://host:port
	key    string // API key of requests
	data   string // data directory
	client *http.Client
}

// startNode starts a node with the data directory data, which is emptied first, and the
// inference server at engine, if not empty, and waits until the node is ready. Quotas
// are above any benchmark. Additional settings are NAME=VALUE.
func startNode(ctx context.Context, binary, data, engine string, further ...string) (*node, error) {
	if err := os.RemoveAll(data); err != nil {
		return nil, fmt.Errorf("remove old data: %w", err)
	}
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(filepath.Dir(data), filepath.Base(data)+".yaml")
	engines := ""
	if engine != "" {
		engines = fmt.Sprintf("engines: [{url: 'http://%s'}]\n", engine)
	}
	settings := fmt.Sprintf("data: %s\nhttp: {listen: %s}\n%slog: {format: json}\n"+
		"quotas:\n- {priority: 0, row_quota: 100000000, token_quota: 1000000000000}\n- {priority: 1, row_quota: 100000000, token_quota: 1000000000000}\n",
		data, address, engines)
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		return nil, fmt.Errorf("write settings: %w", err)
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + data, "ROWMILL_API_KEY=" + apiKey}
	args := []string{"serve", "--config", config}
	for _, setting := range further {
		args = append(args, "--set", setting)
	}
	p, err := startProcess(data+".log", env, binary, args...)
	if err != nil {
		return nil, err
	}
	n := &node{
		process: p, base: "http://" + address, key: apiKey, data: data,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	}
	if err := n.ready(ctx); err != nil {
		n.end()
		return nil, fmt.Errorf("start node: %w (log: %s)", err, n.log)
	}
	return n, nil
}

// onNull starts a null server and a node on it, until end is called.
func (b *bench) onNull(ctx context.Context, args ...string) (n *node, address string, end func(), err error) {
	null, address, err := b.startNull(ctx, args...)
	if err != nil {
		return nil, "", nil, err
	}
	if n, err = startNode(ctx, b.rowmill, filepath.Join(b.dir, "node"), address); err != nil {
		null.end()
		return nil, "", nil, err
	}
	return n, address, func() { n.end(); null.end() }, nil
}

// Ports for servers, below the system's range for outgoing connections, so that no
// connection takes a port before its server starts.
const firstPort, lastPort = 10_000, 32_000

// freeAddress returns an address that is unused for TCP and UDP.
func freeAddress(ctx context.Context) (string, error) {
	var config net.ListenConfig
	for range 100 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(lastPort-firstPort)))
		stream, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			continue
		}
		packets, err := config.ListenPacket(ctx, "udp", address)
		stream.Close()
		if err == nil {
			return address, packets.Close()
		}
	}
	return "", errors.New("find a free port: none of 100 was free for TCP and UDP")
}

// ready waits until the node accepts jobs.
func (n *node) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := n.call(ctx, http.MethodGet, "/readyz", nil, nil)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// call sends a request and decodes the answer into out, unless out is nil.
func (n *node) call(ctx context.Context, method, path string, body, out any) error {
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		reader = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, n.base+path, reader)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	request.Header.Set("Authorization", "Key "+n.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := n.client.Do(request)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %.500s", method, path, response.Status, data)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// submission holds the fields that benchmarks submit.
type submission struct {
	Inputs   any    `json:"inputs"`
	Model    string `json:"model"`
	Column   string `json:"column_name,omitempty"`
	IDColumn string `json:"id_column_name,omitempty"`
	Priority int    `json:"job_priority"`

	Sampling map[string]any `json:"sampling_params,omitempty"`
	Truncate *bool          `json:"truncate_rows,omitempty"`
	Dedup    bool           `json:"dedup,omitempty"`
}

// submit creates a job and returns its id.
func (n *node) submit(ctx context.Context, s submission) (string, error) {
	var created struct {
		Results string `json:"results"`
	}
	if err := n.call(ctx, http.MethodPost, "/v1/batch-inference", s, &created); err != nil {
		return "", err
	}
	return created.Results, nil
}

// cancel cancels a job.
func (n *node) cancel(ctx context.Context, id string) error {
	return n.call(ctx, http.MethodGet, "/v1/job-cancel/"+id, nil, nil)
}

// jobRecord holds the fields of a job that benchmarks read.
type jobRecord struct {
	Status        string          `json:"status"`
	NumRows       *int64          `json:"num_rows"`
	RowsDone      int64           `json:"rows_done"`
	FailedRows    int64           `json:"failed_rows"`
	Deduplicated  int64           `json:"deduplicated_rows"`
	Started       *time.Time      `json:"datetime_started"`
	Completed     *time.Time      `json:"datetime_completed"`
	FailureReason json.RawMessage `json:"failure_reason"`
}

func (n *node) job(ctx context.Context, id string) (jobRecord, error) {
	var answer struct {
		Job jobRecord `json:"job"`
	}
	err := n.call(ctx, http.MethodGet, "/v1/jobs/"+id, nil, &answer)
	return answer.Job, err
}

// wait reads the job every interval until it is over, and returns its record. A job
// that does not succeed completely is an error.
func (n *node) wait(ctx context.Context, id string, interval time.Duration) (jobRecord, error) {
	for {
		job, err := n.job(ctx, id)
		if err != nil {
			return job, err
		}
		switch job.Status {
		case "succeeded":
			if job.FailedRows > 0 {
				return job, fmt.Errorf("job %s has %d failed rows", id, job.FailedRows)
			}
			return job, nil
		case "failed", "cancelled":
			return job, fmt.Errorf("job %s %s: %s", id, job.Status, job.FailureReason)
		}
		select {
		case <-ctx.Done():
			return job, ctx.Err()
		case <-time.After(interval):
		}
	}
}

// resultsURL requests a signed URL for a result, by default with inputs and log
// probabilities.
func (n *node) resultsURL(ctx context.Context, id string, columns ...string) (string, error) {
	if len(columns) == 0 {
		columns = []string{"include_inputs", "include_cumulative_logprobs"}
	}
	var artifact struct {
		URLs struct {
			Get string `json:"get"`
		} `json:"urls"`
	}
	err := n.call(ctx, http.MethodGet, "/v1/jobs/"+id+"/results-url?"+strings.Join(columns, "=true&")+"=true", nil, &artifact)
	return artifact.URLs.Get, err
}

// save downloads a URL, without a key, to path. It returns the size.
func (n *node) save(ctx context.Context, url, path string) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, fmt.Errorf("make request: %w", err)
	}
	response, err := n.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return 0, errors.New(response.Status)
	}
	file, err := os.Create(path)
	if err != nil {
		return 0, fmt.Errorf("create file: %w", err)
	}
	defer file.Close()
	return io.Copy(file, response.Body)
}
