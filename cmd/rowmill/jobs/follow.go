package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// firstPoll is the time to the second look at a job; each further pause is
// half as long again until it is poll. Short jobs end at once.
const firstPoll = 100 * time.Millisecond

// follow shows a job's progress until it is over, and returns its record. A
// service that is away for less than patience is waited for.
func (c *commands) follow(ctx context.Context, api *client.Client, id string) (client.Job, error) {
	progress := terminal.NewProgress(c.Term)
	defer progress.Pause()
	told := 0 // warnings said
	pause := min(firstPoll, c.poll)
	reached := c.Term.Now()
	for away := false; ; {
		job, err := api.Job(ctx, id)
		switch {
		case ctx.Err() != nil:
			return client.Job{}, context.Cause(ctx)
		case err == nil:
			away, reached = false, c.Term.Now()
			for ; told < len(job.Warnings); told++ {
				progress.Pause()
				c.Term.Say("warning: %s", job.Warnings[told])
			}
			progress.Update(snapshot(job, reached))
			if job.Status.Terminal() {
				return job, nil
			}
		case !client.Passing(err) || c.Term.Now().Sub(reached) > c.patience:
			return client.Job{}, fmt.Errorf("follow %s: %w", id, err)
		case !away:
			away = true
			progress.Pause()
			c.Term.Say("%v; trying again for %v, the job goes on", err, c.patience)
		}
		wait := pause
		var refusal *client.APIError
		if errors.As(err, &refusal) {
			wait = max(wait, refusal.RetryAfter)
		}
		select {
		case <-ctx.Done():
			return client.Job{}, context.Cause(ctx)
		case <-time.After(wait):
		}
		pause = min(pause*3/2, c.poll)
	}
}

// snapshot turns a record into what the progress line shows.
func snapshot(job client.Job, now time.Time) terminal.Snapshot {
	s := terminal.Snapshot{
		Now: now, Phase: string(job.Status), Note: job.Message, Unit: "rows",
		Done: job.RowsDone, Total: -1, Failed: job.FailedRows,
		Tokens: number(job.InputTokens) + number(job.OutputTokens),
	}
	if job.NumRows != nil && (job.Status == rowmill.StatusRunning || job.Status.Terminal()) {
		s.Total = *job.NumRows
	}
	return s
}

// outcome is nil for a succeeded job and otherwise says why there are no
// results, with the exit code for it.
func outcome(job client.Job) error {
	switch job.Status {
	case rowmill.StatusSucceeded:
		return nil
	case rowmill.StatusCancelled:
		return exit.With(exit.Cancelled, fmt.Errorf("%s was cancelled%s", job.ID, left(job)))
	case rowmill.StatusFailed:
		message := "no reason was recorded"
		if f := job.FailureReason; f != nil {
			message = fmt.Sprintf("%s (%s)", f.Message, f.Code)
			if f.AdditionalContext != "" {
				message += "\n  " + f.AdditionalContext
			}
		}
		if job.FailedRows > 0 {
			message += fmt.Sprintf("\n%s rows failed; see why: rowmill jobs errors %s", terminal.Count(job.FailedRows), job.ID)
		}
		return exit.With(exit.JobFailed, fmt.Errorf("%s failed: %s%s", job.ID, message, left(job)))
	}
	return exit.With(exit.Failure, fmt.Errorf("%s is %s", job.ID, job.Status))
}

// left says what may be done with the rows that a job has committed which did
// not succeed.
func left(job client.Job) string {
	if job.RowsDone == 0 || job.RunType == rowmill.RunEstimate {
		return ""
	}
	return fmt.Sprintf("\n%[1]s rows are done; have them: rowmill jobs results %[2]s --partial, run the rest: rowmill jobs resume %[2]s",
		terminal.Count(job.RowsDone), job.ID)
}

func number(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}
