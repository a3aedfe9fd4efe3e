// Package retention removes data that is no longer needed: data of jobs that ended longer
// ago than the retention of their account, and objects that crashes have left and no record
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
	"slices"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/store"
)

// Store has the methods of store.Store that a Janitor needs: jobs and their data, the
// objects that records name, the settings of accounts, and the time.
type Store interface {
	store.Retention
	store.Jobs
	store.Parts
	store.NamedValues
	store.Files
	Time(ctx context.Context) (time.Time, error)
	ConfirmPrimary(ctx context.Context) error
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
	CatchUp   int                  // how many times as fast as real time the date of retention may move
	Batch     int                  // maximum number of jobs (or files, or uploads) per step of a round
	OrphanAge time.Duration        // minimum age for the removal of objects that no record names
	Scrub     int64                // bytes of results and parts that a round reads to find damage; 0: none
}

// A Janitor removes data that is no longer needed, in rounds. Only one goroutine at a
// time may use it.
type Janitor struct {
	Config
	days     retentionDate
	failures jobBackoffs
	sweep    sweepState
	// uploadCursor is the last upload of the page that expireUploads examined, or empty if
	// the next page is the first.
	uploadCursor string
	findings     SweepFindings
	skew         time.Duration // how far Clock was ahead of the store's time at the last CheckRemovalAllowed
}

// New returns a janitor.
func New(c Config) *Janitor { return &Janitor{Config: c, failures: jobBackoffs{}} }

// SweepFindings are the results of a pass over all job folders in the bucket.
type SweepFindings struct {
	Jobs, Objects int   // number of jobs without a record, and number of their objects
	Bytes         int64 // total size of these objects
	// Damaged is the number of records that cannot be read, plus the number of objects
	// that cannot be read if Config.Scrub is set.
	Damaged int
}

// Findings returns the results of the last complete pass.
func (j *Janitor) Findings() SweepFindings { return j.findings }

// Skew returns how far this node's clock was ahead of the store's at the last call of
// CheckRemovalAllowed.
func (j *Janitor) Skew() time.Duration { return j.skew }

// CheckRemovalAllowed checks whether data may be removed now, and returns the store's time. The error
// is the error of Confirm, or a *SkewError if the clocks differ too much.
func (j *Janitor) CheckRemovalAllowed(ctx context.Context) (storeTime time.Time, err error) {
	if err := cmp.Or(j.Confirm(ctx), j.Store.ConfirmPrimary(ctx)); err != nil {
		return storeTime, err
	}
	before := j.Running()
	if storeTime, err = j.Store.Time(ctx); err != nil {
		return storeTime, err
	}
	j.skew = j.Clock().Sub(storeTime)
	took := j.Running() - before // the store's time may be this old
	if j.skew > j.Tolerance+took || j.skew < -j.Tolerance {
		return storeTime, &SkewError{Skew: j.skew, Tolerance: j.Tolerance}
	}
	return storeTime, nil
}

// A SkewError means that the clocks of a node and the store differ too much.
type SkewError struct{ Skew, Tolerance time.Duration }

// Error says by how much the clocks differ and what to do.
func (e *SkewError) Error() string {
	way := "ahead of"
	if e.Skew < 0 {
		way = "behind"
	}
	return fmt.Sprintf("this node's clock is %v %s the store's, more than %v (retention.clock_tolerance), so this node removes no data: set both clocks by NTP",
		e.Skew.Abs().Round(time.Second), way, e.Tolerance)
}

// Round does a limited amount of work. more is true if work remains, so that the next
// round should follow at once.
func (j *Janitor) Round(ctx context.Context) (more bool, err error) {
	now, err := j.CheckRemovalAllowed(ctx)
	if err != nil {
		return false, err
	}
	today, err := j.advanceDate(ctx, now)
	if err != nil {
		return false, err
	}
	if more, err = j.expireJobs(ctx, now, today); more {
		return true, err
	}
	err = errors.Join(err, j.expireFiles(ctx, today), j.expireUploads(ctx, today))
	more, tidyErr := j.tidyJobs(ctx, now, today)
	return more, errors.Join(err, tidyErr, j.sweepJobFolders(ctx, today))
}

// expireFiles removes up to Batch expired files. If a file is an artifact of a job,
// only the file's record is removed, because the job still needs the object.
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

// expireUploads examines up to Batch uploads, oldest first, and removes the expired ones,
// whether they became files, were cancelled or were abandoned. The next call continues with
// younger uploads, so that uploads which cannot be removed hide no others.
func (j *Janitor) expireUploads(ctx context.Context, today time.Time) error {
	ids, err := j.Bucket.Folders(ctx, layout.Uploads, j.uploadCursor, j.Batch)
	if err != nil {
		return err
	}
	j.uploadCursor = ""
	if len(ids) == j.Batch {
		j.uploadCursor = ids[len(ids)-1]
	}
	var errs []error
	for _, id := range ids {
		began, ok := layout.UploadStartTime(id)
		if ok && today.Before(began.Add(layout.UploadLife)) {
			j.uploadCursor = "" // all further uploads are younger
			break
		}
		if !ok {
			continue
		}
		if err := j.Bucket.DeletePrefix(ctx, layout.UploadPrefix(id)); err != nil {
			errs = append(errs, fmt.Errorf("remove expired upload %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// perTurn is the maximum number of an account's jobs whose data is removed before the
// next account's turn. A failing removal may take as long as the retries of a bucket,
// so other accounts would otherwise wait long.
const perTurn = 10

// An expiringAccount is an account that waits for its turn in expireJobs.
type expiringAccount struct {
	account string
	ended   time.Time // data of jobs that ended before this time is removed
}

// expireJobs removes the data of up to Batch jobs that ended longer ago than the retention
// of their account. Accounts take turns. more is true if accounts still wait.
func (j *Janitor) expireJobs(ctx context.Context, now, today time.Time) (more bool, err error) {
	lines, err := j.listExpiringAccounts(ctx, today)
	if err != nil {
		return false, err
	}
	var errs []error
	for room := j.Batch; len(lines) > 0 && room > 0; lines = lines[1:] {
		at := lines[0]
		limit := min(room, perTurn)
		done, failed, err := j.expireAccountJobs(ctx, at, limit, now)
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

// listExpiringAccounts returns the accounts that have data and whose settings have a retention.
func (j *Janitor) listExpiringAccounts(ctx context.Context, today time.Time) (lines []expiringAccount, err error) {
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
		// A retention is at least a day, so no process still writes data of an expired job.
		lines = append(lines, expiringAccount{account, today.AddDate(0, 0, -max(1, *settings.RetentionDays))})
	}
	if len(errs) > 0 {
		j.Log.Warn("the settings of some accounts cannot be read; the data of these accounts stays", "accounts", len(errs), "err", errs[0])
	}
	return lines, nil
}

// expireAccountJobs removes the data of up to limit jobs of the account in at. It skips jobs
// that failed recently, and jobs whose data an open job reads. done is the number of jobs that
// it tried, and err is the first error.
func (j *Janitor) expireAccountJobs(ctx context.Context, at expiringAccount, limit int, now time.Time) (done, failed int, err error) {
	jobs, err := j.Store.RetainedJobs(ctx, at.account, at.ended, limit+j.failures.count(at.account))
	if err != nil {
		return 0, 0, err
	}
	j.failures.forgetUnlisted(at.account, jobs)
	jobs = slices.DeleteFunc(jobs, func(id string) bool { return j.failures.isExpiryBackingOff(at.account, id, j.Running()) })
	if jobs = jobs[:min(limit, len(jobs))]; len(jobs) == 0 {
		return 0, 0, nil
	}
	needed, err := j.neededJobs(ctx, at.account, now)
	if err != nil {
		return 0, 0, err
	}
	for _, id := range jobs {
		removeErr := errNeeded
		if !needed[id] {
			removeErr = j.removeJobData(ctx, id, now)
		}
		if removeErr == nil {
			continue
		}
		j.failures.recordFailure(at.account, id, j.Running())
		if errors.Is(removeErr, errNeeded) {
			continue
		}
		if failed++; failed == 1 {
			err = removeErr
		}
	}
	return len(jobs), failed, err
}

// removeJobData removes the data of a job. It changes the record first, so that new requests
// get the answer that the data was removed. Requests that already read the data may
// fail.
func (j *Janitor) removeJobData(ctx context.Context, id string, now time.Time) error {
	if err := j.Announce(ctx, id); err != nil {
		return err
	}
	if _, err := j.Store.RemoveData(ctx, id, now); err != nil {
		return err
	}
	if err := errors.Join(j.Bucket.DeletePrefix(ctx, layout.JobPrefix(id)), j.Store.DropParts(ctx, id)); err != nil {
		return err
	}
	if err := j.Store.MarkDataDeleted(ctx, id); err != nil {
		return err
	}
	j.Log.Info("the data of a job was removed", "job", id)
	return nil
}
