package submission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// findSource reads the record of the job that inputs names. If its stored input cannot be read,
// findSource adds a problem.
func (sub *Submission) findSource(ctx context.Context, account string) error {
	if sub.fromJob == "" || sub.inSet {
		return nil
	}
	record, err := sub.Jobs.Get(ctx, sub.fromJob)
	switch {
	case errors.Is(err, rowmill.ErrNotFound) || err == nil && record.Spec.Account != account:
		sub.problems.Add(fieldInputs, "names the job %q, which does not exist; send job: and the id of a job of your account", textfmt.Shorten(sub.fromJob, 64))
		return nil
	case err != nil:
		return fmt.Errorf("read the job in inputs: %w", err)
	}
	if problem := sourceProblem(record); problem != "" {
		sub.problems.Add(fieldInputs, "names the job %s: %s", record.Job.ID, problem)
		return nil
	}
	sub.source = record
	return nil
}

// sourceProblem returns why the stored input of a job cannot be read by another job; empty if it
// can.
func sourceProblem(record store.Record) string {
	_, hasResults := record.Artifacts[layout.Full]
	switch {
	case record.Spec.Raw != nil:
		return "its rows are requests of a batch; send them as a new batch"
	case record.SpecDamaged:
		return "its specification is damaged in the record store; send the rows again"
	case record.DataRemoved == nil && hasResults: // they have the inputs, and the input itself is removed at the end of the job
		return ""
	case record.DataRemoved != nil || record.InputRemoved != nil:
		return "its input was removed, because jobs.input_retention or the retention ended; send the rows again"
	case record.Spec.Inline == nil && !record.IsCutIntoShards() && record.Job.Status.IsTerminal():
		return "it ended before its input was read; send the rows again"
	}
	return "" // the new job waits until the input is read
}

// answersProblem returns why the answers of a job cannot be read by another job; empty if they can.
// The job may still be open: the other job waits for its end.
func answersProblem(record store.Record) string {
	switch {
	case record.Spec.Model.Kind == rowmill.KindEmbedding:
		return "its answers are embeddings, and not texts"
	case record.Job.RunType == rowmill.RunEstimate:
		return "it is an estimate, which keeps no answers"
	case record.Job.Status.IsTerminal() && record.Job.Status != rowmill.StatusSucceeded:
		return fmt.Sprintf("it is %s, and so has no results; resume it, and send the id of the resumed job", record.Job.Status)
	case record.DataRemoved != nil:
		return "its results were removed; run it again"
	}
	return ""
}

// rowColumn is the name of the ID column of a job that reads the answers of a job without IDs: its
// rows have the numbers of that job's rows.
const rowColumn = "row"

// readsAnswers reports whether the job needs the answers of the job in inputs: for its condition, or
// because its prompt has a placeholder for them.
func (sub *Submission) readsAnswers(job *CheckedJob) bool {
	if job.Spec.Where != "" {
		return true
	}
	return !sub.inSet && job.prompt != nil && slices.ContainsFunc(job.prompt.Inputs(), func(in rowmill.FunctionInput) bool {
		return input.IsAnswerColumn(in.Name) && !sub.source.Spec.HasOwnColumn(in.Name)
	})
}

// useSource makes the job read the stored input of another job. The stored rows have their IDs,
// and the columns of their prompt.
func (sub *Submission) useSource(job *CheckedJob) {
	was := &sub.source.Spec
	if sub.source.Job.ID == "" {
		return // a problem says why
	}
	job.Spec.FromJob, job.Spec.IDColumn = sub.source.Job.ID, was.IDColumn
	if was.Limit > 0 && sub.source.InputRemoved != nil {
		job.warn(fmt.Sprintf("inputs: only the rows that job %s ran are still stored; the job does not read the other rows of its input, because jobs.input_retention ended", sub.source.Job.ID))
	}
	answers := sub.readsAnswers(job)
	if answers {
		if problem := answersProblem(sub.source); problem != "" {
			sub.problems.Add(fieldInputs, "names the job %s: %s", sub.source.Job.ID, problem)
			return
		}
		job.Spec.FromAnswers = true
		if job.Spec.IDColumn == "" && !job.prompt.HasInput(rowColumn) {
			job.Spec.IDColumn = rowColumn
		}
	}
	if job.prompt == nil {
		job.Spec.Messages = was.Messages
		return
	}
	field := fieldPrompt
	if job.call != nil {
		field = fieldModel
	}
	if sub.inSet && was.Function == nil {
		sub.problems.Add(field, "needs columns, but the rows of the first variant are texts without columns; give the first variant a prompt, too")
		return
	}
	columns := results.FieldColumns(was.Function)
	if was.Function == nil && answers {
		columns = []string{input.TextColumn}
	} else if was.Function == nil {
		sub.problems.Add(field, "needs columns, but the rows of job %s are texts without columns; send the file again", sub.source.Job.ID)
		return
	}
	for _, in := range job.prompt.Inputs() {
		if in.Required && !sub.inSet && !slices.Contains(columns, in.Name) && !(answers && input.IsAnswerColumn(in.Name)) {
			sub.problems.Add(field, "needs the column %q, which the stored input of job %s lacks; it has %s", in.Name, sub.source.Job.ID, strings.Join(columns, ", "))
		}
	}
}
