package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/input/sources"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// A knownFile is a file of a source that a job of Spec.Reuse has read in the same way. The rows of the
// file are in the results of that job, so the file is not read again. The zero value is a file that
// no such job has read.
type knownFile struct {
	job   *knownJob
	first int64 // number of the first row of the file in the job
	rows  int64
}

// A knownJob is a finished job with known files.
type knownJob struct {
	id     string
	file   blob.Object // the result file
	inputs *results.Inputs
}

func (j *knownJob) close() { _ = j.file.Close() } // it was only read

// findKnownFiles returns the known files of list by their paths. source is the record with the specification that says how files are read. The caller closes
// the jobs, also after an error.
func (g *ingester) findKnownFiles(ctx context.Context, source *rowmill.Spec, list []sources.File) (known map[string]knownFile, jobs []*knownJob, err error) {
	if g.spec.Reuse == nil || source.Column == "" && source.Function == nil { // without a name, the first file decides which column is read
		return nil, nil, nil
	}
	known = map[string]knownFile{}
	for _, id := range g.spec.Reuse.Jobs {
		record, err := g.Jobs.Get(ctx, id)
		if errors.Is(err, rowmill.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, jobs, fmt.Errorf("read a job with known files: %w", err)
		}
		if !readsAlike(source, &record.Spec) {
			continue
		}
		job, err := g.addKnownFiles(ctx, record, list, known)
		if job != nil {
			jobs = append(jobs, job)
		}
		if err != nil && !errors.Is(err, rowmill.ErrNotFound) && !errors.Is(err, blob.ErrLost) { // else the data was removed meanwhile
			return nil, jobs, err
		}
	}
	return known, jobs, nil
}

// readsAlike reports whether two jobs make the same rows from the same file.
func readsAlike(a, b *rowmill.Spec) bool {
	nameA, _, _ := strings.Cut(a.Source, ":")
	nameB, _, _ := strings.Cut(b.Source, ":")
	return nameA == nameB && a.Column == b.Column && a.IDColumn == b.IDColumn && a.Format == b.Format && a.Messages == b.Messages && reflect.DeepEqual(a.Function, b.Function)
}

// addKnownFiles adds to known the files of list that the job of record has read, except the files that
// are known already. It returns nil if it adds none.
func (g *ingester) addKnownFiles(ctx context.Context, record store.Record, list []sources.File, known map[string]knownFile) (*knownJob, error) {
	full, has := record.Artifacts[layout.Full]
	if !has || record.DataRemoved != nil {
		return nil, nil
	}
	old, err := sources.ReadList(ctx, g.Bucket, layout.FileListKey(record.Job.ID))
	if err != nil {
		return nil, err
	}
	job, added := &knownJob{id: record.Job.ID}, map[string]knownFile{}
	rows := int64(0)
	for _, file := range old {
		at, found := findFile(list, file.Path)
		if found && known[file.Path].job == nil && file.Rows > 0 && list[at].ETag == file.ETag && list[at].Size == file.Size {
			added[file.Path] = knownFile{job: job, first: rows, rows: file.Rows}
		}
		rows += file.Rows
	}
	if len(added) == 0 {
		return nil, nil
	}
	if job.file, err = g.Bucket.Open(ctx, full.Key); err != nil {
		return nil, fmt.Errorf("open the result file of job %s: %w", job.id, err)
	}
	if job.inputs, err = results.OpenInputs(job.file, false); err != nil {
		return nil, errors.Join(err, job.file.Close())
	}
	if rows != job.inputs.Rows { // the job has run only some rows of its files
		return nil, job.file.Close()
	}
	maps.Copy(known, added)
	return job, nil
}

// findFile returns the position of a path in a list of files, which is sorted by path.
func findFile(list []sources.File, path string) (at int, found bool) {
	return slices.BinarySearchFunc(list, path, func(f sources.File, path string) int { return strings.Compare(f.Path, path) })
}

// knownRows is the input.Reader of the rows of a known file.
type knownRows struct {
	knownFile
	next int64 // number of the next row within the file
}

// Next fills row with the next row of the file.
func (r *knownRows) Next(row *rowmill.Row) (err error) {
	if r.next == r.rows {
		return io.EOF
	}
	*row, err = r.job.inputs.Row(r.first + r.next)
	if errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, blob.ErrLost) { // the next attempt reads the file from its source
		err = fmt.Errorf("%w: the results of job %s were removed: %w", rowmill.ErrUnavailable, r.job.id, err)
	}
	row.Index = r.next
	r.next++
	return err
}

// IDType returns the type of the IDs of the rows.
func (r *knownRows) IDType() rowmill.IDType { return r.job.inputs.Schema.IDType }

// Close does nothing: the job closes its result file.
func (r *knownRows) Close() error { return nil }
