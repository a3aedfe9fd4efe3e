package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// maxModels is the largest number of models that can run one input: the API's limit of a set.
const maxModels = 4

// readModels reads the flag --model. Several models become the variants of a set.
func (s *submitFlags) readModels() error {
	if len(s.models) > 0 {
		s.Model = s.models[0]
	}
	if len(s.models) < 2 {
		return nil
	}
	switch {
	case len(s.models) > maxModels:
		return fmt.Errorf("is given %d times; it may be given at most %d times", len(s.models), maxModels)
	case s.Estimate:
		return errors.New("cannot be given twice with --estimate; estimate each model by itself")
	case s.run != "":
		return errors.New("cannot be used with --function, which names the model")
	}
	s.Variants = nil
	for i, model := range s.models {
		if slices.Contains(s.models[:i], model) {
			return fmt.Errorf("names %s twice", model)
		}
		v := client.Variant{Model: model, Output: model}
		if len([]rune(model)) <= rowmill.MaxNameRunes && s.Name == "" {
			v.Name = model
		}
		s.Variants = append(s.Variants, v)
	}
	return nil
}

// checkSetOutput returns an error for results that the command cannot write for several models.
func (s *submitFlags) checkSetOutput() error {
	if len(s.Variants) == 0 || s.detach {
		return nil
	}
	if err := s.save.checkJoint(); err != nil {
		return exit.WithCode(exit.Usage, fmt.Errorf("several models have one result file: %w", err))
	}
	return nil
}

// send submits the job, or the set of jobs. A set has no forecast.
func (s *submitFlags) send(ctx context.Context, api *client.Client) (ids, warnings []string, forecast *client.Forecast, err error) {
	if len(s.Variants) > 0 {
		made, err := api.SubmitSet(ctx, s.Submission)
		return made.Jobs, made.Warnings, nil, err
	}
	made, err := api.Submit(ctx, s.Submission)
	return []string{made.JobID}, made.Warnings, made.Forecast, err
}

// checkJoint returns an error if the flags ask for results that a joint file cannot be.
func (s *resultFlags) checkJoint() error {
	switch {
	case s.want.Format != "parquet" || s.path == stdout:
		return errors.New("it is Parquet; name a file that ends in .parquet with --output")
	case s.want.Unpack || s.want.Meta || s.want.Logprobs:
		return errors.New("it has the columns of the input and one column of answers for each model; leave out --unpack, --include-meta and --include-logprobs")
	}
	return nil
}

// saveJoint writes the results of several jobs as one Parquet file.
func (c *jobCommands) saveJoint(ctx context.Context, api *client.Client, ids []string, s *resultFlags) error {
	size, err := api.SaveJoint(ctx, ids, s.path)
	if err != nil {
		return fmt.Errorf("results of %d jobs: %w", len(ids), err)
	}
	c.Term.Say("wrote %s (%s)", s.path, textfmt.FormatSize(size))
	return nil
}

// nameModel returns the beginning of a message about a job: its model, if the run has several.
func (s *submitFlags) nameModel(job client.Job) string {
	if len(s.Variants) == 0 {
		return ""
	}
	return job.Model + ": "
}
