package openai

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/batch"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/store"
)

// paths lists the API paths that the requests of a batch may have.
var paths = []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"}

// Limits of the metadata that a client gives to a batch.
const (
	maxPairs = 16  // pairs of key and value
	maxKey   = 64  // characters
	maxValue = 512 // characters
)

// The default and the largest number of batches on a page of GET /v1/batches.
const (
	defaultBatches = 20
	maxBatches     = 100
)

// windowForm matches a completion_window, such as 24h or 7d.
var windowForm = regexp.MustCompile(`^([1-9][0-9]{0,2})([hd])$`)

// batchRequest is the body of a request that creates a batch.
type batchRequest struct {
	file          string
	endpoint      string
	window        string        // completion_window as the client sent it
	duration      time.Duration // the parsed window
	metadata      map[string]string
	outputSeconds int64 // how long the files of the batch are kept, in seconds; 0: as long as the account's retention
}

// readBatchRequest reads and checks the body of a request that creates a batch.
func (d *Dialect) readBatchRequest(c *gin.Context) (a batchRequest, err error) {
	body, err := d.Exchange.ReadObject(c, exchange.SmallObject) // unknown fields are ignored, as in submissions
	if err != nil {
		return a, err
	}
	if body.Require("input_file_id", "a string", &a.file, "name a file with the purpose batch") && !strings.HasPrefix(a.file, prefixFile) {
		body.AddProblem("input_file_id", "is %q; it must be the id of a file, which begins with %s", textfmt.Shorten(a.file, 64), prefixFile)
	}
	if body.Require("endpoint", "a string", &a.endpoint, fmt.Sprintf("it must be one of %v", paths)) && !slices.Contains(paths, a.endpoint) {
		body.AddProblem("endpoint", "is %q; it must be one of %v", textfmt.Shorten(a.endpoint, 64), paths)
	}
	if body.Require("completion_window", "a string", &a.window, "send 24h, or another number of hours (h) or days (d)") {
		if a.duration = parseWindow(a.window); a.duration == 0 {
			body.AddProblem("completion_window", "is %q; it must be 1 to 999 hours or days, such as 24h or 7d", textfmt.Shorten(a.window, 64))
		}
	}
	if body.Read("metadata", "an object of strings", &a.metadata) {
		checkMetadata(body.Problems, a.metadata)
	}
	readExpiry(&body, "output_expires_after", &a.outputSeconds)
	return a, body.Err()
}

// readExpiry reads a field that says after how many seconds a file expires, and stores
// this number in seconds. It returns true if the field is present and valid.
func readExpiry(body *request.JSONObject, field string, seconds *int64) bool {
	var after map[string]any
	if !body.Read(field, "an object with anchor and seconds", &after) {
		return false
	}
	n, _ := after["seconds"].(float64)
	*seconds = int64(n)
	if after["anchor"] != "created_at" || n != float64(*seconds) || *seconds < minExpiry || *seconds > maxExpiry {
		body.AddProblem(field, "must have the anchor created_at and seconds from %d to %d", minExpiry, maxExpiry)
		return false
	}
	return true
}

func checkMetadata(p *request.Problems, metadata map[string]string) {
	if len(metadata) > maxPairs {
		p.Add("metadata", "has %d pairs; it may have at most %d", len(metadata), maxPairs)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		switch value := metadata[key]; {
		case utf8.RuneCountInString(key) > maxKey:
			p.Add("metadata", "has a key of more than %d characters", maxKey)
		case utf8.RuneCountInString(value) > maxValue:
			p.Add("metadata."+key, "has more than %d characters", maxValue)
		}
	}
}

// parseWindow returns the duration of a completion_window, or 0 if the text is invalid.
func parseWindow(text string) time.Duration {
	found := windowForm.FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1])
	duration := time.Duration(n) * time.Hour
	if found[2] == "d" {
		duration *= 24
	}
	return duration
}

// create answers POST /v1/batches: it stores a batch of the requests in an uploaded
// file.
func (d *Dialect) create(c *gin.Context) (any, error) {
	want, err := d.readBatchRequest(c)
	if err != nil {
		return nil, err
	}
	f, err := d.findUnexpiredFile(c, want.file)
	if err != nil {
		return nil, batch.AddNotFoundField(err, "input_file_id")
	}
	if f.Purpose != purposeBatch {
		return nil, rowmill.Invalid("input_file_id", "names a file with the purpose %s; upload one with the purpose %s", f.Purpose, purposeBatch)
	}
	record, err := d.newBatchRecord(c, f, want)
	if err != nil {
		return nil, err
	}
	record, err = d.batches.Submit(c, record, want.hash(), func(ctx context.Context) error {
		err := d.Bucket.Copy(ctx, f.Key, record.Spec.Spooled)
		if errors.Is(err, rowmill.ErrNotFound) { // the file was deleted after d.findUnexpiredFile read its record
			return batch.AddNotFoundField(batch.NotFoundError("file", f.ID), "input_file_id")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return d.finalizeAndView(c.Request.Context(), record)
}

// newBatchRecord returns the record of a new batch. It reads only the first line of the file,
// which names the model for all lines. A file without a valid first line gets a job
// too; that job fails with a list of all errors in the file.
func (d *Dialect) newBatchRecord(c *gin.Context, f store.File, want batchRequest) (store.Record, error) {
	model, err := d.readBatchModel(c, f, want.endpoint)
	if err != nil {
		return store.Record{}, err
	}
	record := d.batches.NewRecord(model, rowmill.RawBatch{
		Path: want.endpoint, InputFile: f.ID, Window: want.window, Metadata: want.metadata, OutputSeconds: want.outputSeconds,
	}, want.duration)
	record.Job.Input = f.Name
	return record, nil
}

// readBatchModel returns the model of a file's first request, or an unknown model if the first
// line is invalid.
func (d *Dialect) readBatchModel(c *gin.Context, f store.File, path string) (rowmill.Model, error) {
	object, err := d.Bucket.Open(c.Request.Context(), f.Key)
	if errors.Is(err, rowmill.ErrNotFound) {
		return rowmill.Model{}, batch.AddNotFoundField(batch.NotFoundError("file", f.ID), "input_file_id")
	}
	if err != nil {
		return rowmill.Model{}, fmt.Errorf("open the input of a batch: %w", err)
	}
	defer object.Close()
	name, found, err := input.ReadBatchModel(object, object.Size(), path, d.Limits.Input)
	if err != nil {
		return rowmill.Model{}, fmt.Errorf("read the input of a batch: %w", err)
	}
	if !found {
		return rowmill.Model{ID: "unknown", Kind: rowmill.KindRaw, NoPrice: true}, nil
	}
	return d.batches.FindModel(name)
}

// hash returns a hash of the request, which is equal for equal requests.
func (a batchRequest) hash() string {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%q %q %q %d", a.file, a.endpoint, a.window, a.outputSeconds)
	for _, key := range slices.Sorted(maps.Keys(a.metadata)) {
		fmt.Fprintf(&text, " %q %q", key, a.metadata[key])
	}
	sum := sha256.Sum256(text.Bytes())
	return hex.EncodeToString(sum[:])
}

// show answers GET /v1/batches/{batch_id} with the state of a batch.
func (d *Dialect) show(c *gin.Context) (any, error) {
	record, err := d.batches.Find(c, c.Param("batch_id"))
	if err != nil {
		return nil, err
	}
	return d.finalizeAndView(c.Request.Context(), record)
}

// list answers GET /v1/batches with a page of the account's batches.
func (d *Dialect) list(c *gin.Context) (any, error) {
	var p request.Problems
	asked := queryPage(c, &p, defaultBatches, maxBatches)
	if after := c.Query("after"); after != "" {
		id, ok := d.batches.JobID(after)
		if !ok {
			p.Add("after", "is %q, which is not the id of a batch; send the id of the last batch of the previous page", textfmt.Shorten(after, 64))
		}
		asked.After = id
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	records, more, err := d.batches.List(c, asked, "after", func(store.Record) bool { return false })
	if err != nil {
		return nil, err
	}
	views := make([]batchView, len(records))
	for i, record := range records {
		views[i] = d.viewOf(record)
	}
	return newListPage(views, more, func(v batchView) string { return v.ID }), nil
}

// cancel answers POST /v1/batches/{batch_id}/cancel. If the batch was cancelled before,
// it changes nothing and returns no error.
func (d *Dialect) cancel(c *gin.Context) (any, error) {
	record, err := d.batches.Find(c, c.Param("batch_id"))
	if err != nil {
		return nil, err
	}
	ended, err := d.batches.Cancel(c.Request.Context(), record)
	if errors.Is(err, rowmill.ErrTerminal) {
		return nil, request.Errorf(http.StatusBadRequest, "batch_over", "the batch cannot be cancelled: it is %s", d.viewOf(ended).Status)
	}
	if err != nil {
		return nil, err
	}
	return d.viewOf(ended), nil // the status is cancelling until the batch's files are made
}
