package request

import (
	"fmt"
	"net/http"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// CheckHasResults returns an error that says why a job has no results of a variant, or nil if
// the job has such results.
func CheckHasResults(record store.Record, v results.FileVariant) error {
	status := record.Job.Status
	switch {
	case record.Job.RunType == rowmill.RunEstimate:
		return Errorf(http.StatusConflict, "no_results",
			"an estimate job has no results; its record holds cost_estimate once it has succeeded").WithField("status", status)
	case status != rowmill.StatusSucceeded && status.IsTerminal():
		return Errorf(http.StatusConflict, "job_not_succeeded",
			"the job is %s; only succeeded jobs have results. partial=true gives the rows that it has committed", status).WithField("status", status)
	case status != rowmill.StatusSucceeded:
		return Errorf(http.StatusConflict, "job_not_succeeded",
			"the job is %s; its results are ready once it has succeeded", status).WithField("status", status)
	}
	return checkVariantExists(record, v)
}

// CheckHasPartialRows returns an error that says why a job that has not succeeded has no partial
// results, or nil if the job has partial results.
func CheckHasPartialRows(record store.Record, v results.FileVariant) error {
	status := record.Job.Status
	switch {
	case record.Job.RunType == rowmill.RunEstimate:
		return Errorf(http.StatusConflict, "no_results", "an estimate job has no results, and no partial ones").WithField("status", status)
	case record.DataRemoved == nil && !record.IsCutIntoShards() && status.IsTerminal():
		return Errorf(http.StatusConflict, "no_rows",
			"the job is %s and ended before its rows were counted, so it has no rows", status).WithField("status", status)
	case record.DataRemoved == nil && !record.IsCutIntoShards():
		return Errorf(http.StatusConflict, "no_rows", "the rows of the job are not counted yet; try again later").WithField("status", status)
	}
	return checkVariantExists(record, v)
}

// FieldColumns is the parameter for columns of the input in results, and FieldUnpack the
// parameter for properties of the answers.
const (
	FieldColumns = "columns"
	FieldUnpack  = "unpack"
)

// checkVariantExists returns an error if a job will never have a variant of its results: the
// data was removed, log probabilities were not recorded, or the job has no such columns.
func checkVariantExists(record store.Record, v results.FileVariant) error {
	switch {
	case record.DataRemoved != nil:
		return archive.ErrRemoved
	case v.Columns != "" && len(record.Spec.Keep) == 0:
		return rowmill.Invalid(FieldColumns, "cannot be used, because the job keeps no columns of its input; submit a job with keep_columns, or leave this parameter out")
	case v.Unpack && !results.HasProperties(record.Spec.Schema):
		return rowmill.Invalid(FieldUnpack, "cannot be used, because the job has no json_schema with properties; leave this parameter out")
	case v.Logprobs && record.Spec.Model.NoLogprobs:
		return logprobsError("the catalog turns log probabilities off for %s, so none were recorded; leave this parameter out", record.Spec.Model.ID)
	case v.Logprobs && record.Spec.Sampling["logprobs"] == false:
		return logprobsError("the job was submitted with logprobs false in sampling_params, so none were recorded; leave this parameter out")
	}
	return nil
}

func logprobsError(format string, args ...any) error {
	return &rowmill.InvalidError{Code: "logprobs_not_recorded", Fields: []rowmill.FieldError{{
		Field: "include_cumulative_logprobs", Message: fmt.Sprintf(format, args...),
	}}}
}
