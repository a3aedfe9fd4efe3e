package request

import (
	"fmt"
	"net/http"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// NoResults says why a job has no results of a variant, or nil where it has.
func NoResults(record store.Record, v results.Variant) error {
	status := record.Job.Status
	switch {
	case record.Job.RunType == rowmill.RunEstimate:
		return Errorf(http.StatusConflict, "no_results",
			"an estimate job has no results; its record holds cost_estimate once it has succeeded").With("status", status)
	case status != rowmill.StatusSucceeded && status.Terminal():
		return Errorf(http.StatusConflict, "job_not_succeeded",
			"the job is %s; only succeeded jobs have results", status).With("status", status)
	case status != rowmill.StatusSucceeded:
		return Errorf(http.StatusConflict, "job_not_succeeded",
			"the job is %s; its results are ready once it has succeeded", status).With("status", status)
	case record.DataRemoved != nil:
		return archive.ErrRemoved
	case v.Logprobs && record.Spec.Model.NoLogprobs:
		return &rowmill.InvalidError{Code: "logprobs_not_recorded", Fields: []rowmill.FieldError{{
			Field:   "include_cumulative_logprobs",
			Message: fmt.Sprintf("the catalog turns log probabilities off for %s, so none were recorded; leave it out", record.Spec.Model.ID),
		}}}
	}
	return nil
}
