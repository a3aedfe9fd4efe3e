package ingest

import (
	"context"
	"errors"
	"math"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
)

// ReserveCost reserves the possible cost of a job, if its account has a cost limit. The
// error is a *rowmill.Failure if the cost exceeds the limit. ReserveCost updates rec to the
// stored record.
func ReserveCost(ctx context.Context, ledger store.Ledger, rec *store.Record, fence store.Fence, input shard.Manifest) error {
	spec := &rec.Spec
	if spec.CostQuota == nil || spec.Estimate {
		return nil
	}
	if spec.Model.NoPrice {
		return rowmill.Failf(rowmill.CodeCostQuota,
			"The account has a cost quota of %v a month, and %s has no price, so the cost of the job cannot be checked. Ask an administrator to give the model input_price and output_price in the catalog, 0 if it costs nothing, or to remove the quota: rowmill quotas set --cost-usd none.",
			rowmill.MoneyFromUSD(*spec.CostQuota), spec.Model.ID)
	}
	usd, _ := unsampledCost(spec, input.Rows-input.Taken-input.Copies, input.Size)
	updated, err := ledger.Reserve(ctx, fence, usd, spec.CostQuota)
	var limit *store.CostLimitError
	if errors.As(err, &limit) {
		return rowmill.Failf(rowmill.CodeCostQuota,
			"The job is beyond the account's cost quota: %v. Wait for other jobs or the next month, submit fewer rows, or ask an administrator to raise the quota: rowmill quotas set --cost-usd N.", limit)
	}
	if err == nil {
		*rec = updated
	}
	return err
}

// unsampledCost returns the expected cost of a job before any of its rows has run, and
// the expected tokens of its answers. It assumes that answers are as long as the
// prompts, up to the maximum length of an answer.
func unsampledCost(spec *rowmill.Spec, rows int64, size shard.TokenCounts) (usd float64, output int64) {
	if spec.Model.Kind != rowmill.KindEmbedding {
		output = min(size.Tokens, rows*int64(spec.AnswerReserve(spec.Model.ContextLength)))
	}
	return spec.Model.TokenCost(size.Tokens, output).USD(), output
}

// ShouldSample reports whether an estimate runs a sample: the first rows of its input.
func (c Config) ShouldSample(spec *rowmill.Spec, size shard.TokenCounts) bool {
	return spec.Estimate && !spec.Priority.IsUrgent() && size.Tokens >= c.SampleFrom
}

// EstimateFromInput returns the expected cost and the estimate of a job from its input alone,
// without a sample. rows is the number of rows that would run. The cost is between the
// cost of the prompts alone and the cost with answers of the maximum length.
func EstimateFromInput(spec *rowmill.Spec, rows int64, size shard.TokenCounts) (float64, rowmill.Estimate) {
	usd, output := unsampledCost(spec, rows, size)
	high := spec.Model.TokenCost(size.Tokens, rows*int64(spec.AnswerReserve(spec.Model.ContextLength))).USD()
	return usd, rowmill.Estimate{
		Method: rowmill.EstimateUnsampled, InputTokens: size.Tokens, OutputTokens: output,
		Low: spec.Model.TokenCost(size.Tokens, 0).USD(), High: max(high, usd),
	}
}

// EstimateFromSample returns the expected cost and the estimate of a job from the answers to a
// sample: its first rows. parts are the parts of the sample, and rows is the number of
// rows that would run. The bounds are a 95 % confidence interval of the mean answer,
// from the variance between the parts (Cochran, Sampling Techniques, 1977, cluster
// sampling). With fewer than three parts, the bounds are the bounds of EstimateFromInput.
func EstimateFromSample(spec *rowmill.Spec, rows int64, size shard.TokenCounts, parts []store.Part) (float64, rowmill.Estimate) {
	_, e := EstimateFromInput(spec, rows, size)
	e.Method = rowmill.EstimateSampled
	var sample store.RowTotals
	for _, p := range parts {
		sample = sample.Plus(p.Totals)
	}
	answered := float64(max(1, sample.Rows-sample.Failed))
	mean := float64(sample.OutputTokens) / answered
	e.SampleRows, e.SampleInputTokens = sample.Rows, sample.InputTokens
	e.OutputTokens = int64(math.Round(mean * float64(rows)))
	cost := func(mean float64) float64 {
		return spec.Model.TokenCost(size.Tokens, int64(math.Round(max(0, mean)*float64(rows)))).USD()
	}
	if n := float64(len(parts)); n >= 3 {
		squares := 0.0
		for _, p := range parts {
			rows := float64(p.Totals.Rows - p.Totals.Failed)
			off := float64(p.Totals.OutputTokens) - mean*rows
			squares += off * off
		}
		off := 1.96 * math.Sqrt(n/(n-1)*squares) / answered
		if sample.Rows == rows {
			off = 0 // the sample is the whole input
		}
		e.Low, e.High = cost(mean-off), cost(mean+off)
	}
	return cost(mean), e
}
