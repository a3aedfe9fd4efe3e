package archive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// ResultFile is an open result file, which can be exported in any form. The caller closes
// it.
type ResultFile struct {
	results.Source
	Schema results.Schema
	io.Closer
}

// OpenPartial opens a file with all rows of a job. Rows that are not committed have no
// output. For an ended job, the file is made once and stored. For a running job, each
// call makes a new file. The record must have the number of rows.
func (a *Archive) OpenPartial(ctx context.Context, record store.Record) (ResultFile, error) {
	return retryIfMoved(ctx, a, record, func(record store.Record) (d ResultFile, err error) {
		if !record.Job.Status.IsTerminal() {
			return a.openSnapshot(ctx, record)
		}
		kept, err := a.makePartial(ctx, record)
		if err != nil {
			return d, err
		}
		object, err := a.bucket.Open(ctx, kept.Key)
		if err != nil {
			return d, MissingAsRemoved(fmt.Errorf("open the partial results: %w", err))
		}
		d = ResultFile{Source: object, Closer: object}
		if d.Schema, err = results.ReadSchema(object); err != nil {
			object.Close()
		}
		return d, MissingAsRemoved(err)
	})
}

// MakePartialParquet returns the Parquet file with all rows of a job that ended without
// success, in one variant. The first request makes the file.
func (a *Archive) MakePartialParquet(ctx context.Context, record store.Record, v results.FileVariant) (store.Artifact, error) {
	if record.Spec.Raw != nil {
		return a.makeRequestsFile(ctx, record, v)
	}
	return retryIfMoved(ctx, a, record, func(record store.Record) (store.Artifact, error) {
		base, err := a.makePartial(ctx, record)
		if err == nil && v.IsWide() {
			base, err = a.makeWide(ctx, record, base, base, layout.Partial+"~"+layout.Wide)
		}
		if err != nil || v == results.Wide {
			return base, err
		}
		return a.makeSubset(ctx, record, base, layout.Partial+"~"+v.Name(), v)
	})
}

// makePartial returns the file with all rows of a job that ended without success. The first
// request makes the file.
func (a *Archive) makePartial(ctx context.Context, record store.Record) (store.Artifact, error) {
	return a.getOrMakeFile(ctx, record, artifactSpec{layout.Partial, layout.NewSubsetKey, layout.Parquet}, func(ctx context.Context, w io.Writer) error {
		return a.writePartial(ctx, w, record)
	})
}

// openSnapshot writes all rows of a running job to a temporary file and opens it. The file
// has no name, so it disappears when it is closed.
func (a *Archive) openSnapshot(ctx context.Context, record store.Record) (d ResultFile, err error) {
	f, err := results.CreateUnnamedFile("rowmill-partial-*")
	if err != nil {
		return d, err
	}
	defer func() {
		if err != nil {
			_ = f.Close() // the first error is more useful than the error of Close
		}
	}()
	buffered := bufio.NewWriterSize(f, 256<<10)
	if err := errors.Join(a.writePartial(ctx, buffered, record), buffered.Flush()); err != nil {
		return d, err
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return d, fmt.Errorf("find the size of a temporary file: %w", err)
	}
	source := io.NewSectionReader(f, 0, size)
	schema, err := results.ReadSchema(source)
	return ResultFile{Source: source, Schema: schema, Closer: f}, err
}

// writePartial writes all rows of a job, with the committed outcomes. For any number of
// parts, it needs only the memory of one row group and of the merge of one shard.
func (a *Archive) writePartial(ctx context.Context, w io.Writer, record store.Record) error {
	committed, err := a.OpenCommitted(ctx, record)
	if err != nil {
		return missingAsMoved(err)
	}
	defer committed.Close()
	input, err := a.openInput(ctx, &record)
	if err != nil {
		return err
	}
	defer input.Close()
	schema := committed.Schema
	if schema.IDColumn != "" && input.input.IDKind != rowmill.IDNull {
		schema.IDType = input.input.IDType
	}
	if len(input.input.Fields) > 0 {
		schema.Fields = input.input.Fields
	}
	reason, err := a.missingRowReasons(ctx, record, input)
	if err != nil {
		return err
	}
	file, err := results.NewPartialWriter(w, schema, input.Row, reason)
	if err != nil {
		return err
	}
	if err := committed.Each(ctx, file.Add); err != nil {
		return missingAsMoved(fmt.Errorf("read committed rows: %w", err))
	}
	return file.Close(*record.Job.NumRows)
}

// missingRowReasons returns a function that returns the reason why a row has no outcome.
func (a *Archive) missingRowReasons(ctx context.Context, record store.Record, input *InputReader) (func(row int64) *rowmill.RowError, error) {
	lost, err := a.readLostRows(ctx, record, input.input.Shards)
	if err != nil {
		return nil, err
	}
	notRun := &rowmill.RowError{Code: rowmill.RowNotRun, Message: whyNotRun(record.Job)}
	isLost := &rowmill.RowError{Code: rowmill.RowLost, Message: fmt.Sprintf(
		"Object storage lost the answer after the row was done. POST /v1/jobs/%s/resume runs the row again.", record.Job.ID)}
	return func(row int64) *rowmill.RowError {
		if lost.has(row) {
			return isLost
		}
		return notRun
	}, nil
}

// whyNotRun returns the message for rows of a job that did not run.
func whyNotRun(job rowmill.Job) string {
	if !job.Status.IsTerminal() {
		return fmt.Sprintf("The row has not run yet; the job is %s.", job.Status)
	}
	ended := "failed"
	if job.Status == rowmill.StatusCancelled {
		ended = "was cancelled"
	}
	return fmt.Sprintf("The row did not run before the job %s. POST /v1/jobs/%s/resume runs it.", ended, job.ID)
}
