package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

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
	storedRows
	job      string           // id of the other job
	next     int64            // index of the next row
	template *function.Prompt // makes the prompts; nil: the stored texts are the prompts
	limit    int64            // size of a prompt in bytes
}

// storedRows are the rows of a job's input: in its shards, or in its result file.
type storedRows struct {
	row     func(index int64) (rowmill.Row, error)
	rows    int64
	types   rowmill.IDType
	columns []string // names of the columns of the rows
	close   func() error
}

// ErrInputNotReady means that a job reads the stored input of another job, and the other job has not
// yet read its input.
var ErrInputNotReady = errors.New("the other job has not read its input yet")

const (
	// inputPatience is how long a job waits for another job to read its input, before the job returns
	// ErrInputNotReady. Meanwhile it keeps its place on the node. Most inputs are read in this time.
	inputPatience = 5 * time.Second
	inputLook     = 100 * time.Millisecond // time between two looks at the other job
)

// awaitJobInput waits until another job has read its input or has ended. After inputPatience it
// returns ErrInputNotReady.
func (g *ingester) awaitJobInput(ctx context.Context, job string) error {
	for began := g.Clock(); ; {
		var source store.Record
		err := g.Wait(ctx, func() (err error) {
			source, err = g.Jobs.Get(ctx, job)
			return err
		})
		switch {
		case errors.Is(err, rowmill.ErrNotFound):
			return nil // openJobInput says that the input is gone
		case err != nil:
			return fmt.Errorf("read the job with the input: %w", err)
		case source.Spec.Inline != nil || source.IsCutIntoShards() || source.Job.Status.IsTerminal():
			return nil
		case g.Clock().Sub(began) >= inputPatience:
			return ErrInputNotReady
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(inputLook):
		}
	}
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
	case record.DataRemoved != nil:
		return nil, sourceGoneFailure(job)
	}
	r := &jobInput{job: job, limit: g.Limits.WithDefaults().MaxRowBytes}
	if g.spec.Function != nil {
		if r.template, err = promptOf(&g.spec); err != nil {
			return nil, err
		}
	}
	_, hasResults := record.Artifacts[layout.Full]
	if hasResults && record.Spec.Limit == 0 { // then the shards are removed, or soon will be
		r.storedRows, err = g.openResultInputs(ctx, &record)
	} else if r.storedRows, err = g.openShards(ctx, &record); hasResults && errors.Is(err, rowmill.ErrNotFound) {
		r.storedRows, err = g.openResultInputs(ctx, &record)
	}
	if errors.Is(err, rowmill.ErrNotFound) {
		gone := sourceGoneFailure(job)
		if !record.IsCutIntoShards() && record.InputRemoved == nil {
			gone = rowmill.Failf(rowmill.CodeDownloadFailed, "This job reads the input of %s, but that job ended before it had read its input. Send the rows again.", job)
		}
		err = errors.Join(gone, err)
	}
	return r, err
}

// openShards opens the shards of a job's input. If they are removed, the error is
// rowmill.ErrNotFound.
func (g *ingester) openShards(ctx context.Context, record *store.Record) (s storedRows, err error) {
	name, m := record.Job.ID, shard.Manifest{}
	if texts := record.Spec.Inline; texts != nil {
		m = shard.InlineManifest(texts)
	} else if m, err = archive.ReadWholeManifest(ctx, g.Bucket, name); err == nil {
		name = layout.WholeInput(name)
	} else if errors.Is(err, rowmill.ErrNotFound) {
		m, err = archive.ReadManifest(ctx, g.Bucket, record)
	}
	in := archive.NewInputReader(ctx, g.Bucket, name, &record.Spec, m)
	return storedRows{
		row: in.Row, rows: m.Rows, types: m.IDType, columns: results.FieldColumns(record.Spec.Function),
		close: func() error { in.Close(); return nil },
	}, err
}

// openResultInputs opens the inputs in the result file of a job that succeeded: its shards are
// removed at its end.
func (g *ingester) openResultInputs(ctx context.Context, record *store.Record) (s storedRows, err error) {
	file, err := g.Bucket.Open(ctx, record.Artifacts[layout.Full].Key)
	if err != nil {
		return s, fmt.Errorf("open the result file of job %s: %w", record.Job.ID, err)
	}
	in, err := results.OpenInputs(file)
	if err != nil {
		return s, errors.Join(err, file.Close())
	}
	return storedRows{row: in.Row, rows: in.Rows, types: in.Schema.IDType, columns: in.Schema.Fields, close: file.Close}, nil
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
	*row, err = r.row(r.next)
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

// Close closes the open shard or file.
func (r *jobInput) Close() error { return r.close() }
