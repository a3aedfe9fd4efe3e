package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/bench/verdict"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

const (
	lookEvery    = 250 * time.Millisecond
	tidyTimeout  = 30 * time.Second   // a cancelled job ends within seconds
	jobPatience  = 5 * time.Minute    // additional time after --length, for a job that waits for other jobs
	jobPriority  = rowmill.Production // urgent jobs run first
	jobDescribed = "rowmill bench made this job to measure this deployment, and deletes its data at the end"
)

// runJob runs rowCount rows as a Rowmill job, and deletes the job's data, also after an
// interrupt. The name of the job contains runName.
func (b *benchRun) runJob(ctx context.Context, api *client.Client, model client.Model, runName string, rowCount int) (verdict.JobMeasurement, error) {
	if err := ctx.Err(); err != nil {
		return verdict.JobMeasurement{}, context.Cause(ctx)
	}
	sampling := b.samplingParams()
	sampling["logprobs"] = false
	// An interrupt does not stop the submission, because its answer has the ID of the
	// job that must be cancelled.
	submitting, done := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
	defer done()
	made, err := api.Submit(submitting, client.Submission{
		Rows: client.RowsOf(b.makePrompts(runName, rowCount)...), Model: model.ID, Sampling: sampling, Priority: jobPriority,
		Name: fmt.Sprintf("rowmill bench %s, %s", b.nonce, runName), Description: jobDescribed,
	})
	if err != nil {
		return verdict.JobMeasurement{}, b.explainSubmitError(err, rowCount)
	}
	within := b.length + jobPatience
	waiting, stop := context.WithTimeoutCause(ctx, within, exit.WithCode(exit.Timeout, fmt.Errorf("%s has not ended after %v: `rowmill actors --job` says what it waits for", made.JobID, within)))
	defer stop()
	job, seen, err := b.followJob(waiting, api, made.JobID, rowCount)
	if err == nil && job.Status == rowmill.StatusSucceeded {
		seen.Bytes, err = api.Stream(ctx, made.JobID, client.Results{Format: "parquet"}, io.Discard)
	}
	if tidied := b.cleanUpJob(ctx, api, made.JobID); tidied != nil {
		b.Term.Say("the data of %s is not deleted: %s", made.JobID, terminal.SanitizeLine(tidied.Error()))
	}
	if err != nil {
		return seen, err
	}
	if job.Status != rowmill.StatusSucceeded {
		why := job.Message
		if job.FailureReason != nil {
			why = job.FailureReason.Message
			if code := job.FailureReason.Code; code == rowmill.CodeRowQuota || code == rowmill.CodeTokenQuota || code == rowmill.CodeCostQuota {
				return seen, b.newQuotaError(why, rowCount)
			}
		}
		seen.Problem = fmt.Sprintf("%s is %s: %s", job.ID, job.Status, why)
	}
	return seen, nil
}

// explainSubmitError returns the error of a submission that the service refused. If a quota is the
// reason, the error includes the remedy.
func (b *benchRun) explainSubmitError(err error, n int) error {
	var refusal *client.APIError
	if errors.As(err, &refusal) {
		switch refusal.Code {
		case rowmill.CodeRowQuota, rowmill.CodeTokenQuota, rowmill.CodeCostQuota:
			return b.newQuotaError(refusal.Message, n)
		}
	}
	return fmt.Errorf("submit the job: %w", err)
}

func (b *benchRun) newQuotaError(why string, n int) error {
	return exit.WithCode(exit.Failure, fmt.Errorf("a quota forbids the job of %d rows: %s; give a smaller --max-rows or --max-tokens, or raise the quota (`rowmill quotas set`)", n, why))
}

// followJob waits until a job ends, and meanwhile records the load of the servers.
func (b *benchRun) followJob(ctx context.Context, api *client.Client, id string, n int) (client.Job, verdict.JobMeasurement, error) {
	seen := verdict.JobMeasurement{Rows: n}
	var job client.Job
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return job, seen, context.Cause(ctx)
		case <-tick.C:
		}
		var all client.EngineList
		var looked, listed error
		var both sync.WaitGroup
		both.Go(func() { job, looked = api.Job(ctx, id) })
		both.Go(func() { all, _, listed = api.ListEngines(ctx) })
		both.Wait()
		if err := errors.Join(looked, listed); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return job, seen, fmt.Errorf("follow %s: %w", id, err)
		}
		inFlight := 0
		for _, e := range all.Engines {
			if servedModelName(e, job.Model) != "" {
				inFlight, seen.Window = inFlight+int(e.InFlight), max(seen.Window, int(e.Window))
			}
		}
		seen.InFlight = max(seen.InFlight, inFlight)
		if !job.Status.IsTerminal() {
			continue
		}
		if job.Started != nil && job.Completed != nil {
			seen.Waited, seen.Seconds = job.Started.Sub(job.Created).Seconds(), job.Completed.Sub(*job.Started).Seconds()
		}
		seen.Failed = job.FailedRows
		for _, tokens := range []*int64{job.InputTokens, job.OutputTokens} {
			if tokens != nil {
				seen.Tokens += *tokens
			}
		}
		return job, seen, nil
	}
}

// cleanUpJob cancels a job that has not ended and deletes the job's data. It also works after
// an interrupt of the command.
func (b *benchRun) cleanUpJob(ctx context.Context, api *client.Client, id string) error {
	interrupted := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
	defer cancel()
	if _, _, err := api.CancelJob(ctx, id); err != nil { // harmless if the job has ended
		return err
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		_, _, err := api.DeleteData(ctx, id)
		if err == nil && interrupted {
			b.Term.Say("interrupted: %s is cancelled and its data deleted", id)
		}
		if !errors.Is(err, rowmill.ErrConflict) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
