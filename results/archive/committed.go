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

// maxOpen is the largest number of objects that are open at a time.
const maxOpen = 256

// CommittedRows is a snapshot of a job's committed rows. It reads them from parts, or from
// the result files of a job that succeeded.
type CommittedRows struct {
	Schema results.Schema

	bucket     blob.Bucket
	shards     [][]store.Part        // parts by shard; empty for a job that succeeded
	full, rows blob.Object           // result files of a job that succeeded, or nil
	result     *results.ResultReader // reads full and rows
	truncated  int64                 // number of truncated rows of a job that succeeded
}

// OpenCommitted opens the committed rows of a job. The caller closes the result. If an
// object is deleted meanwhile, OpenCommitted or a later read returns
// rowmill.ErrNotFound.
func (a *Archive) OpenCommitted(ctx context.Context, record store.Record) (c *CommittedRows, err error) {
	spec := record.Spec
	c = &CommittedRows{bucket: a.bucket, Schema: results.Schema{
		JobID: record.Job.ID, Output: spec.Output, Model: spec.Model.ID, IDColumn: spec.IDColumn, Embedding: spec.Model.Kind == rowmill.KindEmbedding,
	}}
	if c.Schema.IDColumn != "" {
		c.Schema.IDKind = rowmill.IDString // the default if no file says the type of the IDs
	}
	if _, made := record.Artifacts[layout.Full]; made { // an estimate can succeed without a sample, and so without results
		if c, err = OpenResult(ctx, a.bucket, record.Artifacts); err != nil {
			return nil, err
		}
		c.truncated = record.Job.TruncatedRows
		return c, nil
	}
	parts, err := a.listParts(ctx, record.Job.ID)
	if err != nil {
		return nil, err
	}
	if c.shards = groupByShard(parts); len(parts) == 0 {
		return c, nil
	}
	first := blob.NewLazyObjects(ctx, a.bucket, 1).Object(parts[0].Key, parts[0].Size)
	defer first.Close()
	c.Schema, err = results.ReadSchema(first)
	return c, err
}

// OpenResult opens the rows in the result files of a job that succeeded. The caller closes the
// result.
func OpenResult(ctx context.Context, bucket blob.Bucket, files map[string]store.Artifact) (c *CommittedRows, err error) {
	c = &CommittedRows{bucket: bucket}
	if c.full, err = bucket.Open(ctx, files[layout.Full].Key); err != nil {
		return nil, fmt.Errorf("open the result file: %w", err)
	}
	if c.rows, err = bucket.Open(ctx, files[layout.Rows].Key); err != nil {
		c.Close()
		return nil, fmt.Errorf("open the rows file: %w", err)
	}
	if c.Schema, err = results.ReadSchema(c.full); err == nil {
		c.result, err = results.OpenResult(c.Schema, c.full, c.rows)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close closes the open result files.
func (c *CommittedRows) Close() {
	for _, o := range []blob.Object{c.full, c.rows} {
		if o != nil {
			o.Close()
		}
	}
}

// Each calls visit for all committed rows of a job that did not succeed, in order.
func (c *CommittedRows) Each(ctx context.Context, visit results.RowVisitor) error {
	for _, parts := range c.shards {
		if err := c.eachRowOfParts(ctx, parts, -1, visit); err != nil {
			return err
		}
	}
	return nil
}

// Lookup returns a function that calls visit for row n of a job that succeeded. It reads rows in
// ascending order fast.
func (c *CommittedRows) Lookup() (func(n int64, visit results.RowVisitor) error, error) {
	return c.result.Lookup()
}

// EachRowOfShard calls visit for the committed rows of shard n, in order. first is the
// index of the shard's first row, and rows is its number of rows.
func (c *CommittedRows) EachRowOfShard(ctx context.Context, n int, first int64, rows int, visit results.RowVisitor) error {
	if c.result != nil {
		return c.result.Each(ctx, first, first+int64(rows), visit)
	}
	if parts := c.partsOf(n); parts != nil {
		return c.eachRowOfParts(ctx, parts, first, visit)
	}
	return nil
}

// TruncatedRows returns how many committed rows of shard n were truncated to fit the
// context. Only the totals of parts and jobs have this number. So for a job that
// succeeded, TruncatedRows(0) returns the number for the whole job, and TruncatedRows
// returns 0 for any other shard.
func (c *CommittedRows) TruncatedRows(n int) (rows int64) {
	if c.result != nil && n == 0 {
		return c.truncated
	}
	for _, p := range c.partsOf(n) {
		rows += p.Totals.TruncatedRows
	}
	return rows
}

// partsOf returns the parts of shard n, or nil if no rows of the shard are committed.
func (c *CommittedRows) partsOf(n int) []store.Part {
	at, found := slices.BinarySearchFunc(c.shards, n, func(parts []store.Part, n int) int { return cmp.Compare(parts[0].Shard, n) })
	if !found {
		return nil
	}
	return c.shards[at]
}

// eachRowOfParts calls visit for the rows of a shard's parts. first is the index of the
// shard's first row. If first is -1, eachRowOfParts reads it from the shard's first
// committed part, because all rows of that part were accepted.
func (c *CommittedRows) eachRowOfParts(ctx context.Context, parts []store.Part, first int64, visit results.RowVisitor) error {
	objects := blob.NewLazyObjects(ctx, c.bucket, maxOpen)
	sources := make([]results.PartSource, len(parts))
	for i, p := range parts {
		var accepted *roaring.Bitmap
		if !p.Complete {
			var err error
			if accepted, err = AcceptedRows(p); err != nil {
				return err
			}
		}
		part := objects.Object(p.Key, p.Size)
		defer part.Close()
		sources[i] = results.PartSource{Source: part, Accept: accepted, Release: part.Close}
	}
	if first < 0 {
		row, err := results.FirstRowIndex(sources[0].Source)
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
	return results.VisitPartRows(ctx, c.Schema, sources, visit)
}

// missingAsMoved converts the error for a missing object into errMoved. It returns other
// errors unchanged.
func missingAsMoved(err error) error {
	if errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, blob.ErrLost) {
		return fmt.Errorf("%w: %w", errMoved, err)
	}
	return err
}
