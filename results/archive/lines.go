package archive

import (
	"context"
	"errors"
	"io"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// MakeLinesFile returns a file with one line per row of an ended job. On the first request it
// calls the function write, which must write the lines to w. write gets the function
// each, which visits all rows in order. For a job that did not succeed, each also
// visits the rows that did not run, as Partial does.
func (a *Archive) MakeLinesFile(ctx context.Context, record store.Record, name string, write func(w io.Writer, each func(results.RowVisitor) error) error) (store.Artifact, error) {
	return retryIfMoved(ctx, a, record, func(record store.Record) (store.Artifact, error) {
		return a.getOrMakeFile(ctx, record, artifactSpec{name, layout.NewJSONLKey, layout.NDJSON}, func(ctx context.Context, w io.Writer) error {
			return write(w, func(visit results.RowVisitor) error { return a.eachRow(ctx, record, visit) })
		})
	})
}

// makeRequestsFile returns the Parquet file with the requests and replies of an ended batch.
func (a *Archive) makeRequestsFile(ctx context.Context, record store.Record, v results.FileVariant) (store.Artifact, error) {
	v = results.FileVariant{Inputs: v.Inputs} // the file of a batch has no other optional column
	return retryIfMoved(ctx, a, record, func(record store.Record) (store.Artifact, error) {
		return a.getOrMakeFile(ctx, record, artifactSpec{"requests~" + v.Name(), layout.NewSubsetKey, layout.Parquet}, func(ctx context.Context, w io.Writer) error {
			out, err := results.NewRequestWriter(w, record.Job.ID, record.Job.Model, record.Spec.IDColumn, v.Inputs)
			if err == nil {
				err = a.eachRow(ctx, record, out.Add)
			}
			if err != nil {
				return err
			}
			return out.Close()
		})
	})
}

// eachRow calls visit for all rows of an ended job, in order.
func (a *Archive) eachRow(ctx context.Context, record store.Record, visit results.RowVisitor) error {
	if _, succeeded := record.Artifacts[layout.Full]; succeeded {
		committed, err := a.OpenCommitted(ctx, record)
		if err != nil {
			return MissingAsRemoved(err)
		}
		defer committed.Close()
		return MissingAsRemoved(committed.result.Each(ctx, 0, *record.Job.NumRows, visit))
	}
	if record.Spec.Raw != nil && !record.IsCutIntoShards() {
		return a.eachUncountedRow(ctx, record, visit)
	}
	kept, err := a.makePartial(ctx, record)
	if err != nil {
		return err
	}
	object, err := a.bucket.Open(ctx, kept.Key)
	if err != nil {
		return MissingAsRemoved(err)
	}
	defer object.Close()
	schema, err := results.ReadSchema(object)
	if err != nil {
		return MissingAsRemoved(err)
	}
	return MissingAsRemoved(results.VisitPartRows(ctx, schema, []results.PartSource{{Source: object}}, visit))
}

// maxSpooledLine is larger than any line of a spooled batch, in bytes. The server
// checked the size of the lines when the client sent them.
const maxSpooledLine = 1 << 30

// eachUncountedRow calls visit for the rows of a batch that ended before its rows were
// counted. It reads the rows from the input. If the input is removed, the rows have
// only an index.
func (a *Archive) eachUncountedRow(ctx context.Context, record store.Record, visit results.RowVisitor) error {
	notRun := rowmill.RowOutput{Err: &rowmill.RowError{Code: rowmill.RowNotRun, Message: whyNotRun(record.Job)}}
	in, err := a.openInput(ctx, &record)
	if err != nil {
		return err
	}
	defer in.Close()
	for i := range in.input.Rows { // the input was split, but the record does not have the number of rows
		row, err := in.Row(i)
		if errors.Is(err, results.ErrInputRemoved) {
			return errMoved
		}
		if err == nil {
			err = visit(&row, &notRun)
		}
		if err != nil {
			return err
		}
	}
	if in.input.Rows > 0 {
		return nil
	}
	object, err := a.bucket.Open(ctx, record.Spec.Spooled)
	if errors.Is(err, rowmill.ErrNotFound) && record.InputRemoved != nil {
		for i := range record.Spec.Raw.Requests {
			if err := visit(&rowmill.Row{Index: i}, &notRun); err != nil {
				return err
			}
		}
		return nil
	}
	if err != nil {
		return missingAsMoved(err)
	}
	defer object.Close()
	lines := input.OpenBatch(blob.NewReader(object), record.Spec.Raw.Path, input.Limits{MaxRowBytes: maxSpooledLine})
	for {
		var row rowmill.Row
		err := lines.Next(&row)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = visit(&row, &notRun)
		}
		if err != nil {
			return missingAsMoved(err)
		}
	}
}
