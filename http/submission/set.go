package submission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/input/function"
)

// A set is two to four jobs on one input. The first job reads the input, and the other jobs read the
// stored input of the first job.

const (
	fieldVariants = "variants"
	// minVariants and maxVariants limit the jobs of a set. Four jobs is also the limit of a comparison.
	minVariants = 2
	maxVariants = 4
)

// variantFields are the fields of a submission that a variant may have, too.
var variantFields = []string{
	fieldModel, fieldFunction, fieldPrompt, fieldSystem, fieldSchema, fieldSampling,
	"random_seed_per_input", "repair", "dedup", fieldOutput, "name", "description",
}

// inputFields are the fields about the input that only the first job of a set has.
var inputFields = []string{fieldWhere, fieldColumn, fieldIDColumn, "input_format", "messages", "keep_columns"}

// CheckSet checks every rule for a submission with variants. It returns one job for each variant, or
// all problems as a *rowmill.InvalidError. The fields of a variant replace those of the submission.
func (sub *Submission) CheckSet(ctx context.Context, account string) (jobs []*CheckedJob, err error) {
	variants := sub.readVariants()
	if err := sub.problems.Err(); err != nil {
		return nil, err
	}
	var problems request.Problems
	var ids []string
	shared := sub.fields
	for i, fields := range variants {
		member := sub
		member.ofSet = true
		if i > 0 {
			member = sub.newSubmission(ctx)
			member.inSet, member.ofSet, member.fromJob, member.source = true, true, sub.jobID, jobs[0].ToRecord(sub.Now())
		}
		member.fields, member.problems = mergeFields(shared, fields, i > 0), request.Problems{}
		job, err := member.Check(ctx, account)
		var invalid *rowmill.InvalidError
		switch {
		case errors.As(err, &invalid):
			addVariantProblems(&problems, invalid, i, fields)
		case err != nil:
			return nil, err
		default:
			jobs, ids = append(jobs, job), append(ids, job.ID)
		}
		if i == 0 && err != nil {
			break // the other jobs read the input of the first
		}
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	if err := jobs[0].addColumnsOf(jobs[1:]); err != nil {
		return nil, err
	}
	for _, job := range jobs {
		job.set = ids
	}
	return jobs, nil
}

// readVariants returns the fields of each variant.
func (sub *Submission) readVariants() (variants []map[string]json.RawMessage) {
	if !sub.decodeField(fieldVariants, "an array of objects", &variants) {
		if !sub.problems.Has(fieldVariants) {
			sub.problems.Add(fieldVariants, "is missing; send %d to %d objects, such as {\"model\": \"…\"}", minVariants, maxVariants)
		}
		return nil
	}
	if n := len(variants); n < minVariants || n > maxVariants {
		sub.problems.Add(fieldVariants, "has %d variants; it must have %d to %d", n, minVariants, maxVariants)
		return nil
	}
	delete(sub.fields, fieldVariants)
	if estimate := false; sub.decodeField("cost_estimate", "a boolean", &estimate) && estimate {
		sub.problems.Add("cost_estimate", "cannot be used in a set; estimate the cost of each variant by itself")
	}
	for i, fields := range variants {
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if string(fields[name]) == "null" {
				delete(fields, name)
			} else if !slices.Contains(variantFields, name) {
				sub.problems.Add(fmt.Sprintf("%s[%d].%s", fieldVariants, i, name), "is not a field of a variant; a variant may have %s", strings.Join(variantFields, ", "))
				delete(fields, name)
			}
		}
	}
	return variants
}

// mergeFields returns the fields of a job of a set. If the job reads the stored input of another
// job, it has no fields about the input.
func mergeFields(shared, variant map[string]json.RawMessage, isStored bool) map[string]json.RawMessage {
	fields := maps.Clone(shared)
	maps.Copy(fields, variant)
	for _, name := range inputFields {
		if isStored {
			delete(fields, name)
		}
	}
	return fields
}

// addVariantProblems adds the problems of variant i. A problem of a field that the variant does not
// have is a problem of the submission, and is added once.
func addVariantProblems(problems *request.Problems, invalid *rowmill.InvalidError, i int, variant map[string]json.RawMessage) {
	for _, f := range invalid.Fields {
		name, _, _ := strings.Cut(f.Field, ".")
		name, _, _ = strings.Cut(name, "[")
		if _, own := variant[name]; own {
			f.Field = fmt.Sprintf("%s[%d].%s", fieldVariants, i, f.Field)
		} else if problems.Has(f.Field) {
			continue
		}
		problems.AddWithCode(invalid.Code, f)
	}
}

// addColumnsOf makes the first job of a set store the columns that the prompts of the other jobs need.
func (job *CheckedJob) addColumnsOf(others []*CheckedJob) (err error) {
	if job.prompt == nil {
		return nil // the rows have no columns, and useSource has refused prompts that need columns
	}
	inputs := slices.Clone(job.prompt.Inputs())
	for _, other := range others {
		if other.prompt == nil {
			continue
		}
		for _, in := range other.prompt.Inputs() {
			if !slices.ContainsFunc(inputs, func(known rowmill.FunctionInput) bool { return known.Name == in.Name }) {
				inputs = append(inputs, in)
			}
		}
	}
	job.Spec.Function = &rowmill.FunctionPrompt{Inputs: inputs, Prompt: job.Spec.Function.Prompt}
	if job.prompt, err = function.NewPrompt(*job.Spec.Function); err != nil {
		return err
	}
	if job.sub.fromJob != "" {
		job.sub.useSource(job) // the other prompts may need answers, too
	}
	job.sub.checkRows(job)
	return job.sub.problems.Err()
}

// Join makes the job number i of a set with these ids, which an earlier request has chosen.
func (job *CheckedJob) Join(ids []string, i int) {
	job.ID, job.set, job.Spec.FromJob = ids[i], ids, ids[0]
}
