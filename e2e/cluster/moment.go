package cluster

import (
	"context"
	"time"
)

// A Moment is when in the life of a job a fault strikes.
type Moment int

// The moments of a job, in their order.
const (
	Ingesting Moment = iota - 1 // while its input is downloaded or made into rows
	Running                     // at any moment of the first half of what is left
	Ending                      // from its last rows on: last commits, the result, the end, what is removed then
	Over                        // within seconds of its end
)

// How far a job is when its end begins, in percent of its rows, and how long
// what follows takes on a busy machine. Its owner is asked for somewhat before,
// since it may be gone then.
const (
	askedAt, endsAt = 90, 99
	endingFor       = 1500 * time.Millisecond
	overFor         = 3 * time.Second
)

// reach waits for a random moment of the kind.
func (t *Trial) reach(ctx context.Context, m Moment, rows int) error {
	done := func(percent int) func(Glimpse) bool {
		return func(g Glimpse) bool { return g.Over || g.RowsDone*100 >= int64(rows*percent) }
	}
	within := time.Duration(0)
	switch m {
	case Ingesting:
		if err := t.feed.begun(ctx); err != nil {
			return err
		}
		within = feedFor + time.Second
	case Running:
		// The next one comes at any moment of the first half of what is left.
		within = t.left(t.watched.last(), rows) / 2
	case Ending, Over:
		if err := t.watched.until(ctx, "about to end", done(askedAt)); err != nil {
			return err
		}
		if owner, err := t.owner(ctx); err == nil {
			t.lastOwner = owner
		}
		if err := t.watched.until(ctx, "at its end", done(endsAt)); err != nil {
			return err
		}
		within = endingFor
	}
	if m == Over {
		if err := t.watched.until(ctx, "over", func(g Glimpse) bool { return g.Over }); err != nil {
			return err
		}
		within = overFor
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(t.random.Float64() * float64(within))):
	}
	if m == Running {
		return t.over()
	}
	return nil
}

// formerOwner is the job's owner, or the last one that is known.
func formerOwner(ctx context.Context, t *Trial) (*Node, error) {
	if t.watched.last().Over && t.lastOwner != nil && t.lastOwner.alive() {
		return t.lastOwner, nil
	}
	n, err := t.owner(ctx)
	if err != nil && t.lastOwner != nil && t.lastOwner.alive() {
		return t.lastOwner, nil
	}
	return n, err
}
