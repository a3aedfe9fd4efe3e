package deployment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
)

// A QuarantineNote is an object in the bucket that marks a job as unknown to the records. The
// objects of the job stay in place. The note says when the job was found to be unknown.
type QuarantineNote struct {
	JobID   string    `json:"job_id"`
	Found   time.Time `json:"found"`
	Objects int       `json:"objects"`
	Bytes   int64     `json:"bytes"`
	Newest  time.Time `json:"newest"` // when the newest object was written
}

// NewQuarantineNote returns a note that describes a job's objects.
func NewQuarantineNote(job string, objects []blob.ObjectInfo, found time.Time) QuarantineNote {
	n := QuarantineNote{JobID: job, Found: found.UTC().Truncate(time.Second), Objects: len(objects)}
	for _, o := range objects {
		n.Bytes += o.Size
		if o.Modified.After(n.Newest) {
			n.Newest = o.Modified.UTC()
		}
	}
	return n
}

// WriteQuarantineNote writes a note, unless the job already has a note. It returns the stored note.
func WriteQuarantineNote(ctx context.Context, bucket blob.Bucket, n QuarantineNote) (QuarantineNote, error) {
	if before, err := ReadQuarantineNote(ctx, bucket, n.JobID); !errors.Is(err, rowmill.ErrNotFound) {
		return before, err
	}
	text, err := json.Marshal(n)
	if err == nil {
		err = putObject(ctx, bucket, layout.QuarantineNoteKey(n.JobID), text)
	}
	if err != nil {
		return n, fmt.Errorf("write a note of the unknown job %s: %w", n.JobID, err)
	}
	return n, nil
}

// ReadQuarantineNote returns the note of a job, or rowmill.ErrNotFound.
func ReadQuarantineNote(ctx context.Context, bucket blob.Bucket, job string) (n QuarantineNote, err error) {
	object, err := bucket.Open(ctx, layout.QuarantineNoteKey(job))
	if err != nil {
		return n, fmt.Errorf("read the note of job %s: %w", job, err)
	}
	defer object.Close()
	text, err := io.ReadAll(io.LimitReader(blob.NewReader(object), maxIdentity))
	if err == nil {
		err = json.Unmarshal(text, &n)
	}
	if err == nil && n.JobID != job {
		err = fmt.Errorf("the note names job %q", n.JobID)
	}
	if err != nil {
		return n, fmt.Errorf("read the note of job %s: %w", job, err)
	}
	return n, nil
}

// ListQuarantinedJobs returns the ids of all jobs that have a note in the bucket, sorted.
func ListQuarantinedJobs(ctx context.Context, bucket blob.Bucket) ([]string, error) {
	notes, err := bucket.List(ctx, layout.SetAsides)
	if err != nil {
		return nil, fmt.Errorf("list the jobs that are set aside: %w", err)
	}
	jobs := make([]string, len(notes))
	for i, o := range notes {
		jobs[i] = layout.JobIDFromMarkerKey(o.Key)
	}
	return jobs, nil
}

// RemoveQuarantineNote removes the note of a job.
func RemoveQuarantineNote(ctx context.Context, bucket blob.Bucket, job string) error {
	if err := bucket.Delete(ctx, layout.QuarantineNoteKey(job)); err != nil {
		return fmt.Errorf("remove the note of job %s: %w", job, err)
	}
	return nil
}
