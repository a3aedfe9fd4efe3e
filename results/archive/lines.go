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

// Lines returns a file with one line per row of an ended job. On the first request it
// calls write, which must write the lines to w. each is for write: it visits all rows in
// order. For a job that did not succeed, each also visits the rows that did not run, as
// Partial does.
func (a *Archive) Lines(ctx context.Context, record store.Record, name string, write func(w io.Writer, each func(results.Visit) error) error) (made store.Artifact, err error) {
	err = a.retryMoved(ctx, record, func(record store.Record) error {
		made, err = a.fileOf(ctx, record, file{name, layout.Lines, layout.NDJSON}, func(ctx context.Context, w io.Writer) error {
			return write(w, func(visit results.Visit) error { return a.eachRow(ctx, record, visit) })
		})
		return err
	})
	return made, err
}

// requests returns the Parquet file with the requests and replies of an ended batch.
func (a *Archive) requests(ctx context.Context, record store.Record, v results.Variant) (made store.Artifact, err error) {
	v.Logprobs = false // replies have no such column
	err = a.retryMoved(ctx, record, func(record store.Record) error {
		made, err = a.fileOf(ctx, record, file{"requests~" + v.Name(), layout.Subset, layout.Parquet}, func(ctx context.Context, w io.Writer) error {
			out, err := results.NewRequestWriter(w, record.Job.ID, record.Job.Model, record.Spec.IDColumn, v.Inputs)
			if err == nil {
				err = a.eachRow(ctx, record, out.Add)
			}
			if err != nil {
				return err
			}
			return out.Close()
		})
		return err
	})
	return made, err
}

// eachRow visits all rows of an ended job.
func (a *Archive) eachRow(ctx context.Context, record store.Record, visit results.Visit) error {
	if _, succeeded := record.Artifacts[layout.Full]; succeeded {
		committed, err := a.OpenCommitted(ctx, record)
		if err != nil {
			return Removed(err)
		}
		defer committed.Close()
		return Removed(committed.result.Each(ctx, 0, *record.Job.NumRows, visit))
	}
	if record.Spec.Raw != nil && !record.Counted() {
		return a.eachUncounted(ctx, record, visit)
	}
	kept, err := a.partial(ctx, record)
	if err != nil {
		return err
	}
	object, err := a.bucket.Open(ctx, kept.Key)
	if err != nil {
		return Removed(err)
	}
	defer object.Close()
	schema, err := results.ReadSchema(object)
	if err != nil {
		return Removed(err)
	}
	return Removed(results.EachOfParts(ctx, schema, []results.PartSource{{Source: object}}, visit))
}

// maxSpooledLine is larger than any line of a spooled batch: the server limited the
// lines when the client sent them.
const maxSpooledLine = 1 << 30

// eachUncounted visits the rows of a batch that ended before its rows were
// counted, until the input is removed.
func (a *Archive) eachUncounted(ctx context.Context, record store.Record, visit results.Visit) error {
	notRun := rowmill.Output{Err: &rowmill.RowError{Code: rowmill.RowNotRun, Message: whyNotRun(record.Job)}}
	in, err := a.openInput(ctx, &record)
	if err != nil {
		return err
	}
	defer in.close()
	for i := range in.input.Rows { // the input was split, but the record was not updated
		row, err := in.row(i)
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
		return asMoved(err)
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
			return asMoved(err)
		}
	}
}
