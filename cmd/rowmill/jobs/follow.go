package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// firstPoll is the pause between the first and the second request for a job, so that
// the command returns soon after a short job. Each later pause is 1.5 times as long as
// the pause before, up to poll. From then on the command listens to the service's
// events.
const firstPoll = 100 * time.Millisecond

// firstEvent is how long the command waits for the first event. A service sends the
// first event at once, but a proxy may hold the stream back until it ends.
const firstEvent = 5 * time.Second

// followJob shows a job's progress until the job ends, and returns the job's record. If
// the service does not answer, it tries again until the time patience has passed.
func (c *jobCommands) followJob(ctx context.Context, api *client.Client, id string) (client.Job, error) {
	f := &jobFollower{jobCommands: c, id: id, progress: terminal.NewProgress(c.Term), lastAnswer: c.Term.Now()}
	defer f.progress.Clear()
	pause := min(firstPoll, c.poll)
	listened := false
	for {
		job, err := api.Job(ctx, id)
		over, err := f.handleAnswer(ctx, job, err)
		if over || err != nil {
			return job, err
		}
		if !f.unreachable && pause == c.poll && !listened {
			listened = true
			if over, err := f.followEvents(ctx, api); over || err != nil {
				return f.last, err
			}
		}
		select {
		case <-ctx.Done():
			return client.Job{}, context.Cause(ctx)
		case <-time.After(max(pause, f.wait)):
		}
		pause = min(pause*3/2, c.poll)
	}
}

// A jobFollower is the state of the command while it follows one job.
type jobFollower struct {
	*jobCommands
	id          string
	progress    *terminal.Progress
	last        client.Job    // latest record of the job
	lastAnswer  time.Time     // time of the service's last answer
	unreachable bool          // the service does not answer, and a message about this was printed
	wait        time.Duration // pause before the next request that the service asked for
}

// handleAnswer handles the answer to a request for the job: a record or an error. jobEnded
// reports whether the job has ended. The returned error ends the following; it is nil if
// the command must try again.
func (f *jobFollower) handleAnswer(ctx context.Context, job client.Job, err error) (jobEnded bool, _ error) {
	f.wait = 0
	var refusal *client.APIError
	if errors.As(err, &refusal) {
		f.wait = refusal.RetryAfter
	}
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err == nil:
		f.unreachable, f.lastAnswer, f.last = false, f.Term.Now(), job
		if slices.ContainsFunc(job.Warnings, func(warning string) bool { return !f.warned[warning] }) {
			f.progress.Clear()
			f.printWarnings(job.Warnings)
		}
		f.progress.Update(progressSnapshot(job, f.lastAnswer))
		return job.Status.IsTerminal(), nil
	case !client.Temporary(err) || f.Term.Now().Sub(f.lastAnswer) > f.patience:
		return false, fmt.Errorf("follow %s: %w", f.id, err)
	case !f.unreachable:
		f.unreachable = true
		f.progress.Clear()
		f.Term.Say("%v; trying again for %v, the job goes on", err, f.patience)
	}
	return false, nil
}

// An eventOrError is an event of the service's event stream, or an error of the stream.
type eventOrError struct {
	event client.Event
	err   error
}

// followEvents follows the job by the service's events until the job ends. If it returns
// false and no error, the caller must request the job instead of events: the service or
// a proxy does not support events, has no room for a stream, or sent an answer that a
// request for the job explains better.
func (f *jobFollower) followEvents(ctx context.Context, api *client.Client) (jobEnded bool, _ error) {
	ctx, leave := context.WithCancel(ctx)
	var ended sync.WaitGroup
	defer ended.Wait()
	defer leave()
	all := make(chan eventOrError)
	ended.Go(func() {
		defer close(all)
		for event, err := range api.Events(ctx, client.Subscription{Topics: []string{"job:" + f.id}, Pause: f.poll}) {
			select {
			case all <- eventOrError{event, err}:
			case <-ctx.Done():
				return
			}
		}
	})
	tick := time.NewTicker(f.poll)
	defer tick.Stop()
	silent := time.NewTimer(min(firstEvent, f.patience))
	defer silent.Stop()
	for begun := false; ; {
		select {
		case h, more := <-all:
			switch {
			case ctx.Err() != nil:
				return false, context.Cause(ctx)
			case !more, h.err != nil && (!begun || !client.Temporary(h.err)):
				return false, nil
			case h.err == nil && h.event.Name != client.EventJob:
				continue
			}
			begun = true
			silent.Stop()
			if over, err := f.handleAnswer(ctx, h.event.Job, h.err); over || err != nil {
				return over, err
			}
		case <-silent.C:
			return false, nil
		case <-tick.C: // update the time in the progress line
			if !f.unreachable {
				f.lastAnswer = f.Term.Now()
				f.progress.Update(progressSnapshot(f.last, f.lastAnswer))
			}
		}
	}
}

// progressSnapshot converts the record of a job to the content of the progress line.
func progressSnapshot(job client.Job, now time.Time) terminal.ProgressSnapshot {
	s := terminal.ProgressSnapshot{
		Now: now, Phase: string(job.Status), Note: job.Message, Unit: "rows",
		Done: job.RowsDone, Total: -1, Failed: job.FailedRows,
		Tokens: terminal.Deref(job.InputTokens) + terminal.Deref(job.OutputTokens),
	}
	if job.NumRows != nil && job.RunType != rowmill.RunEstimate && (job.Status == rowmill.StatusRunning || job.Status.IsTerminal()) {
		s.Total = *job.NumRows
	}
	return s
}

// outcomeError returns nil for a succeeded job. For another job it returns an error that
// says why there are no results, with the exit code.
func outcomeError(job client.Job) error {
	switch job.Status {
	case rowmill.StatusSucceeded:
		return nil
	case rowmill.StatusCancelled:
		return exit.WithCode(exit.Cancelled, fmt.Errorf("%s was cancelled%s", job.ID, committedRowsHint(job)))
	case rowmill.StatusFailed:
		message := describeFailure(job)
		if job.FailedRows > 0 {
			message += fmt.Sprintf("\n%s rows failed; see why: rowmill jobs errors %s", terminal.FormatCount(job.FailedRows), job.ID)
		}
		return exit.WithCode(exit.JobFailed, fmt.Errorf("%s failed: %s%s", job.ID, message, committedRowsHint(job)))
	}
	return exit.WithCode(exit.Failure, fmt.Errorf("%s is %s", job.ID, job.Status))
}

// describeFailure returns the reason why a job failed.
func describeFailure(job client.Job) string {
	f := job.FailureReason
	switch {
	case f == nil:
		return "no reason was recorded"
	case f.AdditionalContext != "":
		return fmt.Sprintf("%s (%s)\n  %s", f.Message, f.Code, f.AdditionalContext)
	}
	return fmt.Sprintf("%s (%s)", f.Message, f.Code)
}

// committedRowsHint describes how to use the committed rows of a job that did not
// succeed.
func committedRowsHint(job client.Job) string {
	if job.RowsDone == 0 || job.RunType == rowmill.RunEstimate {
		return ""
	}
	if job.RowsDone == job.FailedRows {
		return fmt.Sprintf("\nno row has an answer; see why: rowmill jobs errors %[1]s; run the rows again: rowmill jobs resume %[1]s", job.ID)
	}
	return fmt.Sprintf("\n%[1]s rows are done; get them: rowmill jobs results %[2]s --partial; run the rest: rowmill jobs resume %[2]s",
		terminal.FormatCount(job.RowsDone), job.ID)
}
