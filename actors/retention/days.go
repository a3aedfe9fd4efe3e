package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
)

// Retention compares ages with its own date instead of the clock (see retentionDate).
// The date is stored under dateValue whenever it differs from the stored date by keepEvery. A
// new process continues from the stored date. Until the date has caught up with the
// clock, no job that ended after the date is cleaned up. If the date is more than lateAfter
// behind the clock, a warning is logged.
const (
	dateValue = "retention"
	keepEvery = time.Minute
	lateAfter = time.Hour
)

// A date is the JSON that is stored under dateValue.
type date struct {
	Time time.Time `json:"time"`
}

// retentionDate has the date of retention. The date follows the store's time, but moves at most
// CatchUp times as fast as the process runs. Without this limit, all data would be
// removed at once when a clock jumps by a hundred days or a machine starts with a wrong
// clock. So operators have days to see the warning, and a service that was suspended
// for a week catches up within hours.
type retentionDate struct {
	at      time.Time     // the date of retention
	ran     time.Duration // running time of the process when at was set
	kept    time.Time     // the date in the store
	version int64         // version of the date in the store
	late    bool          // the warning was logged that at is behind the clock
}

// advanceDate moves the date of retention forward and returns it. now is the store's time.
func (j *Janitor) advanceDate(ctx context.Context, now time.Time) (time.Time, error) {
	d, ran := &j.days, j.Running()
	if d.at.IsZero() {
		if err := j.readDate(ctx, now); err != nil {
			return now, err
		}
		d.ran = ran
	}
	d.at = earlier(now, latestDate(d.at, ran-d.ran, j.CatchUp))
	d.ran = ran
	today := d.at
	if d.at.Sub(d.kept).Abs() >= keepEvery {
		if err := j.storeDate(ctx); err != nil {
			return now, err
		}
	}
	behind := now.Sub(today)
	if late := behind > lateAfter; late != d.late {
		if d.late = late; late {
			j.Log.Warn("the clock is far ahead of the date up to which data was removed: the service was suspended, or the clock is wrong; "+
				"retention catches up slowly; correct a wrong clock before then", "ahead", behind.Round(time.Minute).String(), "times_as_fast", j.CatchUp)
		} else {
			j.Log.Info("retention has caught up with the clock")
		}
	}
	return today, nil
}

// latestDate returns the latest date that may follow the date at after the process has run
// for ran: dates move at most times as fast as the process runs.
func latestDate(at time.Time, ran time.Duration, times int) time.Time {
	const longest = 100 * 365 * 24 * time.Hour
	return at.Add(time.Duration(min(float64(ran)*float64(times), float64(longest))))
}

// earlier returns the earlier of two times.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// readDate reads the stored date. If no date is stored, it stores now.
func (j *Janitor) readDate(ctx context.Context, now time.Time) error {
	text, version, err := j.Store.GetValue(ctx, dateValue)
	if errors.Is(err, rowmill.ErrNotFound) {
		j.days.at, j.days.version = now, 0
		return j.storeDate(ctx)
	}
	var found date
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	if err != nil {
		return fmt.Errorf("read the date of retention: %w", err)
	}
	j.days.at, j.days.kept, j.days.version = found.Time, found.Time, version
	return nil
}

// storeDate stores the date. If another janitor has stored a date meanwhile, the next
// round continues from that date.
func (j *Janitor) storeDate(ctx context.Context) error {
	d := &j.days
	text, err := json.Marshal(date{d.at.UTC()})
	if err != nil {
		return err
	}
	version, err := j.Store.PutValue(ctx, dateValue, text, d.version)
	if err != nil {
		*d = retentionDate{late: d.late}
		if errors.Is(err, rowmill.ErrConflict) {
			return nil
		}
		return fmt.Errorf("store the date of retention: %w", err)
	}
	d.kept, d.version = d.at, version
	return nil
}
