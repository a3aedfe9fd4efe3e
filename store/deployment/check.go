package deployment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/store"
)

// A CheckReport is the result of Storage.Check: it says whether the records and the objects in
// the bucket match.
type CheckReport struct {
	Records *Identity        `json:"records"` // nil when the records have no identity
	Bucket  *Identity        `json:"bucket"`
	Known   int              `json:"known"`   // jobs with objects that the records know
	Unknown []QuarantineNote `json:"unknown"` // jobs with objects that the records do not know
	Missing []MissingFile    `json:"missing"` // result files that the records name and the bucket lacks
	Damaged []DamagedItem    `json:"damaged"` // records and objects that cannot be read
}

// NodeReport is a CheckReport with the places of a node's records and objects, and the
// clock difference.
type NodeReport struct {
	RecordsAt string `json:"records_at"`
	ObjectsAt string `json:"objects_at"`
	CheckReport
	SkewSeconds float64 `json:"clock_skew_seconds"` // how far the node's clock is ahead of the store's clock
}

// MissingFile is a result file that the bucket lacks.
type MissingFile struct {
	JobID string `json:"job_id"`
	Key   string `json:"key"`
}

// DamagedItem is a record or an object that cannot be read.
type DamagedItem struct {
	JobID  string `json:"job_id"`
	Key    string `json:"key"` // key of the damaged object; empty if the record of the job is damaged
	Reason string `json:"reason"`
}

// Matches reports whether records and bucket have the same identity and match completely.
func (r CheckReport) Matches() bool {
	return r.Records != nil && r.Bucket != nil && r.Records.ID == r.Bucket.ID && len(r.Unknown)+len(r.Missing)+len(r.Damaged) == 0
}

// checksAtOnce is how many jobs Check examines at the same time. Each job takes little
// memory, and mostly waits for two answers: from the bucket and from the store. More jobs
// at a time would slow down the nodes that use the bucket and the store.
const checksAtOnce = 16

// CheckOptions are optional functions that Check calls during the comparison.
type CheckOptions struct {
	// Check calls Progress from time to time with the number of jobs in the bucket that it
	// has examined so far. Progress may be nil.
	Progress func(jobs int)
	// Read reads the objects that the record of a job names, and returns the damaged
	// objects. If Read is nil, contents are not read.
	Read func(ctx context.Context, rec store.Record) ([]DamagedItem, error)
}

// Check compares records and bucket in both directions and changes nothing. It ignores
// spooled input of submissions that are in progress or crashed, because nodes remove it.
func (p Storage) Check(ctx context.Context, o CheckOptions) (r CheckReport, err error) {
	r = CheckReport{Unknown: []QuarantineNote{}, Missing: []MissingFile{}, Damaged: []DamagedItem{}}
	if r.Records, r.Bucket, err = p.readIdentities(ctx); err != nil {
		return r, err
	}
	seen := map[string]bool{}
	for after := ""; ; {
		ids, err := p.Bucket.Folders(ctx, layout.Jobs, after, folderPage)
		if err != nil {
			return r, fmt.Errorf("list jobs in the bucket: %w", err)
		}
		page := len(ids)
		if page > 0 {
			after = ids[page-1]
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return !rowmill.IsJobID(id) })
		for _, id := range ids {
			seen[id] = true
		}
		if err := r.checkJobs(ctx, ids, func(ctx context.Context, id string) (jobFinding, error) { return p.checkFolder(ctx, id, o.Read) }); err != nil {
			return r, err
		}
		if o.Progress != nil {
			o.Progress(len(seen))
		}
		if page < folderPage {
			break
		}
	}
	return r, p.checkRecords(ctx, seen, &r)
}

// A jobFinding is the result of the check of one job.
type jobFinding struct {
	known   bool // the records know the job, and the bucket has its objects
	unknown *QuarantineNote
	missing []MissingFile
	damaged []DamagedItem
}

// checkJobs calls checkJob for several jobs at the same time, and adds the findings in the
// order of ids.
func (r *CheckReport) checkJobs(ctx context.Context, ids []string, checkJob func(ctx context.Context, id string) (jobFinding, error)) error {
	found := make([]jobFinding, len(ids))
	g, looks := errgroup.WithContext(ctx)
	g.SetLimit(checksAtOnce)
	for i, id := range ids {
		g.Go(func() (err error) {
			if looks.Err() == nil {
				found[i], err = checkJob(looks, id)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, f := range found {
		if f.known {
			r.Known++
		}
		if f.unknown != nil {
			r.Unknown = append(r.Unknown, *f.unknown)
		}
		r.Missing = append(r.Missing, f.missing...)
		r.Damaged = append(r.Damaged, f.damaged...)
	}
	return ctx.Err()
}

// checkFolder compares the objects of a job with its record.
func (p Storage) checkFolder(ctx context.Context, id string, read func(context.Context, store.Record) ([]DamagedItem, error)) (f jobFinding, err error) {
	objects, err := p.Bucket.List(ctx, layout.JobPrefix(id))
	if err != nil {
		return f, fmt.Errorf("list the objects of job %s: %w", id, err)
	}
	rec, err := p.Records.Get(ctx, id)
	switch {
	case errors.Is(err, rowmill.ErrNotFound) && len(objects) == 0:
		return f, nil
	case errors.Is(err, rowmill.ErrNotFound):
		f.unknown, err = p.describeUnknownJob(ctx, id, objects)
		return f, err
	case errors.Is(err, store.ErrDamaged):
		return newDamagedFinding(id, err), nil
	case err != nil:
		return f, err
	}
	f = jobFinding{known: len(objects) > 0, missing: findMissingFiles(rec, objects)}
	if read != nil {
		f.damaged, err = read(ctx, rec)
	}
	return f, err
}

func newDamagedFinding(id string, err error) jobFinding {
	return jobFinding{damaged: []DamagedItem{{JobID: id, Reason: err.Error()}}}
}

// describeUnknownJob returns a note for a job that has objects but no record. It returns nil if
// the submission of the job is still in progress.
func (p Storage) describeUnknownJob(ctx context.Context, id string, objects []blob.ObjectInfo) (*QuarantineNote, error) {
	note := NewQuarantineNote(id, objects, time.Time{})
	if len(objects) == 1 && objects[0].Key == layout.SpooledRowsKey(id) {
		_, err := p.Bucket.Stat(ctx, layout.SpoolingKey(id))
		if err == nil || !errors.Is(err, rowmill.ErrNotFound) {
			return nil, err
		}
	}
	before, err := ReadQuarantineNote(ctx, p.Bucket, id)
	if err == nil {
		note.Found = before.Found
	} else if !errors.Is(err, rowmill.ErrNotFound) {
		return nil, err
	}
	return &note, nil
}

// findMissingFiles returns the result files of a record that are not in objects.
func findMissingFiles(rec store.Record, objects []blob.ObjectInfo) (files []MissingFile) {
	if rec.DataRemoved != nil {
		return nil
	}
	for _, a := range rec.Artifacts {
		if !slices.ContainsFunc(objects, func(o blob.ObjectInfo) bool { return o.Key == a.Key }) {
			files = append(files, MissingFile{rec.Job.ID, a.Key})
		}
	}
	return files
}

// checkRecords checks the retained jobs that have no objects in the bucket. seen contains
// the ids of the jobs that have objects. checkRecords adds the missing result files to r.
func (p Storage) checkRecords(ctx context.Context, seen map[string]bool, r *CheckReport) error {
	accounts, err := p.Records.AccountsWithData(ctx)
	if err != nil {
		return err
	}
	for _, account := range accounts {
		ids, err := p.Records.RetainedJobs(ctx, account, p.Clock().AddDate(100, 0, 0), math.MaxInt32)
		if err != nil {
			return err
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return seen[id] })
		if err := r.checkJobs(ctx, ids, p.checkRecord); err != nil {
			return err
		}
	}
	return nil
}

// checkRecord checks a job that has no objects in the bucket.
func (p Storage) checkRecord(ctx context.Context, id string) (jobFinding, error) {
	rec, err := p.Records.Get(ctx, id)
	if errors.Is(err, store.ErrDamaged) {
		return newDamagedFinding(id, err), nil
	}
	return jobFinding{missing: findMissingFiles(rec, nil)}, err
}

// QuarantineUnknownJobs writes a note for each unknown job of a report and returns the notes. Found
// in a note is the time when the job was first found to be unknown.
func (p Storage) QuarantineUnknownJobs(ctx context.Context, r CheckReport) ([]QuarantineNote, error) {
	var kept []QuarantineNote
	for _, n := range r.Unknown {
		if n.Found.IsZero() {
			n.Found = p.Clock().UTC().Truncate(time.Second)
		}
		note, err := WriteQuarantineNote(ctx, p.Bucket, n)
		if err != nil {
			return kept, err
		}
		n.Found = note.Found
		kept = append(kept, n)
	}
	return kept, nil
}

// ListQuarantineNotes returns the notes of all jobs that were set aside, because no record knows
// them.
func (p Storage) ListQuarantineNotes(ctx context.Context) ([]QuarantineNote, error) {
	ids, err := ListQuarantinedJobs(ctx, p.Bucket)
	if err != nil {
		return nil, err
	}
	var notes []QuarantineNote
	for _, id := range ids {
		n, err := ReadQuarantineNote(ctx, p.Bucket, id)
		if errors.Is(err, rowmill.ErrNotFound) {
			continue // a node has just removed the note
		}
		if err != nil {
			return notes, err
		}
		notes = append(notes, n)
	}
	return notes, nil
}

// ErrKnown means that the records know a job that was set aside.
var ErrKnown = errors.New("the records know this job, so its objects are in use and are not removed")

// PurgeUnknownJob removes the objects of a job that was set aside. It first verifies again that
// records and bucket belong together, and that the records do not know the job. If not,
// it removes nothing and returns an error: ErrKnown if the records know the job. For a
// job without a note the error is rowmill.ErrNotFound.
func (p Storage) PurgeUnknownJob(ctx context.Context, id string) error {
	if _, err := ReadQuarantineNote(ctx, p.Bucket, id); err != nil {
		return err
	}
	records, bucket, err := p.readIdentities(ctx)
	if err != nil {
		return err
	}
	if records == nil || bucket == nil || records.ID != bucket.ID {
		why := "the bucket may belong to another deployment, so nothing is removed"
		return &MismatchError{Records: records, Bucket: bucket, RecordsName: p.RecordsName, BucketName: p.BucketName, Why: why}
	}
	known, err := p.hasRecord(ctx, id)
	switch {
	case err != nil:
		return err
	case known:
		return fmt.Errorf("job %s: %w", id, ErrKnown)
	}
	if err := p.Bucket.DeletePrefix(ctx, layout.JobPrefix(id)); err != nil {
		return fmt.Errorf("remove the objects of job %s: %w", id, err)
	}
	return RemoveQuarantineNote(ctx, p.Bucket, id)
}
