package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/input/function"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// jobInput is the input.Reader of the stored input of another job.
type jobInput struct {
	in       *archive.InputReader
	job      string // id of the other job
	types    rowmill.IDType
	rows     int64
	next     int64            // index of the next row
	columns  []string         // names of the columns of the stored rows
	template *function.Prompt // makes the prompts; nil: the stored texts are the prompts
	limit    int64            // size of a prompt in bytes
}

// openJobInput returns a reader of the stored input of a job. A job with a limit has the rows that
// its limit left out, too.
func (g *ingester) openJobInput(ctx context.Context, job string) (input.Reader, error) {
	record, err := g.Jobs.Get(ctx, job)
	switch {
	case errors.Is(err, rowmill.ErrNotFound):
		return nil, sourceGoneFailure(job)
	case err != nil:
		return nil, fmt.Errorf("read the job with the input: %w", err)
	case record.DataRemoved != nil || record.InputRemoved != nil:
		return nil, sourceGoneFailure(job)
	}
	name, m, err := g.findJobInput(ctx, &record)
	if err != nil {
		return nil, err
	}
	r := &jobInput{
		in:  archive.NewInputReader(ctx, g.Bucket, name, &record.Spec, m),
		job: job, types: m.IDType, rows: m.Rows, columns: results.FieldColumns(record.Spec.Function), limit: g.Limits.WithDefaults().MaxRowBytes,
	}
	if g.spec.Function != nil {
		r.template, err = promptOf(&g.spec)
	}
	return r, err
}

// findJobInput returns the list of the shards of a job's input, and the name of the job in their
// keys.
func (g *ingester) findJobInput(ctx context.Context, record *store.Record) (name string, m shard.Manifest, err error) {
	if texts := record.Spec.Inline; texts != nil {
		return record.Job.ID, shard.InlineManifest(texts), nil
	}
	name = layout.WholeInput(record.Job.ID)
	m, err = archive.ReadWholeManifest(ctx, g.Bucket, record.Job.ID)
	if errors.Is(err, rowmill.ErrNotFound) {
		name = record.Job.ID
		m, err = archive.ReadManifest(ctx, g.Bucket, record)
	}
	if errors.Is(err, rowmill.ErrNotFound) {
		err = sourceGoneFailure(record.Job.ID)
	}
	return name, m, err
}

// sourceGoneFailure returns the failure of a job that reads the stored input of the job id, which
// does not exist any more.
func sourceGoneFailure(id string) *rowmill.Failure {
	return rowmill.Failf(rowmill.CodeDownloadFailed, "The input of %s, which this job reads, is not kept any more. Send the rows again.", id)
}

// Next fills row with the next stored row.
func (r *jobInput) Next(row *rowmill.Row) (err error) {
	if r.next == r.rows {
		return io.EOF
	}
	*row, err = r.in.Row(r.next)
	if errors.Is(err, results.ErrInputRemoved) {
		return errors.Join(sourceGoneFailure(r.job), err)
	}
	if err != nil {
		return fmt.Errorf("read row %d of job %s: %w", r.next, r.job, err)
	}
	row.Index = r.next
	r.next++
	if r.template == nil {
		row.Fields = ""
		return nil
	}
	if row.Fields == "" {
		return nil // the client sent this row as a prompt
	}
	object, err := r.namedFields(row.Fields)
	if err == nil {
		row.Text, row.Fields, err = renderRow(r.template, row.Index, object, r.limit)
	}
	return err
}

// namedFields returns the stored values of a row as a JSON object.
func (r *jobInput) namedFields(fields string) ([]byte, error) {
	var values []string
	if err := json.Unmarshal([]byte(fields), &values); err != nil || len(values) != len(r.columns) {
		return nil, fmt.Errorf("read row %d of job %s: %w: it has other columns than its job", r.next-1, r.job, shard.ErrCorrupt)
	}
	named := make(map[string]string, len(values))
	for i, name := range r.columns {
		named[name] = values[i]
	}
	return json.Marshal(named)
}

// IDType returns the type of the IDs of the stored rows.
func (r *jobInput) IDType() rowmill.IDType { return r.types }

// Close closes the open shard.
func (r *jobInput) Close() error {
	r.in.Close()
	return nil
}
