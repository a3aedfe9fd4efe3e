package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/deployment"
)

// sweepState is the state of a pass over the folders of all jobs. A pass looks for objects
// that crashes have left, for jobs without a record, and for damaged data.
type sweepState struct {
	after string        // id of the last examined job
	next  time.Duration // start of the next pass, as running time of the process

	unknown map[string]bool // ids of the jobs without a record that this pass has found
	found   SweepFindings   // results of this pass so far
	fresh   int             // number of jobs in unknown that earlier passes had not found
}

// sweepJobFolders examines up to Batch job folders. It looks for objects that crashes have
// left and for jobs without a record. A pass over all folders starts once per
// OrphanAge.
func (j *Janitor) sweepJobFolders(ctx context.Context, today time.Time) error {
	s := &j.sweep
	if j.Running() < s.next {
		return nil
	}
	budget := j.Scrub
	ids, err := j.Bucket.Folders(ctx, layout.Jobs, s.after, j.Batch)
	if err != nil {
		return err
	}
	var errs []error
	last := len(ids) < j.Batch
	for i, id := range ids {
		read, err := j.sweepJob(ctx, id, today, today.Add(-j.OrphanAge))
		if err != nil {
			errs = append(errs, fmt.Errorf("job %s: %w", id, err))
		}
		s.after = id
		if budget -= read; j.Scrub > 0 && budget <= 0 && i < len(ids)-1 {
			last = false
			break
		}
	}
	if last {
		errs = append(errs, j.endSweep(ctx, today.Add(-j.OrphanAge)))
	}
	return errors.Join(errs...)
}

// sweepJob examines the folder of a job. It removes objects of a finished job that no
// record names, except objects written after before. It writes a note about a job
// without a record. read is the number of bytes that it has read.
func (j *Janitor) sweepJob(ctx context.Context, id string, today, before time.Time) (read int64, err error) {
	if !rowmill.IsJobID(id) {
		return 0, nil // not a folder of a job: another deployment may use this part of the bucket
	}
	rec, err := j.Store.Get(ctx, id)
	switch {
	case errors.Is(err, rowmill.ErrNotFound):
		return 0, j.quarantineJob(ctx, id, today, before)
	case errors.Is(err, store.ErrDamaged):
		j.sweep.found.Damaged++
		j.Log.Error("the record of a job is damaged; restore the records from a backup", "job", id, "err", err)
		return 0, nil
	case err != nil:
		return 0, err
	}
	if j.Scrub > 0 {
		if read, err = j.scrub(ctx, rec); err != nil {
			return read, err
		}
	}
	return read, j.removeLeftovers(ctx, rec, before)
}

// scrub reads the results and parts of a job, so that damage is found before a client
// asks for them. read is the number of bytes that it has read.
func (j *Janitor) scrub(ctx context.Context, rec store.Record) (read int64, err error) {
	faults, read, err := archive.Scrub(ctx, j.Store, j.Bucket, rec)
	for _, f := range faults {
		j.sweep.found.Damaged++
		j.Log.Error("an object cannot be read; restore the object from a copy, or run its rows again", "job", rec.Job.ID, "key", f.Key, "err", f.Err)
	}
	return read, err
}

// removeLeftovers removes the objects that a finished job no longer needs, except
// objects written after before. It removes nothing before the cleanup after the job is
// done: the cleanup keeps the input for a continuation, and makes a lost result again
// from the parts.
func (j *Janitor) removeLeftovers(ctx context.Context, rec store.Record, before time.Time) error {
	id := rec.Job.ID
	if !rec.Job.Status.IsTerminal() || rec.EndedAt().After(before) || !rec.IsCleanedUp() && rec.DataRemoved == nil {
		return nil
	}
	objects, err := j.Bucket.List(ctx, layout.JobPrefix(id))
	if err != nil {
		return err
	}
	named := map[string]bool{}
	if rec.DataRemoved == nil {
		if named, err = j.neededKeys(ctx, rec); err != nil {
			return err
		}
	}
	var leftovers []string
	for _, o := range objects {
		if !named[o.Key] && !isKeptInput(rec, o.Key) && !o.Modified.After(before) {
			leftovers = append(leftovers, o.Key)
		}
	}
	if len(leftovers) == 0 {
		return nil
	}
	j.Log.Warn("removing objects that a crash has left", "job", id, "objects", len(leftovers))
	if len(leftovers) == len(objects) {
		return j.Bucket.DeletePrefix(ctx, layout.JobPrefix(id))
	}
	var errs []error
	for _, key := range leftovers {
		errs = append(errs, j.Bucket.Delete(ctx, key))
	}
	return errors.Join(errs...)
}

// neededKeys returns the keys of the objects that a finished job still needs: its artifacts,
// and its parts if it has not succeeded. A successful job needs no parts, because its
// artifacts have all rows. If the owner crashed before it removed the records of these
// parts, neededKeys removes the records.
func (j *Janitor) neededKeys(ctx context.Context, rec store.Record) (map[string]bool, error) {
	keys := map[string]bool{}
	for _, a := range rec.Artifacts {
		keys[a.Key] = true
	}
	if len(rec.Spec.Keep) > 0 {
		keys[layout.KeptColumnsKey(rec.Job.ID)] = true
	}
	parts, err := j.Store.ListParts(ctx, rec.Job.ID)
	if err != nil {
		return nil, err
	}
	if rec.Job.Status == rowmill.StatusSucceeded && len(parts) > 0 {
		return keys, j.Store.DropParts(ctx, rec.Job.ID)
	}
	for _, p := range parts {
		keys[p.Key] = true
	}
	return keys, nil
}

// quarantineJob writes a note about a job without a record, unless the job may be a
// submission that is still running.
func (j *Janitor) quarantineJob(ctx context.Context, id string, today, before time.Time) error {
	objects, err := j.Bucket.List(ctx, layout.JobPrefix(id))
	if err != nil || len(objects) == 0 {
		return err
	}
	if under, err := j.isSubmission(ctx, id, objects, before); under || err != nil {
		return err
	}
	now := deployment.NewQuarantineNote(id, objects, today)
	kept, err := deployment.WriteQuarantineNote(ctx, j.Bucket, now)
	if err != nil {
		return err
	}
	s := &j.sweep
	if s.unknown == nil {
		s.unknown = map[string]bool{}
	}
	s.unknown[id] = true
	s.found.Jobs++
	s.found.Objects += now.Objects
	s.found.Bytes += now.Bytes
	if kept.Found.Equal(now.Found) {
		s.fresh++
	}
	return nil
}

// isSubmission reports whether the objects belong to a running or crashed submission.
// Either its record may still be written, or removeStaleSubmissions will remove the objects.
func (j *Janitor) isSubmission(ctx context.Context, id string, objects []blob.ObjectInfo, before time.Time) (bool, error) {
	if len(objects) != 1 || objects[0].Key != layout.SpooledRowsKey(id) {
		return false, nil
	}
	if objects[0].Modified.After(before) {
		return true, nil
	}
	_, err := j.Bucket.Stat(ctx, layout.SpoolingKey(id))
	if errors.Is(err, rowmill.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// endSweep ends a pass: it removes the objects of crashed submissions, and the notes
// about jobs that have a record again.
func (j *Janitor) endSweep(ctx context.Context, before time.Time) error {
	s := &j.sweep
	errs := []error{j.removeStaleSubmissions(ctx, before)}
	noted, err := deployment.ListQuarantinedJobs(ctx, j.Bucket)
	errs = append(errs, err)
	for _, id := range noted {
		if !s.unknown[id] {
			errs = append(errs, deployment.RemoveQuarantineNote(ctx, j.Bucket, id))
		}
	}
	j.findings = s.found
	if s.found.Jobs > 0 {
		j.Log.Warn("the bucket has objects of jobs without a record; the objects stay, see rowmill storage check",
			"jobs", s.found.Jobs, "new", s.fresh, "objects", s.found.Objects, "bytes", s.found.Bytes)
	}
	*s = sweepState{next: j.Running() + j.OrphanAge}
	return errors.Join(errs...)
}

// removeStaleSubmissions removes the rows of submissions that crashed before the record was
// stored and the client got an answer. The mark of a submission shows that it had not
// ended. If the job has more objects than the rows, it had a record, which is lost;
// then the objects stay.
func (j *Janitor) removeStaleSubmissions(ctx context.Context, before time.Time) error {
	marks, err := j.Bucket.List(ctx, layout.Spoolings)
	if err != nil {
		return err
	}
	var errs []error
	for _, mark := range marks {
		if !mark.Modified.After(before) {
			errs = append(errs, j.removeSpoolingMarker(ctx, layout.JobIDFromMarkerKey(mark.Key)))
		}
	}
	return errors.Join(errs...)
}

// removeSpoolingMarker removes the mark of a submission that has ended. If the submission
// crashed, removeSpoolingMarker also removes its rows.
func (j *Janitor) removeSpoolingMarker(ctx context.Context, id string) error {
	_, err := j.Store.Get(ctx, id)
	if errors.Is(err, rowmill.ErrNotFound) {
		var objects []blob.ObjectInfo
		if objects, err = j.Bucket.List(ctx, layout.JobPrefix(id)); err != nil {
			return err
		}
		if len(objects) == 1 && objects[0].Key == layout.SpooledRowsKey(id) {
			j.Log.Warn("removing the rows of a submission that crashed", "job", id, "bytes", objects[0].Size)
			err = j.Bucket.DeletePrefix(ctx, layout.JobPrefix(id))
		}
	}
	if err != nil {
		return err
	}
	return j.Bucket.Delete(ctx, layout.SpoolingKey(id))
}
