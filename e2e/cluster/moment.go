package cluster

import (
	"context"
	"time"
)

// A Moment is the phase of a job in which a fault strikes.
type Moment int

// The phases of a job, in order.
const (
	Ingesting Moment = iota - 1 // during the download, or while the input becomes shards
	Running                     // at any time in the first half of the rest
	Ending                      // from the last rows on: last commits, the result, the end, the removal of parts
	Over                        // within seconds of its end
)

// The percentage of rows at which the end of a job begins, and the duration of the rest on a
// busy machine. The test asks for the owner a little earlier, because it may be gone later.
const (
	askedAt, endsAt = 90, 99
	endingFor       = 1500 * time.Millisecond
	overFor         = 3 * time.Second
)

// reach waits for a random time in a phase.
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
		// The next fault comes at any time in the first half of the rest.
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

// formerOwner returns the owner of the job, or its last known owner.
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
