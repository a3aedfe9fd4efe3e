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
	"strconv"
	"time"
)

// Results says which form of a job's results is wanted.
type Results struct {
	Format   string // parquet, csv (a ZIP holding one) or json
	Inputs   bool   // with the inputs
	Logprobs bool   // with the cumulative log probabilities

	// Partial takes what is committed of a job that has not succeeded: one row
	// for each row of the input, those without an output null. Of a success it
	// is the results.
	Partial bool
}

func (r Results) query() url.Values {
	query := url.Values{
		"format":                      {r.Format},
		"include_inputs":              {strconv.FormatBool(r.Inputs)},
		"include_cumulative_logprobs": {strconv.FormatBool(r.Logprobs)},
	}
	if r.Partial {
		query.Set("partial", "true")
	}
	return query
}

// codeJobNotOver refuses what needs the end of a job.
const codeJobNotOver = "job_not_over"

// Stream writes a job's results to w as they come and returns their size. It
// cannot be taken up again.
func (c *Client) Stream(ctx context.Context, id string, want Results, w io.Writer) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := c.request(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(id)+"/results", want.query(), nil)
	if err != nil {
		return 0, err
	}
	resp, err := c.do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return c.copy(ctx, cancel, w, resp.Body, nil)
}

// Save writes a job's results to the file path, which appears only once it is
// complete. Parquet comes from a signed URL: a broken transfer goes on where
// it stopped, also in a later run, from the file that ends in .part. Partial
// results of a job that still runs have no URL and come as they are. progress
// may be nil; total is -1 while it is not known.
func (c *Client) Save(ctx context.Context, id string, want Results, path string, progress func(done, total int64)) (int64, error) {
	if progress == nil {
		progress = func(int64, int64) {}
	}
	if want.Format == "parquet" {
		t := &transfer{client: c, id: id, want: want, path: path, progress: progress}
		size, err := t.run(ctx)
		var refusal *APIError
		if !want.Partial || !errors.As(err, &refusal) || refusal.Code != codeJobNotOver {
			return size, err
		}
	}
	part, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part")
	if err != nil {
		return 0, fmt.Errorf("save the results: %w", err)
	}
	defer os.Remove(part.Name())
	defer part.Close()
	size, err := c.Stream(ctx, id, want, counter{part, func(n int64) { progress(n, -1) }, new(int64)})
	if err != nil {
		return 0, err
	}
	return size, finish(part, path)
}

// copy copies a body and ends the request when it stalls. An error of the
// network is an *UnreachableError; one of the writer is as it comes.
func (c *Client) copy(ctx context.Context, cancel context.CancelCauseFunc, w io.Writer, body io.Reader, tick func(int64)) (int64, error) {
	stalled := time.AfterFunc(c.cfg.StallTimeout, func() {
		cancel(&UnreachableError{Server: c.base, Err: fmt.Errorf("the transfer stood still for %v", c.cfg.StallTimeout)})
	})
	defer stalled.Stop()
	var done int64
	buffer := make([]byte, 256<<10)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			stalled.Reset(c.cfg.StallTimeout)
			if _, werr := w.Write(buffer[:n]); werr != nil {
				return done, fmt.Errorf("save the results: %w", werr)
			}
			done += int64(n)
			if tick != nil {
				tick(done)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return done, nil
		case err != nil:
			return done, c.sendError(ctx, err)
		}
	}
}

// finish makes a complete file durable under its final name.
func finish(part *os.File, path string) error {
	if err := part.Chmod(0o644); err != nil {
		return fmt.Errorf("save the results: %w", err)
	}
	if err := part.Sync(); err != nil {
		return fmt.Errorf("save the results: %w", err)
	}
	if err := part.Close(); err != nil {
		return fmt.Errorf("save the results: %w", err)
	}
	if err := os.Rename(part.Name(), path); err != nil {
		return fmt.Errorf("save the results: %w", err)
	}
	return nil
}

// counter is a writer that tells how much it has written.
type counter struct {
	w    io.Writer
	tick func(int64)
	done *int64
}

func (c counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	*c.done += int64(n)
	c.tick(*c.done)
	return n, err
}
