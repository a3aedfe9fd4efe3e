package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Dialect is the API by which a trial sends rows and reads results. The zero value is
// Rowmill's own API.
type Dialect string

// The dialects of batches.
const (
	OpenAI    Dialect = "openai"
	Anthropic Dialect = "anthropic"
)

// jobOf returns the job id of a batch.
func jobOf(batch string) string {
	d := batch[strings.LastIndexByte(batch, '_')+1:]
	return "job-" + strings.Join([]string{d[:8], d[8:12], d[12:16], d[16:20], d[20:]}, "-")
}

// path returns the path of the batch of a job.
func (d Dialect) path(job string) string {
	digits := strings.ReplaceAll(strings.TrimPrefix(job, "job-"), "-", "")
	if d == Anthropic {
		return "/v1/messages/batches/msgbatch_" + digits
	}
	return "/v1/batches/batch_" + digits
}

// asked returns the body of the request of a row.
func asked(text string) map[string]any {
	return map[string]any{"model": model, "max_tokens": maxTokens, "messages": []map[string]string{{"role": "user", "content": text}}}
}

// batch creates a batch. The custom_id of a row is its number.
func (c *Cluster) batch(ctx context.Context, d Dialect, rows []string) (job string, err error) {
	var made struct {
		ID string `json:"id"`
	}
	if d == Anthropic {
		requests := make([]map[string]any, len(rows))
		for i, text := range rows {
			requests[i] = map[string]any{"custom_id": strconv.Itoa(i), "params": asked(text)}
		}
		if err := c.call(ctx, http.MethodPost, "/v1/messages/batches", nil, map[string]any{"requests": requests}, &made); err != nil {
			return "", err
		}
		return jobOf(made.ID), nil
	}
	var form bytes.Buffer
	fields := multipart.NewWriter(&form)
	file, err := fields.CreateFormFile("file", "rows.jsonl")
	if err != nil {
		return "", err
	}
	lines := json.NewEncoder(file)
	for i, text := range rows {
		line := map[string]any{"custom_id": strconv.Itoa(i), "method": "POST", "url": "/v1/chat/completions", "body": asked(text)}
		if err := lines.Encode(line); err != nil {
			return "", err
		}
	}
	if err := errors.Join(fields.WriteField("purpose", "batch"), fields.Close()); err != nil {
		return "", err
	}
	if err := c.callBytes(ctx, http.MethodPost, "/v1/files", http.Header{"Content-Type": {fields.FormDataContentType()}}, form.Bytes(), &made); err != nil {
		return "", err
	}
	body := map[string]any{"input_file_id": made.ID, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
	if err := c.call(ctx, http.MethodPost, "/v1/batches", nil, body, &made); err != nil {
		return "", err
	}
	return jobOf(made.ID), nil
}

// batchResults reads the results of a batch from its files, by the custom_ids of the lines.
func (c *Cluster) batchResults(ctx context.Context, d Dialect, job string, rows []string) (r Results, err error) {
	var where string
	err = await(ctx, "the files of the batch", patience, func(ctx context.Context) error {
		var b struct {
			Status, Ended string
			Output        *string `json:"output_file_id"`
			Results       *string `json:"results_url"`
		}
		if err := c.call(ctx, http.MethodGet, d.path(job), nil, nil, &b); err != nil {
			return err
		}
		switch {
		case b.Output != nil:
			where = "/v1/files/" + *b.Output + "/content"
		case b.Results != nil:
			where = *b.Results
		default:
			return errors.New("they are not made")
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	var text []byte
	err = await(ctx, "an answer", patience, func(ctx context.Context) (err error) {
		text, err = c.callText(ctx, where)
		return err
	})
	if err != nil {
		return r, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			ID       string `json:"custom_id"`
			Response struct {
				Body struct {
					Choices []struct{ Message struct{ Content string } }
				}
			}
			Result struct {
				Message struct {
					Content []struct{ Text string }
				}
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return r, fmt.Errorf("line %d: %w", len(r.Outputs)+1, err)
		}
		n, err := strconv.Atoi(line.ID)
		if err != nil || n < 0 || n >= len(rows) {
			return r, fmt.Errorf("line %d is of %q", len(r.Outputs)+1, line.ID)
		}
		var output *string
		switch {
		case len(line.Response.Body.Choices) == 1:
			output = &line.Response.Body.Choices[0].Message.Content
		case len(line.Result.Message.Content) == 1:
			output = &line.Result.Message.Content[0].Text
		}
		r.Inputs, r.Outputs = append(r.Inputs, rows[n]), append(r.Outputs, output)
	}
	return r, lines.Err()
}

// killAnswering kills a node while it and others create requested results.
func killAnswering(ctx context.Context, t *Trial) error {
	if err := t.succeeded(ctx); err != nil {
		return err
	}
	path := "/v1/jobs/" + t.Job + "/results-url?format=parquet"
	if t.dialect != "" {
		path = t.dialect.path(t.Job)
	}
	n := t.nodes()[t.random.IntN(len(t.config.Roles))]
	asked, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { _, _ = t.client.get(asked, n.API+path) }() // is cut off
	time.Sleep(t.between(time.Millisecond, 50*time.Millisecond))
	strike := t.hit(ctx, "kill", n)
	n.kill()
	t.struck(strike)
	time.Sleep(t.between(shortest, longest))
	return t.begin(ctx, n)
}
