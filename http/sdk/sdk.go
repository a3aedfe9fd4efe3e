// Package sdk is the dialect of existing clients of this API family: the form of a job's
// status for keys of the dialect, and two routes to fetch results and watch progress. It
// does not check who may see a job; the interface Jobs does this.
//
// Each dialect is such a package: handlers that answer through package exchange, and a
// struct with their dependencies.
package sdk

import (
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
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// Name is the name of the dialect: the field dialect of an API key has this value if
// the key's clients use the dialect.
const Name = "sdk"

// UsesDialect reports whether the API key of a request is for clients of this dialect.
func UsesDialect(c *gin.Context) bool { return caller.PrincipalOf(c).Dialect == Name }

// JobFinder finds jobs of the caller's account.
type JobFinder interface {
	// Find returns a job, or a 404 if it does not exist or belongs to another account.
	Find(c *gin.Context, id string) (store.Record, error)
	// FindHead is like Find, but returns only the part of a job that clients see. Callers must
	// not modify the result.
	FindHead(c *gin.Context, id string) (*store.JobHead, error)
}

// Dialect answers the requests whose answers have another form in this dialect.
type Dialect struct {
	Exchange *exchange.Exchange
	Jobs     JobFinder
	Store    store.Jobs
	Archive  *archive.Archive
	Draining func() bool // reports whether the node is about to stop
	Now      func() time.Time
}

// Route adds the routes that only clients of the dialect use.
func (d *Dialect) Route(v1 gin.IRoutes) {
	v1.POST("/job-results", d.Exchange.HandleRaw(d.sendResults))
	v1.GET("/stream-job-progress/:job_id", d.Exchange.HandleRaw(d.streamProgress))
}

// codeCancelled is the code of the failure_reason of a cancelled job.
const codeCancelled = "cancelled"

// toSDKStatus returns a job status in the form of the dialect. All statuses before running
// become STARTING, because clients that wait for a job to start know no other such
// status.
func toSDKStatus(status rowmill.Status) string {
	switch status {
	case rowmill.StatusPending, rowmill.StatusSubmitted:
		status = rowmill.StatusStarting
	}
	return strings.ToUpper(string(status))
}

// ToSDKJob returns a copy of a job with the status and the failure reason in the form of the
// dialect.
func ToSDKJob(job rowmill.Job) rowmill.Job {
	if job.Status == rowmill.StatusCancelled && job.FailureReason == nil {
		job.FailureReason = rowmill.Failf(codeCancelled, "The job was cancelled on request.")
	}
	job.Status = rowmill.Status(toSDKStatus(job.Status))
	return job
}

// nullsInLists has the fields that a list item keeps if they are null, and the JSON value
// that then replaces null. Clients calculate with the numbers; for the time see
// WithCompletionTime.
var nullsInLists = map[string]json.RawMessage{
	"input_tokens": json.RawMessage("0"), "output_tokens": json.RawMessage("0"), "job_cost": json.RawMessage("0.0"),
	"datetime_completed": json.RawMessage("null"),
}

// ToSDKListItem returns the fields of a job for a list, with as few nulls as possible.
// record is the job in the form of the dialect. Clients make a table of the list and
// take the type of each column from the first hundred jobs. If a column is null in all
// of these jobs and has a value in a later job, the client fails.
func ToSDKListItem(record any) (map[string]json.RawMessage, error) {
	text, err := exchange.Encode(record)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	for name, value := range fields {
		if string(value) != "null" {
			continue
		}
		if shown, isKept := nullsInLists[name]; isKept {
			fields[name] = shown
		} else {
			delete(fields, name)
		}
	}
	return fields, nil
}

// tableRows is how many jobs of a list clients read to find the types of the columns.
const tableRows = 100

// WithCompletionTime returns a copy of newest, the first jobs of a list. If none of the
// first tableRows jobs has a completion time, one of them gets the Unix epoch as its
// completion time. Clients always parse this column as dates, and fail if it has only
// nulls.
func WithCompletionTime(newest []*rowmill.Job) []*rowmill.Job {
	newest = slices.Clone(newest)
	seen := newest[:min(tableRows, len(newest))]
	if ended := func(job *rowmill.Job) bool { return job.Completed != nil }; len(seen) > 0 && !slices.ContainsFunc(seen, ended) {
		epoch := time.Unix(0, 0).UTC()
		dated := *seen[len(seen)-1]
		dated.Completed = &epoch
		seen[len(seen)-1] = &dated
	}
	return newest
}

// showRunningFor is how long after its end a succeeded job may still be shown as
// running, once, if no client has asked for the job's status before.
const showRunningFor = 10 * time.Second

// hasNestedJSON reports whether the outputs of a job contain JSON inside JSON: the output of a
// reasoning model is an object, and with a schema the answer in it is JSON again.
func hasNestedJSON(record store.Record) bool {
	return record.Spec.Model.Kind == rowmill.KindReasoning && len(record.Spec.Schema) > 0
}

// ToSDKSchema returns the schema of a job's results as clients of the dialect expect it: an
// answer that is a JSON object becomes columns and not a text.
func ToSDKSchema(record store.Record, s results.Schema) results.Schema {
	s.ContentAsJSON = hasNestedJSON(record)
	return s
}

// ToSDKOutput returns the output of a Function's run in the form of the dialect. With a JSON
// Schema the answer is JSON instead of text. For a reasoning model with a JSON Schema,
// ToSDKOutput also returns the reasoning; otherwise reasoning is nil.
func ToSDKOutput(record store.Record, output any) (answer any, reasoning *string) {
	text, isText := output.(string)
	switch {
	case !isText || len(record.Spec.Schema) == 0:
	case hasNestedJSON(record):
		if thought, content, ok := results.SplitReasoning([]byte(text)); ok {
			return content, &thought
		}
	case json.Valid([]byte(text)):
		return json.RawMessage(text), nil
	}
	return output, nil
}

// ShowStatus answers GET /v1/job-status/{job_id} in the form of the dialect.
func (d *Dialect) ShowStatus(c *gin.Context) (any, error) {
	id := c.Param("job_id")
	head, err := d.Jobs.FindHead(c, id)
	var status string
	if err == nil {
		status = d.statusToShow(c, head)
	}
	if err != nil {
		if e := request.FromError(err); e.Status == http.StatusNotFound {
			err = e.WithField("job_status", gin.H{textfmt.Shorten(id, 64): toSDKStatus(rowmill.StatusUnknown)}).WithField("metadata", gin.H{})
		}
		return nil, err
	}
	return gin.H{"job_status": gin.H{head.Job.ID: status}}, nil
}

// statusToShow returns the status to show to a client. Some clients that wait for a job
// to start do not accept SUCCEEDED. So a job that succeeded before any client asked is
// shown as RUNNING once. The job's record stores that a client has asked, so that all
// nodes know. If this write fails, the client gets the real status.
func (d *Dialect) statusToShow(c *gin.Context, head *store.JobHead) string {
	job := &head.Job
	status := toSDKStatus(job.Status)
	justSucceeded := job.Status == rowmill.StatusSucceeded && job.Completed != nil && d.Now().Sub(*job.Completed) < showRunningFor
	if head.ShownRunning || job.Status.IsTerminal() && !justSucceeded {
		return status
	}
	if err := d.Store.MarkShownRunning(c.Request.Context(), job.ID); err != nil {
		d.Exchange.Logger.Warn("storing that a client has asked for a job's status failed, the client gets the real status",
			exchange.KeyRequest, exchange.RequestID(c), exchange.KeyJob, job.ID, exchange.KeyErr, err)
		return status
	}
	if justSucceeded {
		return toSDKStatus(rowmill.StatusRunning)
	}
	return status
}
