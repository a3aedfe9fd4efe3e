package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

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
	usd, _ := unsampledCost(spec, shard.InputSize{Rows: input.Rows - input.Taken - input.Copies, Tokens: input.Tokens})
	updated, err := ledger.Reserve(ctx, fence, usd, spec.CostQuota)
	if limit, ok := errors.AsType[*store.CostLimitError](err); ok {
		reserved := ""
		if limit.Reserved > 0 {
			reserved = fmt.Sprintf(" and %s are reserved for jobs that run", dollars(limit.Reserved))
		}
		return rowmill.Failf(rowmill.CodeCostQuota,
			"The job can cost up to %s. %s of the account's monthly %s are spent%s. Wait for the next month, submit fewer rows, or ask an administrator to raise the quota: rowmill quotas set --cost-usd N.",
			dollars(limit.Asked), dollars(limit.Spent), dollars(limit.Limit), reserved)
	}
	if err == nil {
		*rec = updated
	}
	return err
}

// dollars writes an amount with two decimals, or with three significant digits if it is less
// than a dollar.
func dollars(m rowmill.Money) string {
	usd, decimals := m.USD(), 2
	if usd > 0 {
		decimals = max(decimals, 2-int(math.Floor(math.Log10(usd))))
	}
	return "$" + strconv.FormatFloat(usd, 'f', decimals, 64)
}

// unsampledCost returns the expected cost of a job before any of its rows has run, and
// the expected tokens of its answers. It assumes that answers are as long as the
// prompts, up to the maximum length of an answer.
func unsampledCost(spec *rowmill.Spec, size shard.InputSize) (usd float64, output int64) {
	if spec.Model.Kind != rowmill.KindEmbedding {
		output = min(size.Tokens, size.Rows*int64(spec.AnswerReserve(spec.Model.ContextLength)))
	}
	return spec.Model.TokenCost(size.Tokens, output).USD(), output
}

// EstimateFromInput returns the expected cost and the estimate of a job from its input alone.
// The cost is between the cost of the prompts alone and the cost with answers of the maximum
// length.
func EstimateFromInput(spec *rowmill.Spec, size shard.InputSize) (float64, rowmill.Estimate) {
	usd, output := unsampledCost(spec, size)
	high := spec.Model.TokenCost(size.Tokens, size.Rows*int64(spec.AnswerReserve(spec.Model.ContextLength))).USD()
	return usd, rowmill.Estimate{
		Method: rowmill.EstimateUnsampled, InputTokens: size.Tokens, OutputTokens: output,
		Low: spec.Model.TokenCost(size.Tokens, 0).USD(), High: max(high, usd),
	}
}

// An AnsweredRow has the tokens of a row of a sample and of its answer, and the time of its
// request.
type AnsweredRow struct {
	InputTokens, OutputTokens int64
	Seconds                   float64
}

const normal = 1.2816 // 90 % quantile of the normal distribution

// EstimateFromSample returns the expected cost and the estimate of a job from the answers to a
// sample of its rows. m is the manifest of the sample. The server counts input tokens, so the
// ratio of its count to ours corrects the count of the whole input. The bounds are an 80 %
// confidence interval of the mean answer. Without an answer, the estimate is that of the input
// alone. q decides the time of the job.
func EstimateFromSample(spec *rowmill.Spec, m shard.Manifest, answers []AnsweredRow, q Queue) (float64, rowmill.Estimate) {
	size, n := m.Estimated, len(answers)
	if n == 0 {
		return EstimateFromInput(spec, size)
	}
	var input, output int64
	for _, a := range answers {
		input += a.InputTokens
		output += a.OutputTokens
	}
	if m.Tokens > 0 && input > 0 {
		ratio := float64(input) / float64(n) / (float64(m.Tokens) / float64(m.Rows))
		size.Tokens = int64(math.Round(float64(size.Tokens) * ratio))
	}
	_, e := EstimateFromInput(spec, size)
	e.Method, e.SampleRows, e.SampleInputTokens = rowmill.EstimateSampled, int64(n), input
	mean := float64(output) / float64(n)
	cost := func(mean float64) float64 {
		return spec.Model.TokenCost(size.Tokens, int64(math.Round(max(0, mean)*float64(size.Rows)))).USD()
	}
	e.OutputTokens = int64(math.Round(mean * float64(size.Rows)))
	if off, known := meanError(answers, size.Rows); known {
		e.Low, e.High = cost(mean-off), cost(mean+off)
	}
	forecastSeconds(&e, spec.Model.Kind, size.Rows, answers, q)
	return cost(mean), e
}

// meanError returns how far the mean answer of all rows can be from the mean answer of a sample,
// with a probability of 80 %. It is not known for a single row of many.
//
// The sample is stratified by the length of the prompts, so its rows, ordered by length, are
// like a systematic sample: the variance comes from the differences of neighbours (Wolter,
// Introduction to Variance Estimation, 2007, chapter 8, v2).
func meanError(answers []AnsweredRow, rows int64) (off float64, known bool) {
	n := float64(len(answers))
	if int64(len(answers)) >= rows {
		return 0, true
	}
	if len(answers) == 1 {
		return 0, false
	}
	byLength := slices.SortedStableFunc(slices.Values(answers), func(a, b AnsweredRow) int { return cmp.Compare(a.InputTokens, b.InputTokens) })
	squares := 0.0
	for i, a := range byLength[1:] {
		step := float64(a.OutputTokens - byLength[i].OutputTokens)
		squares += step * step
	}
	variance := squares / (2 * (n - 1))
	student := normal + (normal*normal*normal+normal)/(4*(n-1))
	return student * math.Sqrt(variance/n*(1-n/float64(rows))), true
}
