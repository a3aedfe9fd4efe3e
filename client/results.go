package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
)

// Results selects the form of a job's results.
type Results struct {
	Format   string // parquet, csv (a ZIP with one CSV file), json or jsonl
	Inputs   bool   // include the inputs
	Logprobs bool   // include the cumulative log probabilities
	Unpack   bool   // include the properties of the answers as columns; only for a job whose JSON Schema has properties
	Meta     bool   // include columns about the run of each row: tokens, server, attempts, error
	Columns  string // columns that the job keeps of its input: names separated by commas, or rowmill.KeepAll; empty: none

	// Partial fetches the results of a job that has not succeeded: one row for each input
	// row, with null where there is no output. For a succeeded job it fetches the
	// results.
	Partial bool
}

// queryParams returns the parameters of a request for results in this form.
func (r Results) queryParams() url.Values {
	query := url.Values{"format": {r.Format}}
	for name, wanted := range map[string]bool{"include_inputs": r.Inputs, "include_cumulative_logprobs": r.Logprobs, "partial": r.Partial, "unpack": r.Unpack} {
		if wanted {
			query.Set(name, "true")
		}
	}
	if r.Meta {
		query.Set("include", "meta")
	}
	if r.Columns != "" {
		query.Set("columns", r.Columns)
	}
	return query
}

// codeJobNotOver is the error code of the service if a request needs an ended job and
// the job has not ended.
const codeJobNotOver = "job_not_over"

// Stream writes a job's results to w while they arrive, and returns their size in
// bytes. A broken transfer cannot be resumed.
func (c *Client) Stream(ctx context.Context, id string, want Results, w io.Writer) (int64, error) {
	return c.streamAnswer(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(id)+"/results", want.queryParams(), w)
}

// SaveJoint writes the results of two to four jobs on one input to the Parquet file path, and returns
// its size in bytes. The file appears only when it is complete.
func (c *Client) SaveJoint(ctx context.Context, ids []string, path string) (int64, error) {
	return saveStream(path, func(part io.Writer) (int64, error) {
		return c.streamAnswer(ctx, http.MethodGet, "/v1/jobs/compare/results", url.Values{"jobs": {strings.Join(ids, ",")}}, part)
	})
}

// saveStream makes the file path from the bytes that stream writes. It returns the result of
// stream. The file appears only when it is complete.
func saveStream(path string, stream func(part io.Writer) (size int64, err error)) (int64, error) {
	part, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part")
	if err != nil {
		return 0, fmt.Errorf("save the results: %w", err)
	}
	defer os.Remove(part.Name())
	defer part.Close()
	size, err := stream(part)
	if err != nil {
		return 0, err
	}
	return size, publishPart(part, path)
}

// streamAnswer sends a request and copies the answer to w.
func (c *Client) streamAnswer(ctx context.Context, method, path string, query url.Values, w io.Writer) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := c.newRequest(ctx, method, path, query, nil)
	if err != nil {
		return 0, err
	}
	resp, err := c.sendRequest(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return c.copyBody(ctx, cancel, w, resp.Body, nil)
}

// Save writes a job's results to the file path. The file appears only when it is complete.
// Save downloads Parquet from a signed URL, unless want names single columns, and keeps the bytes in a file with a name that ends
// in .part: if the transfer breaks, Save or a later call of Save resumes it. Partial
// results of a running job have no URL, so Save streams them. progress may be nil; its
// total is -1 while the size is unknown.
func (c *Client) Save(ctx context.Context, id string, want Results, path string, progress func(done, total int64)) (int64, error) {
	if progress == nil {
		progress = func(int64, int64) {}
	}
	if want.Format == "parquet" && (want.Columns == "" || want.Columns == rowmill.KeepAll) {
		t := &resultDownload{client: c, id: id, want: want, path: path, progress: progress}
		size, err := t.download(ctx)
		var refusal *APIError
		if !want.Partial || !errors.As(err, &refusal) || refusal.Code != codeJobNotOver {
			return size, err
		}
	}
	return saveStream(path, func(part io.Writer) (int64, error) {
		return c.Stream(ctx, id, want, progressWriter{part, func(n int64) { progress(n, -1) }, new(int64)})
	})
}

// copyBody copies a response body to w, and cancels the request if no byte arrives for
// StallTimeout. It calls onProgress, if not nil, with the number of bytes copied so far. An
// error of the network is an *UnreachableError; an error of w is wrapped.
func (c *Client) copyBody(ctx context.Context, cancel context.CancelCauseFunc, w io.Writer, body io.Reader, onProgress func(int64)) (int64, error) {
	stalled := time.AfterFunc(c.cfg.StallTimeout, func() {
		cancel(&UnreachableError{Server: c.base, Err: fmt.Errorf("no data was received for %v", c.cfg.StallTimeout)})
	})
	defer stalled.Stop()
	var done int64
	buffer := make([]byte, 256<<10)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			stalled.Reset(c.cfg.StallTimeout)
			if _, werr := w.Write(buffer[:n]); werr != nil {
				return done, fmt.Errorf("write the received data: %w", werr)
			}
			done += int64(n)
			if onProgress != nil {
				onProgress(done)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return done, nil
		case err != nil:
			return done, c.wrapSendError(ctx, err)
		}
	}
}

// publishPart flushes a complete .part file to the disk and renames the file to path.
func publishPart(part *os.File, path string) error {
	err := errors.Join(part.Chmod(0o644), part.Sync(), part.Close())
	if err == nil {
		err = os.Rename(part.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("save the results: %w", err)
	}
	return nil
}

// progressWriter is a writer that passes data on to w, and calls tick with the number of bytes
// written so far.
type progressWriter struct {
	w    io.Writer
	tick func(int64)
	done *int64
}

func (c progressWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	*c.done += int64(n)
	c.tick(*c.done)
	return n, err
}
