package webhook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
)

// The types of events. Those of batches are OpenAI's.
const (
	JobSucceeded = "job.succeeded"
	JobFailed    = "job.failed"
	JobCancelled = "job.cancelled"

	BatchCompleted = "batch.completed"
	BatchFailed    = "batch.failed"
	BatchExpired   = "batch.expired"
	BatchCancelled = "batch.cancelled"
)

// Types are all types of events.
func Types() []string {
	return []string{JobSucceeded, JobFailed, JobCancelled, BatchCompleted, BatchFailed, BatchExpired, BatchCancelled}
}

// typesOf are the types of the event that a job has ended: the one of its dialect,
// and the native one, which may be the same. Anthropic's clients know no event of a
// Message Batch, so that its own is the native one.
func typesOf(job *rowmill.Job, spec *rowmill.Spec) (own, native string, ok bool) {
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

// wanted are the types of the events that an endpoint gets of a job that is over.
// One that names none gets the one of the job's dialect. Clients take a type that
// they do not know for another, so that one which names some gets no others.
func (e *Endpoint) wanted(job *rowmill.Job, spec *rowmill.Spec) (types []string) {
	own, native, ok := typesOf(job, spec)
	if ok && len(e.Events) == 0 {
		return []string{own}
	}
	for _, one := range slices.Compact([]string{own, native}) {
		if ok && slices.Contains(e.Events, one) {
			types = append(types, one)
		}
	}
	return types
}

// nativeEvent is the body of an event of our own.
type nativeEvent struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      jobData   `json:"data"`
}

// jobData is what a receiver wants to know before it asks for more.
type jobData struct {
	JobID         string           `json:"job_id"`
	BatchID       *string          `json:"batch_id"` // as the batch's dialect has it; null for other jobs
	Status        rowmill.Status   `json:"status"`
	RunType       rowmill.RunType  `json:"run_type"`
	Name          *string          `json:"name"`
	Model         string           `json:"model"`
	NumRows       *int64           `json:"num_rows"`
	RowsFailed    int64            `json:"rows_failed"`
	Cost          *float64         `json:"cost"` // USD
	FailureReason *rowmill.Failure `json:"failure_reason"`
}

// openAIEvent is the body of an event as OpenAI sends it.
type openAIEvent struct {
	ID      string     `json:"id"`
	Object  string     `json:"object"`
	Created int64      `json:"created_at"`
	Type    string     `json:"type"`
	Data    openAIData `json:"data"`
}

type openAIData struct {
	ID string `json:"id"`
}

// batchPrefixes lead the ids of batches of the dialects.
var batchPrefixes = map[string]string{rowmill.DialectOpenAI: "batch_", rowmill.DialectAnthropic: "msgbatch_"}

// batchID is a job's id as the dialect of its batch has it; nil for no batch.
func batchID(jobID string, raw *rowmill.Raw) *string {
	if raw == nil {
		return nil
	}
	id := batchPrefixes[raw.Dialect] + strings.ReplaceAll(strings.TrimPrefix(jobID, "job-"), "-", "")
	return &id
}

// isBatch reports whether a type is one of OpenAI's.
func isBatch(kind string) bool { return strings.HasPrefix(kind, "batch.") }

// body is that of an event of a job that ended at a time.
func body(kind string, job *rowmill.Job, raw *rowmill.Raw, at time.Time) (string, error) {
	var event any = nativeEvent{Type: kind, Timestamp: at.UTC().Truncate(time.Millisecond), Data: jobData{
		JobID: job.ID, BatchID: batchID(job.ID, raw), Status: job.Status, RunType: job.RunType, Name: job.Name, Model: job.Model,
		NumRows: job.NumRows, RowsFailed: job.FailedRows, Cost: job.JobCost, FailureReason: job.FailureReason,
	}}
	if isBatch(kind) {
		event = openAIEvent{
			ID: idOf("evt_", at, job.ID, kind), Object: "event", Created: at.Unix(), Type: kind,
			Data: openAIData{ID: *batchID(job.ID, raw)},
		}
	}
	text, err := json.Marshal(event)
	if err != nil {
		return "", fmt.Errorf("encode the event %s of job %s: %w", kind, job.ID, err)
	}
	return string(text), nil
}

// noJob is the id in an event that is sent as a test. No job has it.
const noJob = "job-00000000-0000-0000-0000-000000000000"

// statuses are those of a job whose event has a type.
var statuses = map[string]rowmill.Status{
	JobSucceeded: rowmill.StatusSucceeded, JobFailed: rowmill.StatusFailed, JobCancelled: rowmill.StatusCancelled,
}

// Sample is an event of a type that tells of no job, for a test.
func (e *Endpoint) Sample(kind string, at time.Time) (id, text string, err error) {
	name := "test"
	var rows int64
	job := rowmill.Job{ID: noJob, Status: statuses[kind], RunType: rowmill.RunFull, Name: &name, NumRows: &rows}
	var raw *rowmill.Raw
	if isBatch(kind) {
		raw = &rowmill.Raw{Dialect: rowmill.DialectOpenAI}
	}
	text, err = body(kind, &job, raw, at)
	return idOf(deliveryPrefix, at, "test", e.ID, kind, at.String()), text, err
}

// SampleType is the type of a test where none is named: the first that the endpoint
// gets.
func (e *Endpoint) SampleType() string {
	if len(e.Events) > 0 {
		return e.Events[0]
	}
	return JobSucceeded
}
