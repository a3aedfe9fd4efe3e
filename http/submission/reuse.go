package submission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/store"
)

const (
	fieldReuse = "reuse"
	// maxReuseScan is the number of jobs among which a submission looks for jobs with a name. To read
	// more would delay the answer by more than about a second.
	maxReuseScan = 20_000
	// reusePage is the number of jobs that are read at a time.
	reusePage = 500
)

// readReuse reads and checks the field reuse, without the jobs that it names.
func (sub *Submission) readReuse(job *CheckedJob) {
	raw, given := sub.fields[fieldReuse]
	if !given {
		return
	}
	want := struct {
		From string          `json:"from"`
		By   rowmill.ReuseBy `json:"by"`
	}{By: rowmill.ReuseByText}
	if err := request.Decode(raw, &want); err != nil {
		sub.problems.Add(fieldReuse, `must be an object with from, such as {"from": "nightly"}, or null`)
		return
	}
	spec := &job.Spec
	if err := cmp.Or(
		refuseIf(want.From == "", "needs from: the name of jobs, or the id of a job or of a job of a set"),
		refuseIf(want.By != rowmill.ReuseByText && want.By != rowmill.ReuseByID, "has by %q; it must be %q or %q", want.By, rowmill.ReuseByText, rowmill.ReuseByID),
		refuseIf(want.By == rowmill.ReuseByID && spec.IDColumn == "", "has by %q, but the job has no IDs; send id_column_name, or leave by out", want.By),
		refuseIf(spec.Estimate, "cannot be used with cost_estimate: an estimate does not know how many answers the job reuses; send only one of the two"),
		refuseIf(spec.Limit > 0, "is for jobs that run all rows; leave limit out"),
		refuseIf(spec.SeedPerRow, "takes over the answers to equal rows, but random_seed_per_input gives each row its own answer; leave one of the two fields out"),
	); err != nil {
		sub.problems.Add(fieldReuse, "%s", err)
		return
	}
	spec.Reuse = &rowmill.Reuse{From: want.From, By: want.By, Jobs: []string{}}
}

// findReusedJobs stores in the job the ids of the finished jobs that reuse names.
func (job *CheckedJob) findReusedJobs(ctx context.Context, account string) error {
	reuse := job.Spec.Reuse
	record, err := job.sub.Jobs.Get(ctx, reuse.From)
	switch {
	case errors.Is(err, rowmill.ErrNotFound) || err == nil && record.Spec.Account != account:
	case err != nil:
		return fmt.Errorf("read the job that the field reuse names: %w", err)
	default:
		return job.findReusedSet(ctx, record)
	}
	if strings.HasPrefix(reuse.From, "job-") {
		return rowmill.Invalid(fieldReuse, "names the job %q, which does not exist; send the id of a job of your account, or the name of jobs", textfmt.Shorten(reuse.From, 64))
	}
	return job.findReusedByName(ctx, account)
}

// findReusedSet stores in the job the id of a finished job. If that job is in a set, findReusedSet also
// stores the ids of the other jobs of the set that ran with the same settings.
func (job *CheckedJob) findReusedSet(ctx context.Context, named store.Record) error {
	problem := job.reuseProblem(named)
	if problem == "" {
		job.Spec.Reuse.Jobs = append(job.Spec.Reuse.Jobs, named.Job.ID)
	}
	for _, id := range named.Job.Set {
		if id == named.Job.ID {
			continue
		}
		record, err := job.sub.Jobs.Get(ctx, id)
		if err != nil && !errors.Is(err, rowmill.ErrNotFound) {
			return fmt.Errorf("read a job of the set in reuse: %w", err)
		}
		if err == nil && job.reuseProblem(record) == "" {
			job.Spec.Reuse.Jobs = append(job.Spec.Reuse.Jobs, id)
		}
	}
	switch {
	case len(job.Spec.Reuse.Jobs) > 0:
	case job.sub.ofSet: // other variants may have the same settings
		job.warn(fmt.Sprintf("reuse finds no rows: no finished job in the set of %s has the settings of this variant", named.Job.ID))
	default:
		return rowmill.Invalid(fieldReuse, "names the job %s: %s", named.Job.ID, problem)
	}
	return nil
}

// findReusedByName finds the finished jobs with the name in reuse. If it finds none, the job runs all
// rows, and a warning says why.
func (job *CheckedJob) findReusedByName(ctx context.Context, account string) error {
	reuse, problem := job.Spec.Reuse, ""
	for cursor, scanned := "", 0; scanned < maxReuseScan; scanned += reusePage {
		page, next, err := job.sub.Jobs.List(ctx, account, reusePage, cursor)
		if err != nil {
			return fmt.Errorf("look for the jobs in reuse: %w", err)
		}
		for _, head := range page {
			if head.Name == nil || *head.Name != reuse.From || head.Status != rowmill.StatusSucceeded {
				continue
			}
			record, err := job.sub.Jobs.Get(ctx, head.ID)
			if err != nil {
				return fmt.Errorf("read a job that the field reuse names: %w", err)
			}
			if why := job.reuseProblem(record); why != "" {
				problem = cmp.Or(problem, fmt.Sprintf("job %s has the name %q, but %s", head.ID, reuse.From, why))
				continue
			}
			if reuse.Jobs = append(reuse.Jobs, head.ID); len(reuse.Jobs) == rowmill.MaxReuseJobs {
				return nil
			}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	if len(reuse.Jobs) == 0 {
		job.warn("reuse finds no rows: " + cmp.Or(problem, fmt.Sprintf("no job with the name %q has succeeded yet", reuse.From)))
	}
	return nil
}

// reuseProblem returns why rows of a job cannot be taken over; empty if they can.
func (job *CheckedJob) reuseProblem(record store.Record) string {
	_, hasResults := record.Artifacts[layout.Full]
	switch {
	case !record.Job.Status.IsTerminal():
		return "it is " + string(record.Job.Status) + "; wait until it has succeeded"
	case record.Job.Status != rowmill.StatusSucceeded:
		return "it is " + string(record.Job.Status) + ", and so has no results; resume it, and send the id of the resumed job"
	case record.DataRemoved != nil:
		return "its results were removed; leave reuse out"
	case !hasResults:
		return "it has no results; leave reuse out"
	}
	if field := job.Spec.AnswerDifference(&record.Spec); field != "" {
		return fmt.Sprintf("it ran with another %s; send the same value, or leave reuse out", field)
	}
	return ""
}
