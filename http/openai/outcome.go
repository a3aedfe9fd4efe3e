package openai

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/batch"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// Names of the two files that an ended batch produces: one with the answers, and one with
// the requests that have no answer. A file without lines is not made. Each file has a
// record in the list of files.
const (
	outcomeOutput = "output.jsonl"
	outcomeErrors = "errors.jsonl"
)

// resultFileID returns the id of a file that a batch produces. All nodes compute the same
// id. File ids have the same order as the times at which their batches were created.
func resultFileID(jobID, name string) string {
	digits := batch.JobIDDigits(jobID)
	sum := sha256.Sum256([]byte(jobID + "/" + name))
	return prefixFile + digits[:12] + hex.EncodeToString(sum[:])[:len(digits)-12]
}

// batchFiles says which files an ended batch produces.
type batchFiles struct{ output, errors bool }

func filesOfBatch(record store.Record) batchFiles {
	job := record.Job
	if record.DataRemoved != nil || job.NumRows == nil || !record.IsCutIntoShards() {
		return batchFiles{}
	}
	return batchFiles{output: job.RowsDone > job.FailedRows, errors: job.FailedRows > 0 || *job.NumRows > job.RowsDone}
}

// describeResultFiles describes the files to make for an ended batch.
func (d *Dialect) describeResultFiles(ctx context.Context, record store.Record) (made []batch.ResultFile, err error) {
	files := filesOfBatch(record)
	until, err := d.fileExpiry(ctx, record)
	if err != nil {
		return nil, err
	}
	l := newLineWriter(record)
	add := func(name string, line func([]byte, *rowmill.Row, *rowmill.RowOutput) ([]byte, error)) {
		made = append(made, batch.ResultFile{Name: name, Line: line, OnComplete: func(ctx context.Context, a store.Artifact) error {
			err := d.createRecord(ctx, store.File{
				ID: resultFileID(record.Job.ID, name), Account: record.Spec.Account, Purpose: purposeOutput,
				Name: d.batches.BatchID(record.Job.ID) + "_" + name, Size: a.Size, Created: *record.Job.Completed, Expires: until, Key: a.Key, Job: record.Job.ID,
			})
			if errors.Is(err, rowmill.ErrConflict) {
				return nil // an earlier attempt stored a record with another expiry; that record stays
			}
			return err
		}})
	}
	if files.output {
		add(outcomeOutput, l.appendAnswer)
	}
	if files.errors {
		add(outcomeErrors, l.appendError)
	}
	return made, nil
}

// fileExpiry returns when the files of a batch expire: after the time that the client asked
// for, or else at the end of the account's retention by its current settings. nil means
// never.
func (d *Dialect) fileExpiry(ctx context.Context, record store.Record) (*time.Time, error) {
	ended := record.Job.Completed.UTC().Truncate(time.Second)
	if seconds := record.Spec.Raw.OutputSeconds; seconds > 0 {
		ended = ended.Add(time.Duration(seconds) * time.Second)
		return &ended, nil
	}
	settings, _, err := store.LoadSettings(ctx, d.Store, record.Spec.Account)
	if err != nil || settings.RetentionDays == nil {
		return nil, err
	}
	ended = ended.AddDate(0, 0, *settings.RetentionDays)
	return &ended, nil
}

// A lineWriter writes the lines of a batch's files, in the order of the input.
type lineWriter struct {
	batch  string    // the hexadecimal digits of the batch's id
	notRun lineError // error of the requests that did not run
}

// lineError is the error of a request in a line of the error file.
type lineError struct{ code, message string }

func newLineWriter(record store.Record) lineWriter {
	l := lineWriter{batch: batch.JobIDDigits(record.Job.ID)}
	switch reason := record.Job.FailureReason; batch.NotRunCauseOf(record.Job) {
	case batch.Cancelled:
		l.notRun = lineError{"batch_cancelled", "The batch was cancelled before this request was run."}
	case batch.Expired:
		l.notRun = lineError{"batch_expired", "This request could not be executed before the completion window expired."}
	case batch.Failed:
		if reason != nil {
			l.notRun = lineError{reason.Code, batch.FailedBefore + reason.Message}
		}
	}
	return l
}

// appendAnswer appends the line of a request that has an answer. For other requests it
// appends nothing.
func (l lineWriter) appendAnswer(b []byte, row *rowmill.Row, out *rowmill.RowOutput) ([]byte, error) {
	if out.Failed() {
		return b, nil
	}
	b = l.appendResponse(l.appendIDs(b, row), row, 200, out.Text)
	return append(b, `,"error":null}`...), nil
}

// appendError appends the line of a request that has no answer. For other requests it
// appends nothing.
func (l lineWriter) appendError(b []byte, row *rowmill.Row, out *rowmill.RowOutput) ([]byte, error) {
	if !out.Failed() {
		return b, nil
	}
	b = l.appendIDs(b, row)
	if status, refused := results.ReplyStatus(out); refused {
		body := out.Err.Raw
		if !json.Valid([]byte(body)) { // not JSON, or cut because it was too long
			made, err := json.Marshal(map[string]any{"error": map[string]any{"message": out.Err.Message, "type": batch.TypeInvalid, "param": nil, "code": nil}})
			if err != nil {
				return b, err
			}
			body = string(made)
		}
		return append(l.appendResponse(b, row, status, body), `,"error":null}`...), nil
	}
	why := lineError{out.Err.Code, out.Err.Message}
	if out.Err.Code == rowmill.RowNotRun {
		why = l.notRun
	}
	b = append(b, `,"response":null,"error":{"code":`...)
	b = append(textfmt.AppendString(b, []byte(why.code)), `,"message":`...)
	return append(textfmt.AppendString(b, []byte(why.message)), `}}`...), nil
}

// appendIDs appends the beginning of a line to b, with the ids of the request.
func (l lineWriter) appendIDs(b []byte, row *rowmill.Row) []byte {
	b = append(b, `{"id":"batch_req_`...)
	b = l.appendRequestNumber(b, row)
	b = append(b, `","custom_id":`...)
	return batch.AppendID(b, row.ID)
}

// appendRequestNumber appends a number that identifies a request: the digits of the batch's id, and
// the row.
func (l lineWriter) appendRequestNumber(b []byte, row *rowmill.Row) []byte {
	b = append(append(b, l.batch...), '_')
	return strconv.AppendInt(b, row.Index, 10)
}

// appendResponse appends the member response of a line. body is the body of the response and
// must be JSON.
func (l lineWriter) appendResponse(b []byte, row *rowmill.Row, status int, body string) []byte {
	b = append(b, `,"response":{"status_code":`...)
	b = append(strconv.AppendInt(b, int64(status), 10), `,"request_id":"req_`...)
	b = append(l.appendRequestNumber(b, row), `","body":`...)
	return append(append(b, body...), '}')
}
