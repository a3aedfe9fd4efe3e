// Package retention removes data that need not be kept: data of jobs that ended longer
// ago than their account keeps data, and objects that crashes have left and no record
// names. It removes nothing unless records and bucket belong together, nothing of jobs
// without a record, and nothing while the clocks may be wrong. The caller decides when
// and on which node a Janitor runs: several Janitors at the same time do no harm.
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

// Store has the methods of the records that a Janitor needs: jobs and their data, the
// objects that records name, the settings of accounts, and the time.
type Store interface {
	store.Retention
	store.Jobs
	store.Parts
	store.Values
	store.Files
	Time(ctx context.Context) (time.Time, error)
	Confirm(ctx context.Context) error
}

// Config configures a Janitor. All fields are required.
type Config struct {
	Store  Store
	Bucket blob.Bucket
	Log    *slog.Logger
	// Confirm returns an error if nothing may be removed: records and bucket do not
	// belong together, or this cannot be checked.
	Confirm func(ctx context.Context) error
	// Tidy removes data that a finished job no longer needs. It may be repeated.
	Tidy func(ctx context.Context, jobID string) error
	// Announce announces the end of a job, unless the end was announced before. It may be
	// repeated. It runs before the job's data is removed, because after the removal Tidy
	// is no longer called for the job.
	Announce  func(ctx context.Context, jobID string) error
	TidyAfter time.Duration        // how long the owner of a finished job may take to clean up itself
	Clock     func() time.Time     // of this node
	Running   func() time.Duration // running time of the process, by a clock that never jumps
	Tolerance time.Duration        // the largest accepted difference between Clock and the store's time
	CatchUp   int                  // how many times faster than real time the date of retention may move
	Batch     int                  // number of jobs that a round examines
	OrphanAge time.Duration        // minimum age for the removal of objects that no record names
	Scrub     int64                // bytes of results and parts that a round reads; 0: none
}

// A Janitor works in rounds. It must be used by one goroutine at a time.
type Janitor struct {
	Config
	days     days
	failures failures
	sweep    sweep
	findings Findings
	skew     time.Duration // see Skew
}

// New returns a janitor.
func New(c Config) *Janitor { return &Janitor{Config: c, failures: failures{}} }

// Findings are the results of a pass over the bucket.
type Findings struct {
	Jobs, Objects int   // jobs without a record, and their objects
	Bytes         int64 // of these objects
	Damaged       int   // records that cannot be read, and objects if the pass has read them
}

// Findings returns the results of the last complete pass.
func (j *Janitor) Findings() Findings { return j.findings }

// Skew returns how far this node's clock was ahead of the store's at the last Look.
func (j *Janitor) Skew() time.Duration { return j.skew }

// Look returns an error if nothing may be removed now: the error of Confirm, or a
// *SkewError. now is the store's time.
func (j *Janitor) Look(ctx context.Context) (now time.Time, err error) {
	if err := cmp.Or(j.Confirm(ctx), j.Store.Confirm(ctx)); err != nil {
		return now, err
	}
	before := j.Running()
	if now, err = j.Store.Time(ctx); err != nil {
		return now, err
	}
	j.skew = j.Clock().Sub(now)
	took := j.Running() - before // the answer may be this old
	if j.skew > j.Tolerance+took || j.skew < -j.Tolerance {
		return now, &SkewError{Skew: j.skew, Tolerance: j.Tolerance}
	}
	return now, nil
}

// A SkewError means that the clocks of a node and the store differ too much.
type SkewError struct{ Skew, Tolerance time.Duration }

// Error says what to do.
func (e *SkewError) Error() string {
	way := "ahead of"
	if e.Skew < 0 {
		way = "behind"
	}
	return fmt.Sprintf("this node's clock is %v %s the store's, more than %v (retention.clock_tolerance), so this node removes no data: set both clocks by NTP",
		e.Skew.Abs().Round(time.Second), way, e.Tolerance)
}

// Round does a limited amount of work. more is true if work is left.
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
	more, tidyErr := j.tidy(ctx, now, today)
	return more, errors.Join(err, tidyErr, j.sweepSome(ctx, today))
}

// expireFiles removes up to Batch expired files. If a file is an artifact of a job, the
// object stays with the job.
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
			errs = append(errs, fmt.Errorf("remove expired file %s: %w", f.ID, err))
		}
		err = nil
	}
	return errors.Join(errs...)
}

// expireUploads removes up to Batch expired uploads, whether they became files, were
// cancelled or were abandoned.
func (j *Janitor) expireUploads(ctx context.Context, today time.Time) error {
	ids, err := j.Bucket.Folders(ctx, layout.Uploads, "", j.Batch) // the oldest come first
	errs := []error{err}
	for _, id := range ids {
		began, ok := layout.UploadBegan(id)
		if !ok || today.Before(began.Add(layout.UploadLife)) {
			continue
		}
		if err := j.Bucket.DeletePrefix(ctx, layout.Upload(id)); err != nil {
			errs = append(errs, fmt.Errorf("remove expired upload %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// perTurn is the number of jobs of an account in a row before the next account's turn.
// So no account waits long for an account with failing removals, each of which may take
// as long as the retries of a bucket.
const perTurn = 10

// A line is an account that waits for its turn.
type line struct {
	account string
	ended   time.Time // data of jobs that ended before this time is removed
}

// expire removes the data of up to Batch jobs that ended longer ago than their account
// keeps data. Accounts take turns.
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
			err = fmt.Errorf("account %s: the data of %d jobs could not be removed; the removals will be tried again later; the first error: %w", at.account, failed, err)
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

// lines returns the accounts that have data and an expiry for it.
func (j *Janitor) lines(ctx context.Context, today time.Time) (lines []line, err error) {
	accounts, err := j.Store.AccountsWithData(ctx)
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
		// No retention is shorter than a day, so no process still writes for such a job.
		lines = append(lines, line{account, today.AddDate(0, 0, -max(1, *settings.RetentionDays))})
	}
	if len(errs) > 0 {
		j.Log.Warn("the settings of some accounts cannot be read; the data of these accounts stays", "accounts", len(errs), "err", errs[0])
	}
	return lines, nil
}

// expireSome removes the data of up to limit jobs. Jobs that failed recently are
// skipped. err is the first error of the failed jobs.
func (j *Janitor) expireSome(ctx context.Context, at line, limit int, now time.Time) (done, failed int, err error) {
	jobs, err := j.Store.RetainedJobs(ctx, at.account, at.ended, limit+j.failures.count(at.account))
	if err != nil {
		return 0, 0, err
	}
	j.failures.keep(at.account, jobs)
	for _, id := range jobs {
		if done == limit {
			break
		}
		if j.failures.waits(id, j.Running()) {
			continue
		}
		done++
		if removeErr := j.remove(ctx, id, now); removeErr != nil {
			j.failures.failed(at.account, id, j.Running())
			if failed++; failed == 1 {
				err = removeErr
			}
		}
	}
	return done, failed, err
}

// remove removes a job's data. The record changes first: from then on requests get an
// answer that says so. Requests that have already started to read may break off.
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
	j.Log.Info("the data of a job was removed", "job", id)
	return nil
}
