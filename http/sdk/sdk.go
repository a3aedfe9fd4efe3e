// Package sdk is the dialect of existing clients of this API family: the form
// in which keys of the dialect read where a job stands, and two routes by
// which such clients fetch results and watch progress. It owns that form and
// nothing else: whose request it is and which job it names, it asks.
//
// Another dialect is another such folder: handlers that answer through package
// exchange, and a struct that names what they need.
package sdk

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/spelling"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// Name is what keys of the dialect carry.
const Name = "sdk"

// Spoken reports whether a request is in the dialect.
func Spoken(c *gin.Context) bool { return caller.Of(c).Dialect == Name }

// Jobs finds the jobs of whoever asks.
type Jobs interface {
	// Find returns a job, or a 404 where it does not exist or belongs to
	// another account.
	Find(c *gin.Context, id string) (store.Record, error)
	// Head is Find for what clients see of a job. It is not to be modified.
	Head(c *gin.Context, id string) (*store.Head, error)
}

// Store is what the dialect needs of a store.
type Store interface {
	Get(ctx context.Context, jobID string) (store.Record, error)
	ShowRunning(ctx context.Context, jobID string) error
}

// Dialect answers in the dialect.
type Dialect struct {
	Exchange *exchange.Exchange
	Jobs     Jobs
	Store    Store
	Archive  *archive.Archive
	Draining func() bool // the node is about to stop
	Now      func() time.Time
}

// Route adds the routes that only clients of the dialect use.
func (d *Dialect) Route(v1 gin.IRoutes) {
	v1.POST("/job-results", d.Exchange.Do(d.results))
	v1.GET("/stream-job-progress/:job_id", d.Exchange.Do(d.progress))
}

// codeCancelled is the code of a failure_reason that stands in for none.
const codeCancelled = "cancelled"

// statusOf is a status as the dialect has it. What comes before running is
// STARTING, since clients that wait for a job to start know no other.
func statusOf(status rowmill.Status) string {
	switch status {
	case rowmill.StatusPending, rowmill.StatusSubmitted:
		status = rowmill.StatusStarting
	}
	return strings.ToUpper(string(status))
}

// Job puts a job's record into the dialect.
func Job(job rowmill.Job) rowmill.Job {
	if job.Status == rowmill.StatusCancelled && job.FailureReason == nil {
		job.FailureReason = rowmill.Failf(codeCancelled, "The job was cancelled on request.")
	}
	job.Status = rowmill.Status(statusOf(job.Status))
	return job
}

// optional are the fields of a listed record that clients do without.
var optional = []string{
	"name", "description", "system_prompt", "json_schema", "datetime_started", "num_rows", "cost_estimate",
	"failure_reason", "continues", "continued_by", "key_id", "estimate", "function",
}

// counted are those that clients count with, and what a null counts as.
var counted = map[string]json.RawMessage{
	"input_tokens": json.RawMessage("0"), "output_tokens": json.RawMessage("0"), "job_cost": json.RawMessage("0.0"),
}

// Listed is a record of a list without nulls, as far as clients can do without
// the fields. They make a table of the list, whose columns have the types of its
// first hundred records: a null in all of these and anything else behind them is
// an error to them.
func Listed(record any) (map[string]json.RawMessage, error) {
	text, err := exchange.Encode(record)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	isNull := func(name string) bool { return string(fields[name]) == "null" }
	for _, name := range optional {
		if isNull(name) {
			delete(fields, name)
		}
	}
	for name, none := range counted {
		if isNull(name) {
			fields[name] = none
		}
	}
	return fields, nil
}

// tableRows is by how many records clients tell the types of a list's columns.
const tableRows = 100

// Dated gives one of the newest jobs of a list a time of completion where none of
// them has one, that of the epoch, as the last resort: clients make dates of that
// column, whatever it is, and give up on one that has nothing but nulls.
func Dated(newest []*rowmill.Job) []*rowmill.Job {
	newest = slices.Clone(newest)
	seen := newest[:min(tableRows, len(newest))]
	if over := func(job *rowmill.Job) bool { return job.Completed != nil }; len(seen) > 0 && !slices.ContainsFunc(seen, over) {
		epoch := time.Unix(0, 0).UTC()
		dated := *seen[len(seen)-1]
		dated.Completed = &epoch
		seen[len(seen)-1] = &dated
	}
	return newest
}

// startSign is how long after its end a job that nobody has asked for may still
// be told to run.
const startSign = 10 * time.Second

// packsJSON reports whether the rows of a job hold JSON within the JSON of a
// reasoning row.
func packsJSON(record store.Record) bool {
	return record.Spec.Model.Kind == rowmill.KindReasoning && len(record.Spec.Schema) > 0
}

// Schema puts the schema of a job's results into the dialect.
func Schema(record store.Record, s results.Schema) results.Schema {
	s.ContentAsJSON = packsJSON(record)
	return s
}

// Answer puts the output of a Function's run into the dialect: with a schema,
// the JSON that conforms to it, and what a reasoning model thought beside it,
// nil otherwise.
func Answer(record store.Record, output any) (answer any, reasoning *string) {
	text, isText := output.(string)
	switch {
	case !isText || len(record.Spec.Schema) == 0:
	case packsJSON(record):
		if thought, content, ok := results.Reasoning([]byte(text)); ok {
			return content, &thought
		}
	case json.Valid([]byte(text)):
		return json.RawMessage(text), nil
	}
	return output, nil
}

// Status answers GET /v1/job-status/{job_id} in the dialect.
func (d *Dialect) Status(c *gin.Context) (any, error) {
	id := c.Param("job_id")
	head, err := d.Jobs.Head(c, id)
	var status string
	if err == nil {
		status = d.shown(c, head)
	}
	if err != nil {
		if e := request.Describe(err); e.Status == http.StatusNotFound {
			err = e.With("job_status", gin.H{spelling.Shorten(id, 64): statusOf(rowmill.StatusUnknown)}).With("metadata", gin.H{})
		}
		return nil, err
	}
	return gin.H{"job_status": gin.H{head.Job.ID: status}}, nil
}

// shown is the status that a client is told. One that waits for a job to start
// may take no notice of SUCCEEDED, so that a job which ended before anybody
// asked is RUNNING once; the record remembers that somebody did, whichever node
// is asked. Where it cannot, the client is told the truth.
func (d *Dialect) shown(c *gin.Context, head *store.Head) string {
	job := &head.Job
	status := statusOf(job.Status)
	late := job.Status == rowmill.StatusSucceeded && job.Completed != nil && d.Now().Sub(*job.Completed) < startSign
	if head.ShownRunning || job.Status.Terminal() && !late {
		return status
	}
	if err := d.Store.ShowRunning(c.Request.Context(), job.ID); err != nil {
		d.Exchange.Logger.Warn("noting that a client has asked for a job failed",
			exchange.KeyRequest, exchange.RequestID(c), exchange.KeyJob, job.ID, exchange.KeyErr, err)
		return status
	}
	if late {
		return statusOf(rowmill.StatusRunning)
	}
	return status
}
