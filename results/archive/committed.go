package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// maxOpen bounds the parts whose objects are open at a time.
const maxOpen = 256

// Committed are the rows of a job that are done, as they are when it is made:
// in parts, or in the files of a success.
type Committed struct {
	Schema results.Schema

	bucket     blob.Bucket
	shards     [][]store.Part
	full, rows blob.Object     // of a success, else nil
	result     *results.Result // in them
	truncated  int64           // rows of a success that were cut
}

// OpenCommitted finds the committed rows of a job; the caller closes them. An
// object that went meanwhile is rowmill.ErrNotFound, here or when it is read.
func (a *Archive) OpenCommitted(ctx context.Context, record store.Record) (c *Committed, err error) {
	spec := record.Spec
	c = &Committed{bucket: a.bucket, Schema: results.Schema{
		JobID: record.Job.ID, Model: spec.Model.ID, IDColumn: spec.IDColumn, Embedding: spec.Model.Kind == rowmill.KindEmbedding,
	}}
	if c.Schema.IDColumn != "" {
		c.Schema.IDKind = rowmill.IDString // where nothing tells
	}
	if record.Job.Status == rowmill.StatusSucceeded {
		return c, c.openResult(ctx, record)
	}
	parts, err := a.parts(ctx, record.Job.ID)
	if err != nil {
		return nil, err
	}
	if c.shards = byShard(parts); len(parts) == 0 {
		return c, nil
	}
	first := blob.NewLazies(ctx, a.bucket, 1).Object(parts[0].Key, parts[0].Size)
	defer first.Close()
	c.Schema, err = results.ReadSchema(first)
	return c, err
}

func (c *Committed) openResult(ctx context.Context, record store.Record) (err error) {
	c.truncated = record.Job.TruncatedRows
	if c.full, err = c.bucket.Open(ctx, record.Artifacts[layout.Full].Key); err != nil {
		return fmt.Errorf("open the result file: %w", err)
	}
	if c.rows, err = c.bucket.Open(ctx, record.Artifacts[layout.Rows].Key); err != nil {
		c.Close()
		return fmt.Errorf("open the file of the rows: %w", err)
	}
	if c.Schema, err = results.ReadSchema(c.full); err == nil {
		c.result, err = results.OpenResult(c.Schema, c.full, c.rows)
	}
	if err != nil {
		c.Close()
	}
	return err
}

// Close lets go of the files.
func (c *Committed) Close() {
	for _, o := range []blob.Object{c.full, c.rows} {
		if o != nil {
			o.Close()
		}
	}
}

// Each visits all committed rows of a job that has not succeeded, in order.
func (c *Committed) Each(ctx context.Context, visit results.Visit) error {
	for _, parts := range c.shards {
		if err := c.eachOfParts(ctx, parts, -1, visit); err != nil {
			return err
		}
	}
	return nil
}

// EachOfShard visits the committed rows of shard n, which has so many rows from
// row first on, in order.
func (c *Committed) EachOfShard(ctx context.Context, n int, first int64, rows int, visit results.Visit) error {
	if c.result != nil {
		return c.result.Each(ctx, first, first+int64(rows), visit)
	}
	if parts := c.of(n); parts != nil {
		return c.eachOfParts(ctx, parts, first, visit)
	}
	return nil
}

// TruncatedRows is how many committed rows of shard n were cut to fit the
// context, which no row itself tells. Of a success the first shard has them all.
func (c *Committed) TruncatedRows(n int) (rows int64) {
	if c.result != nil && n == 0 {
		return c.truncated
	}
	for _, p := range c.of(n) {
		rows += p.Totals.TruncatedRows
	}
	return rows
}

// of returns the parts of shard n, which are none where nothing of it is
// committed.
func (c *Committed) of(n int) []store.Part {
	at, found := slices.BinarySearchFunc(c.shards, n, func(parts []store.Part, n int) int { return cmp.Compare(parts[0].Shard, n) })
	if !found {
		return nil
	}
	return c.shards[at]
}

// eachOfParts visits the rows of a shard's parts. Where its first row is not
// known, -1, its first part tells: before all others were committed, all its
// rows were accepted.
func (c *Committed) eachOfParts(ctx context.Context, parts []store.Part, first int64, visit results.Visit) error {
	objects := blob.NewLazies(ctx, c.bucket, maxOpen)
	sources := make([]results.PartSource, len(parts))
	for i, p := range parts {
		var accepted *roaring.Bitmap
		if !p.Complete {
			var err error
			if accepted, err = acceptedRows(p); err != nil {
				return err
			}
		}
		part := objects.Object(p.Key, p.Size)
		defer part.Close()
		sources[i] = results.PartSource{Source: part, Accept: accepted, Release: part.Close}
	}
	if first < 0 {
		row, err := results.FirstRow(sources[0].Source)
		if err != nil {
			return err
		}
		if first = row; sources[0].Accept != nil {
			first -= int64(sources[0].Accept.Minimum())
		}
	}
	for i := range sources {
		sources[i].First = first
	}
	return results.EachOfParts(ctx, c.Schema, sources, visit)
}

// moved turns the absence of an object into errMoved.
func moved(err error) error {
	if errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, blob.ErrLost) {
		return fmt.Errorf("%w: %w", errMoved, err)
	}
	return err
}
