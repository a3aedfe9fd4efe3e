// Package retention removes what need not be kept: the data of jobs that ended
// longer ago than their account keeps them, and objects that crashes have left
// and no record names. It removes nothing unless records and bucket belong
// together, nothing that no record knows, and nothing while the clocks that say
// how old it is are in doubt. It owns no schedule and does not know which node
// it is on: whoever has it work, no two of them together harm anything.
package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/store"
)

// Store is what a Janitor needs of the records: which jobs there are and have
// data, which objects they name, what accounts have set, and the time.
type Store interface {
	store.Retention
	store.Jobs
	store.Parts
	store.Values
	store.Files
	Time(ctx context.Context) (time.Time, error)
	Confirm(ctx context.Context) error
}

// Config is what a Janitor needs. Nothing has a default.
type Config struct {
	Store  Store
	Bucket blob.Bucket
	Log    *slog.Logger
	// Confirm says with an error why nothing may be removed: that records and
	// bucket do not belong together, or that this cannot be found out.
	Confirm func(ctx context.Context) error
	// Tidy removes what a job that is over need not keep now; it may be repeated.
	Tidy func(ctx context.Context, jobID string) error
	// Announce tells of the end of a job, unless that was done; it may be repeated.
	// With its data a job leaves what Tidy is called for.
	Announce  func(ctx context.Context, jobID string) error
	TidyAfter time.Duration        // how long the owner of a job that has just ended is given to do so
	Clock     func() time.Time     // of this node
	Running   func() time.Duration // how long the process has run, by a clock that never jumps
	Tolerance time.Duration        // how far Clock may be from the store's
	CatchUp   int                  // how much faster than time the days of retention may pass
	Batch     int                  // jobs that one round looks at
	OrphanAge time.Duration        // how old objects must be that no record names
}

// A Janitor does the work, a round at a time. It is for one goroutine.
type Janitor struct {
	Config
	days    days
	ailing  ailing
	sweep   sweep
	unknown Unknown
	stuck   map[string]bool // jobs that could not be tidied, until the others are
	skew    time.Duration
}

// New returns a janitor.
func New(c Config) *Janitor { return &Janitor{Config: c, ailing: ailing{}} }

// Unknown is what the last look at the whole bucket found of jobs that no
// record knows.
type Unknown struct {
	Jobs, Objects int
	Bytes         int64
}

// Unknown returns what was found. It is of the last pass that came to its end.
func (j *Janitor) Unknown() Unknown { return j.unknown }

// Skew is how far this node's clock was ahead of the store's at the last look.
func (j *Janitor) Skew() time.Duration { return j.skew }

// Look says with an error why nothing may be removed now: what Confirm says, or
// a *SkewError. now is the store's time.
func (j *Janitor) Look(ctx context.Context) (now time.Time, err error) {
	if err := cmp.Or(j.Confirm(ctx), j.Store.Confirm(ctx)); err != nil {
		return now, err
	}
	before := j.Running()
	if now, err = j.Store.Time(ctx); err != nil {
		return now, err
	}
	j.skew = j.Clock().Sub(now)
	took := j.Running() - before // the answer may be as old as this
	if j.skew > j.Tolerance+took || j.skew < -j.Tolerance {
		return now, &SkewError{Skew: j.skew, Tolerance: j.Tolerance}
	}
	return now, nil
}

// A SkewError says that a node's clock and the store's tell different times.
type SkewError struct{ Skew, Tolerance time.Duration }

// Error says what to do.
func (e *SkewError) Error() string {
	way := "ahead of"
	if e.Skew < 0 {
		way = "behind"
	}
	return fmt.Sprintf("this node's clock is %v %s the store's, more than %v (retention.clock_tolerance), so that it removes no data: set both clocks by NTP",
		e.Skew.Abs().Round(time.Second), way, e.Tolerance)
}

// Round does a bounded piece of work. more says that retention has more to do.
func (j *Janitor) Round(ctx context.Context) (more bool, err error) {
	now, err := j.Look(ctx)
	if err != nil {
		return false, err
	}
	today, err := j.today(ctx, now)
	if err != nil {
		return false, err
	}
	if more, err = j.expire(ctx, now, today); more {
		return true, err
	}
	err = errors.Join(err, j.expireFiles(ctx, today), j.expireUploads(ctx, today))
	more, tidyErr := j.tidy(ctx, today)
	return more, errors.Join(err, tidyErr, j.sweepSome(ctx, today))
}

// expireFiles removes up to Batch files whose time is over. Those that are artifacts
// of a job leave their object to that.
func (j *Janitor) expireFiles(ctx context.Context, today time.Time) error {
	files, err := j.Store.ExpiredFiles(ctx, today, j.Batch)
	errs := []error{err}
	for _, f := range files {
		if f.Job == "" {
			err = j.Bucket.Delete(ctx, f.Key)
		}
		if err == nil {
			err = j.Store.DeleteFile(ctx, f.ID)
		}
		if err != nil && !errors.Is(err, rowmill.ErrNotFound) {
			errs = append(errs, fmt.Errorf("remove file %s, which has expired: %w", f.ID, err))
		}
		err = nil
	}
	return errors.Join(errs...)
}

// expireUploads removes up to Batch uploads whose time is over: those that became
// files, were cancelled or were given up alike.
func (j *Janitor) expireUploads(ctx context.Context, today time.Time) error {
	ids, err := j.Bucket.Folders(ctx, layout.Uploads, "", j.Batch) // the oldest come first
	errs := []error{err}
	for _, id := range ids {
		began, ok := layout.UploadBegan(id)
		if !ok || today.Before(began.Add(layout.UploadLife)) {
			continue
		}
		if err := j.Bucket.DeletePrefix(ctx, layout.Upload(id)); err != nil {
			errs = append(errs, fmt.Errorf("remove upload %s, which has expired: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// perTurn is how many jobs of an account are looked at before it is the next
// one's turn, so that nobody waits behind an account whose jobs cannot be
// removed, each of which may take as long as a bucket is asked again.
const perTurn = 10

// A line is an account that waits for its turn.
type line struct {
	account string
	ended   time.Time // its jobs go that ended before
}

// expire removes the data of up to Batch jobs that ended longer before today
// than their account keeps them, a few of each account in turn.
func (j *Janitor) expire(ctx context.Context, now, today time.Time) (more bool, err error) {
	lines, err := j.lines(ctx, today)
	if err != nil {
		return false, err
	}
	var errs []error
	for room := j.Batch; len(lines) > 0 && room > 0; lines = lines[1:] {
		at := lines[0]
		limit := min(room, perTurn)
		done, failed, err := j.expireSome(ctx, at, limit, now)
		if failed > 0 {
			err = fmt.Errorf("account %s: the data of %d jobs cannot be removed now and will be tried again later, the first: %w", at.account, failed, err)
		} else if err != nil {
			err = fmt.Errorf("account %s: %w", at.account, err)
		}
		errs = append(errs, err)
		if room -= done; done == limit {
			lines = append(lines, at)
		}
	}
	return len(lines) > 0, errors.Join(errs...)
}

// lines are the accounts that have data and do not keep it for ever.
func (j *Janitor) lines(ctx context.Context, today time.Time) (lines []line, err error) {
	accounts, err := j.Store.Holders(ctx)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, account := range accounts {
		settings, _, err := store.LoadSettings(ctx, j.Store, account)
		if err != nil {
			errs = append(errs, err)
		}
		if err != nil || settings.RetentionDays == nil {
			continue
		}
		// No preset is shorter than a day, so nobody writes for such a job any more.
		lines = append(lines, line{account, today.AddDate(0, 0, -max(1, *settings.RetentionDays))})
	}
	if len(errs) > 0 {
		j.Log.Warn("the settings of accounts cannot be read, whose data stays", "accounts", len(errs), "err", errs[0])
	}
	return lines, nil
}

// expireSome removes the data of up to limit jobs. Those that failed lately are
// passed over. err is the first failure of failed.
func (j *Janitor) expireSome(ctx context.Context, at line, limit int, now time.Time) (done, failed int, err error) {
	jobs, err := j.Store.Held(ctx, at.account, at.ended, limit+j.ailing.of(at.account))
	if err != nil {
		return 0, 0, err
	}
	j.ailing.keep(at.account, jobs)
	for _, id := range jobs {
		if done == limit {
			break
		}
		if j.ailing.rests(at.account, id, j.Running()) {
			continue
		}
		done++
		if removeErr := j.remove(ctx, id, now); removeErr != nil {
			j.ailing.failed(at.account, id, j.Running())
			if failed++; failed == 1 {
				err = removeErr
			}
		}
	}
	return done, failed, err
}

// remove removes a job's data. Readers are told first: from then on they get
// an answer that says so, and those that have begun read on or break off.
func (j *Janitor) remove(ctx context.Context, id string, now time.Time) error {
	if err := j.Announce(ctx, id); err != nil {
		return err
	}
	if _, err := j.Store.RemoveData(ctx, id, now); err != nil {
		return err
	}
	if err := errors.Join(j.Bucket.DeletePrefix(ctx, layout.Job(id)), j.Store.DropParts(ctx, id)); err != nil {
		return err
	}
	if err := j.Store.DataGone(ctx, id); err != nil {
		return err
	}
	j.Log.Info("data removed", "job", id)
	return nil
}
