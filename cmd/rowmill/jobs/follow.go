package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// firstPoll is the time to the second look at a job; each further pause is
// half as long again until it is poll, from when on the service says what changes.
// Short jobs end at once.
const firstPoll = 100 * time.Millisecond

// firstEvent is how long the first event may take, which a service sends at once: what
// is between may gather a stream until it ends.
const firstEvent = 5 * time.Second

// follow shows a job's progress until it is over, and returns its record. A
// service that is away for less than patience is waited for.
func (c *commands) follow(ctx context.Context, api *client.Client, id string) (client.Job, error) {
	f := &following{commands: c, id: id, progress: terminal.NewProgress(c.Term), reached: c.Term.Now()}
	defer f.progress.Pause()
	pause := min(firstPoll, c.poll)
	listened := false
	for {
		job, err := api.Job(ctx, id)
		over, err := f.take(ctx, job, err)
		if over || err != nil {
			return job, err
		}
		if !f.away && pause == c.poll && !listened {
			listened = true
			if over, err := f.listen(ctx, api); over || err != nil {
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

// A following is a job that is followed.
type following struct {
	*commands
	id       string
	progress *terminal.Progress
	told     int           // warnings said
	last     client.Job    // as it was last seen
	reached  time.Time     // when the service was
	away     bool          // that it is not was said
	wait     time.Duration // for as long the service asks for patience
}

// take takes in what a look at the job has brought: whether it is over, or the error
// that ends following it.
func (f *following) take(ctx context.Context, job client.Job, err error) (over bool, _ error) {
	f.wait = 0
	var refusal *client.APIError
	if errors.As(err, &refusal) {
		f.wait = refusal.RetryAfter
	}
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err == nil:
		f.away, f.reached, f.last = false, f.Term.Now(), job
		for ; f.told < len(job.Warnings); f.told++ {
			f.progress.Pause()
			f.Term.Say("warning: %s", job.Warnings[f.told])
		}
		f.progress.Update(snapshot(job, f.reached))
		return job.Status.Terminal(), nil
	case !client.Temporary(err) || f.Term.Now().Sub(f.reached) > f.patience:
		return false, fmt.Errorf("follow %s: %w", f.id, err)
	case !f.away:
		f.away = true
		f.progress.Pause()
		f.Term.Say("%v; trying again for %v, the job goes on", err, f.patience)
	}
	return false, nil
}

// A heard is what a stream of events has brought.
type heard struct {
	event client.Event
	err   error
}

// listen follows the job by the service's events until it is over. Where neither is
// returned it is to be asked: the service, or what is between, knows no events, or
// has no room, or its answer is better told by a look.
func (f *following) listen(ctx context.Context, api *client.Client) (over bool, _ error) {
	ctx, leave := context.WithCancel(ctx)
	var ended sync.WaitGroup
	defer ended.Wait()
	defer leave()
	all := make(chan heard)
	ended.Go(func() {
		defer close(all)
		for event, err := range api.Events(ctx, client.Subscription{Topics: []string{"job:" + f.id}, Pause: f.poll}) {
			select {
			case all <- heard{event, err}:
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
			if over, err := f.take(ctx, h.event.Job, h.err); over || err != nil {
				return over, err
			}
		case <-silent.C:
			return false, nil
		case <-tick.C: // the line shows how time goes by
			if !f.away {
				f.reached = f.Term.Now()
				f.progress.Update(snapshot(f.last, f.reached))
			}
		}
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
