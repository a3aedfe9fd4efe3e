package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// keepColumns stores columns of the input for as long as the results, if the job keeps some. It
// fails the job if the input lacks a column, or if a column of the results has its name.
func (g *ingester) keepColumns(ctx context.Context, source store.Record) error {
	if len(g.spec.Keep) == 0 {
		return nil
	}
	in, err := g.openKept(ctx, source)
	if err != nil {
		return err
	}
	defer in.close()
	schema, columns := results.Schema{JobID: g.rec.Job.ID, Output: g.spec.Output}, make([]results.KeptColumn, 0, len(in.columns))
	for _, c := range in.columns {
		if schema.CheckKept(c.Name) != nil {
			return rowmill.Failf(rowmill.CodeInvalidInputFile, "The column %q, which keep_columns keeps, has the name of a column of the results. Rename it, choose another output_name, or keep only other columns.", c.Name)
		}
		columns = append(columns, results.KeptColumn(c))
	}
	written, err := blob.Write(ctx, g.Bucket, layout.KeptColumnsKey(g.rec.Job.ID), layout.Parquet, func(w io.Writer) error {
		return results.WriteKept(ctx, w, columns, in.next)
	})
	if err == nil { // the input is removed when the job has succeeded
		err = archive.VerifyWritten(ctx, g.Bucket, written)
	}
	if err != nil {
		return fmt.Errorf("store the kept columns: %w", err)
	}
	return nil
}

// A keptReader returns the values of the kept columns, in the order of the rows.
type keptReader struct {
	columns []input.SourceColumn
	next    func(values []rowmill.ID) error // fills values with the values of the next row; after the last row it returns io.EOF
	close   func()
}

// openKept opens the kept columns of the input of source, which is this job or the job that this job
// continues.
func (g *ingester) openKept(ctx context.Context, source store.Record) (keptReader, error) {
	if source.Spec.Source != "" {
		return g.openKeptOfFiles(ctx, source)
	}
	o, err := g.Bucket.Open(ctx, inputKey(&source))
	if errors.Is(err, rowmill.ErrNotFound) && source.Job.ID != g.rec.Job.ID {
		return keptReader{}, inputGoneFailure(source.Job.ID)
	}
	if err != nil {
		return keptReader{}, fmt.Errorf("open input: %w", err)
	}
	opts, err := g.options(&source.Spec)
	if source.Spec.URL == "" && source.Spec.File == "" { // the service wrote the rows as lines
		opts = input.Options{Format: input.FormatJSONL, Limits: opts.Limits}
	}
	var in *input.SourceReader
	if err == nil {
		in, err = input.OpenSource(o, o.Size(), opts, g.spec.KeptColumns())
	}
	if err != nil {
		return keptReader{}, errors.Join(err, o.Close())
	}
	return keptReader{columns: in.Columns, next: in.Next, close: func() {
		in.Close()
		_ = o.Close() // it was only read
	}}, nil
}
