package archive

import (
	"context"
	"io"

	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// Lines returns a file of lines about the rows of a job that is over, and has it
// written when nobody has asked for it before. each visits all rows in order, of a
// job that has not succeeded also those that did not run, as Partial has them.
func (a *Archive) Lines(ctx context.Context, record store.Record, name string, write func(w io.Writer, each func(results.Visit) error) error) (made store.Artifact, err error) {
	err = a.reading(ctx, record, func(record store.Record) error {
		made, err = a.made(ctx, record, file{name, layout.Lines, layout.NDJSON}, func(ctx context.Context, w io.Writer) error {
			return write(w, func(visit results.Visit) error { return a.eachRow(ctx, record, visit) })
		})
		return err
	})
	return made, err
}

// eachRow visits all rows of a job that is over.
func (a *Archive) eachRow(ctx context.Context, record store.Record, visit results.Visit) error {
	if _, succeeded := record.Artifacts[layout.Full]; succeeded {
		committed, err := a.OpenCommitted(ctx, record)
		if err != nil {
			return Removed(err)
		}
		defer committed.Close()
		return Removed(committed.result.Each(ctx, 0, *record.Job.NumRows, visit))
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
