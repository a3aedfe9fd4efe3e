package retention_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// There are more expired files than a round removes; one is the artifact of a job.
func TestRound_FilesExpire(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for n := range 5 {
		until := r.now().AddDate(0, 0, 1)
		f := store.File{ID: fmt.Sprintf("file-%d", n), Account: "a", Purpose: "batch", Created: r.now(), Expires: &until, Key: layout.FileKey(fmt.Sprintf("file-%d", n))}
		switch n {
		case 0:
			f.Key, f.Job = "jobs/job-1/results/output.jsonl", "job-1"
		case 1:
			f.Expires = nil
		}
		must.Succeed(t, r.store.CreateFile(t.Context(), f))
		r.putKey(f.Key)
	}
	left := func() (files, objects int) {
		t.Helper()
		all, _, err := r.store.ListFiles(t.Context(), "a", "", store.PageRequest{Limit: 10})
		must.Succeed(t, err)
		return len(all), len(must.Get(r.Bucket.List(t.Context(), layout.Files))(t))
	}
	r.clean()
	if files, objects := left(); files != 5 || objects != 4 {
		t.Errorf("%d files and %d objects before the time", files, objects)
	}
	r.days = 2
	r.clean()
	if files, objects := left(); files != 1 || objects != 1 {
		t.Errorf("%d files and %d objects are left, want that which never expires", files, objects)
	}
	if _, err := r.Bucket.Stat(t.Context(), "jobs/job-1/results/output.jsonl"); errors.Is(err, rowmill.ErrNotFound) {
		t.Error("the artifact of a job was removed before its job")
	}
}

// Uploads expire, whether they became files or were abandoned.
func TestRound_UploadsExpire(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ids := make([]string, 7) // more than two rounds take
	for i := range ids {
		ids[i] = "upload_" + strings.ReplaceAll(strings.TrimPrefix(rowmill.NewJobID(), "job-"), "-", "")
		r.putKey(layout.UploadRecordKey(ids[i]))
		r.putKey(layout.UploadPartsPrefix(ids[i]) + "part_1")
	}
	for i := range 2 * r.Batch { // they come before all uploads
		r.putKey(layout.UploadPrefix(fmt.Sprint("nobodys", i)) + "kept")
	}
	left := func() int { return len(must.Get(r.Bucket.List(t.Context(), layout.Uploads))(t)) }
	kept := 2 * r.Batch
	if r.clean(); left() != kept+14 {
		t.Errorf("%d objects before the time", left())
	}
	r.days = 3
	for range 8 {
		r.clean()
	}
	if left() != kept {
		t.Errorf("%d objects are left, want the %d that belong to no upload", left(), kept)
	}
}
