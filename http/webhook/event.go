package webhook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
)

// Types of webhook events. OpenAI defines the batch types.
const (
	JobSucceeded = "job.succeeded"
	JobFailed    = "job.failed"
	JobCancelled = "job.cancelled"

	BatchCompleted = "batch.completed"
	BatchFailed    = "batch.failed"
	BatchExpired   = "batch.expired"
	BatchCancelled = "batch.cancelled"
)

// EventTypes returns all types of webhook events.
func EventTypes() []string {
	return []string{JobSucceeded, JobFailed, JobCancelled, BatchCompleted, BatchFailed, BatchExpired, BatchCancelled}
}

// endEventTypes returns the two event types for the end of a job: the type of the job's
// dialect, and the native type, which is this API's own. Both are the native type for a
// native job, and for a Message Batch too, because Anthropic's API has no such event. ok
// is false while the job has not ended.
func endEventTypes(job *rowmill.Job, spec *rowmill.Spec) (dialect, native string, ok bool) {
	batch := ""
	switch job.Status {
	case rowmill.StatusSucceeded:
		native, batch = JobSucceeded, BatchCompleted
	case rowmill.StatusCancelled:
		native, batch = JobCancelled, BatchCancelled
	case rowmill.StatusFailed:
		native, batch = JobFailed, BatchFailed
		if job.FailureReason != nil && job.FailureReason.Code == rowmill.CodeWindowExpired {
			batch = BatchExpired
		}
	default:
		return "", "", false
	}
	if spec.Raw != nil && spec.Raw.Dialect == rowmill.DialectOpenAI {
		return batch, native, true
	}
	return native, native, true
}

// wantedTypes returns the event types that the endpoint gets for the end of a job. An
// endpoint without a list of types gets the type of the job's dialect. An endpoint with a
// list gets only the listed types, because clients mistake a type that they do not know
// for another type.
func (e *Endpoint) wantedTypes(job *rowmill.Job, spec *rowmill.Spec) (types []string) {
	dialect, native, ok := endEventTypes(job, spec)
	if ok && len(e.Events) == 0 {
		return []string{dialect}
	}
	for _, kind := range slices.Compact([]string{dialect, native}) {
		if ok && slices.Contains(e.Events, kind) {
			types = append(types, kind)
		}
	}
	return types
}

// nativeEvent is the JSON body of an event in this API's own form.
type nativeEvent struct {
	Type      string       `json:"type"`
	Timestamp time.Time    `json:"timestamp"`
	Data      jobEventData `json:"data"`
}

// jobEventData describes the job in an event, so that most receivers need no further request.
type jobEventData struct {
	JobID         string           `json:"job_id"`
	BatchID       *string          `json:"batch_id"` // the batch id as the client of the batch knows it; null for a job that is no batch
	Status        rowmill.Status   `json:"status"`
	RunType       rowmill.RunType  `json:"run_type"`
	Name          *string          `json:"name"`
	Model         string           `json:"model"`
	NumRows       *int64           `json:"num_rows"`
	RowsFailed    int64            `json:"rows_failed"`
	Cost          *float64         `json:"cost"` // USD
	FailureReason *rowmill.Failure `json:"failure_reason"`
}

// openAIEvent is the JSON body of an event in OpenAI's form.
type openAIEvent struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`
	Created int64           `json:"created_at"`
	Type    string          `json:"type"`
	Data    openAIEventData `json:"data"`
}

type openAIEventData struct {
	ID string `json:"id"`
}

// batchPrefixes maps a dialect to the prefix of its batch ids.
var batchPrefixes = map[string]string{rowmill.DialectOpenAI: "batch_", rowmill.DialectAnthropic: "msgbatch_"}

// batchID returns the batch id of a job, as the job's dialect shows it; nil for a job that
// is no batch.
func batchID(jobID string, raw *rowmill.RawBatch) *string {
	if raw == nil {
		return nil
	}
	id := batchPrefixes[raw.Dialect] + strings.ReplaceAll(strings.TrimPrefix(jobID, "job-"), "-", "")
	return &id
}

// isBatchEventType reports whether an event type is one of OpenAI's.
func isBatchEventType(kind string) bool { return strings.HasPrefix(kind, "batch.") }

// eventBody returns the JSON body of an event about a job that ended at the given time.
func eventBody(kind string, job *rowmill.Job, raw *rowmill.RawBatch, at time.Time) (string, error) {
	var event any = nativeEvent{Type: kind, Timestamp: at.UTC().Truncate(time.Millisecond), Data: jobEventData{
		JobID: job.ID, BatchID: batchID(job.ID, raw), Status: job.Status, RunType: job.RunType, Name: job.Name, Model: job.Model,
		NumRows: job.NumRows, RowsFailed: job.FailedRows, Cost: job.JobCost, FailureReason: job.FailureReason,
	}}
	if isBatchEventType(kind) {
		event = openAIEvent{
			ID: deriveID("evt_", at, job.ID, kind), Object: "event", Created: at.Unix(), Type: kind,
			Data: openAIEventData{ID: *batchID(job.ID, raw)},
		}
	}
	text, err := json.Marshal(event)
	if err != nil {
		return "", fmt.Errorf("encode the event %s of job %s: %w", kind, job.ID, err)
	}
	return string(text), nil
}

// sampleJobID is the job id in test events. No job has this id.
const sampleJobID = "job-00000000-0000-0000-0000-000000000000"

// statuses maps a native event type to the status of its job.
var statuses = map[string]rowmill.Status{
	JobSucceeded: rowmill.StatusSucceeded, JobFailed: rowmill.StatusFailed, JobCancelled: rowmill.StatusCancelled,
}

// NewSampleEvent returns a test event of a type, and its message id. The event is about a job
// that does not exist.
func (e *Endpoint) NewSampleEvent(kind string, at time.Time) (id, text string, err error) {
	name := "test"
	var rows int64
	job := rowmill.Job{ID: sampleJobID, Status: statuses[kind], RunType: rowmill.RunFull, Labels: rowmill.Labels{Name: &name}, NumRows: &rows}
	var raw *rowmill.RawBatch
	if isBatchEventType(kind) {
		raw = &rowmill.RawBatch{Dialect: rowmill.DialectOpenAI}
	}
	text, err = eventBody(kind, &job, raw, at)
	return deriveID(deliveryPrefix, at, "test", e.ID, kind, at.String()), text, err
}

// SampleType returns the type for a test event if the client names no type: the first
// type that the endpoint gets.
func (e *Endpoint) SampleType() string {
	if len(e.Events) > 0 {
		return e.Events[0]
	}
	return JobSucceeded
}
