package jobs

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// inputSize holds the number of rows and tokens of an input; zero if the input was not
// counted.
type inputSize struct {
	rows   int64
	tokens int64 // estimated tokens of all prompts
}

// countedRows is how many rows are counted to estimate inputSize.tokens. The other rows are
// assumed to have the same mean length: to count each row would take longer than to send
// it.
const countedRows = 1000

// newTokenEstimator returns a function that estimates the tokens of a prompt for the model
// of a submission. It uses the model's template, but computes tokens from bytes,
// without the model's vocabulary.
func newTokenEstimator(s *submitFlags) func(text string) int {
	model, _ := catalog.Default().Find(s.Model)
	counters := prompt.NewCounterFactory(func(rowmill.Model) (prompt.Tokenizer, string, error) { return nil, "", nil },
		func(string, float64) {}, slog.New(slog.DiscardHandler))
	counter, err := counters.NewCounter(&rowmill.Spec{Model: model, System: s.System, Messages: s.Messages})
	if err != nil {
		return func(text string) int { return len(text) / prompt.BytesPerToken }
	}
	return counter.Count
}

// measureInput reads the whole input once and returns its size. So an error in the last line
// of the input is found before anything is sent.
func (s *localInput) measureInput(ctx context.Context, countTokens func(text string) int) (n inputSize, err error) {
	for row, err := range s.rows() {
		if err != nil {
			return n, exit.WithCode(exit.Failure, err)
		}
		if n.rows++; n.rows <= countedRows {
			n.tokens += int64(countTokens(row))
		}
		if n.rows%4096 == 0 && ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
	}
	if n.rows == 0 {
		return n, exit.WithCode(exit.Usage, fmt.Errorf("%s has no rows", s.name))
	}
	n.tokens = n.tokens * n.rows / min(n.rows, countedRows)
	return n, nil
}

// checkQuotas returns an error if an input has more rows than the account may run in
// one job, and prints a warning if it has too many tokens. It runs before any row is
// sent.
func (c *jobCommands) checkQuotas(ctx context.Context, api *client.Client, name string, priority rowmill.Priority, size inputSize) error {
	limits, _, err := api.GetQuotas(ctx)
	if err != nil {
		return nil //nolint:nilerr // the service checks the quotas again
	}
	for _, limit := range limits.Quotas {
		switch {
		case limit.Priority != priority:
		case limit.RowQuota > 0 && size.rows > limit.RowQuota:
			return exit.WithCode(exit.Usage, fmt.Errorf("%s has %s rows, and your account may run %s in one job of priority %d; split the input, or have an administrator raise the quota: rowmill quotas set --priority %d --rows %d",
				name, terminal.FormatCount(size.rows), terminal.FormatCount(limit.RowQuota), priority, priority, size.rows))
		case limit.TokenQuota > 0 && size.tokens > limit.TokenQuota:
			c.Term.Say("warning: the prompts have about %s tokens, and your account may run %s in one job of priority %d: the job will probably fail with token_quota_exceeded; split the input, or have an administrator raise the quota: rowmill quotas set --priority %d --tokens %d",
				terminal.FormatCount(size.tokens), terminal.FormatCount(limit.TokenQuota), priority, priority, size.tokens*5/4)
		}
	}
	return nil
}

// chooseModel sets the model of a submission without a model, if the default model is
// not served: to the only served model. If several models are served, it returns a
// usage error.
func (c *jobCommands) chooseModel(ctx context.Context, api *client.Client, s *submitFlags) error {
	if s.Model != "" || s.Function != nil {
		return nil
	}
	models, _, err := api.ListModels(ctx)
	if err != nil {
		return nil //nolint:nilerr // the service uses its default or returns an error
	}
	var served []string
	for _, m := range models.Data {
		switch {
		case len(m.ServedBy) == 0:
		case m.ID == catalog.DefaultModel:
			return nil
		default:
			served = append(served, m.ID)
		}
	}
	switch len(served) {
	case 0:
	case 1:
		s.Model = served[0]
		c.Term.Say("using the model %s, the only one that is served; --model overrides", s.Model)
	default:
		return exit.WithCode(exit.Usage, fmt.Errorf("no server has %s, the default model; choose one with --model: %s", catalog.DefaultModel, terminal.AbbreviateList(served)))
	}
	return nil
}
