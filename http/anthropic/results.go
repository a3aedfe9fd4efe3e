package anthropic

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/batch"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// outcomeResults is the name of a batch's result file: one line per request, in the order
// of the requests.
const outcomeResults = "results.jsonl"

// describeResultFiles describes the only file of an ended batch: its result file.
func (d *Dialect) describeResultFiles(_ context.Context, record store.Record) ([]batch.ResultFile, error) {
	w := lineWriter{batch: batch.JobIDDigits(record.Job.ID), notRun: notRunResultType(record.Job)}
	if reason := record.Job.FailureReason; reason != nil {
		w.reason = reason.Message
	}
	return []batch.ResultFile{{Name: outcomeResults, Line: w.appendLine}}, nil
}

// A lineWriter writes the lines of a batch's results.
type lineWriter struct {
	batch  string // the hexadecimal digits of the batch's id
	notRun string // result type of requests that did not run
	reason string // why the batch failed, if it failed
}

// appendLine appends the result line of one request to b, without a line end.
func (w lineWriter) appendLine(b []byte, row *rowmill.Row, out *rowmill.RowOutput) ([]byte, error) {
	b = append(b, `{"custom_id":`...)
	b = append(batch.AppendID(b, row.ID), `,"result":{"type":"`...)
	switch {
	case !out.Failed():
		b = append(append(b, resultSucceeded...), `","message":`...)
		b = append(b, out.Text...)
	case out.Err.Code == rowmill.RowNotRun && w.notRun != resultErrored:
		b = append(append(b, w.notRun...), '"')
	default:
		body, err := json.Marshal(w.newRowErrorBody(row, out))
		if err != nil {
			return b, err
		}
		b = append(append(b, resultErrored...), `","error":`...)
		b = append(b, body...)
	}
	return append(b, `}}`...), nil
}

// newRowErrorBody returns the error of a request without an answer. If the inference server
// sent an error in Anthropic's form, newRowErrorBody copies its message, and also its type
// if Anthropic's API has this type. Few servers use this form, and vLLM uses other type
// names.
func (w lineWriter) newRowErrorBody(row *rowmill.Row, out *rowmill.RowOutput) errorBody {
	body := errorBody{"error", errorDetail{typeServer, out.Err.Message}, "req_" + w.batch + "_" + strconv.FormatInt(row.Index, 10)}
	status, refused := results.ReplyStatus(out)
	switch {
	case refused:
		body.Error.Type = errorTypeOf(status)
		var said errorBody
		if json.Unmarshal([]byte(out.Err.Raw), &said) == nil && said.Type == "error" && said.Error.Type != "" && said.Error.Message != "" {
			body.Error.Message = said.Error.Message
			if isErrorType(said.Error.Type) {
				body.Error.Type = said.Error.Type
			}
		}
	case out.Err.Code == rowmill.RowNotRun:
		body.Error.Message = batch.FailedBefore + w.reason
	}
	return body
}
