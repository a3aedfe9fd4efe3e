package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/shard"
	"github.com/rowmill/rowmill/store"
)

// ReadManifest returns the list of a job's shards; rowmill.ErrNotFound where not
// all of them are there, or they are kept no more. One that a node wrote late, of
// another cut than the record counts, is refused.
func ReadManifest(ctx context.Context, bucket blob.Bucket, rec *store.Record) (shard.Manifest, error) {
	var m shard.Manifest
	o, err := bucket.Open(ctx, layout.Manifest(rec.Job.ID))
	if err != nil {
		return m, fmt.Errorf("open manifest: %w", err)
	}
	defer o.Close()
	if err := json.NewDecoder(blob.NewReader(o)).Decode(&m); err != nil {
		return m, fmt.Errorf("read manifest: %w", err)
	}
	if rec.Cut != "" && rec.Cut != m.Cut() {
		return m, fmt.Errorf("%w: the manifest has other shards than those that the job counted: a node that had stood still wrote its own", shard.ErrCorrupt)
	}
	return m, nil
}

// OpenShard opens shard n of a job for reading, in which the manifest has these
// rows. A node that was stopped while it cut the input may wake up and write a
// shard of its own in place of the one that counts: with the same first row and
// no fewer rows it holds the same ones, any other is refused.
func OpenShard(ctx context.Context, bucket blob.Bucket, job string, spec *rowmill.Spec, n int, has shard.Info) (*shard.Reader, error) {
	if spec.Inline != nil {
		return shard.FromTexts(spec.Inline), nil
	}
	o, err := bucket.Open(ctx, layout.Shard(job, n))
	if err != nil {
		return nil, fmt.Errorf("open shard %d: %w", n, err)
	}
	r, err := shard.NewReader(o, o.Size(), o)
	if err != nil {
		o.Close()
		return nil, fmt.Errorf("open shard %d: %w", n, err)
	}
	if r.First() != has.First || r.Rows() < has.Rows {
		return nil, errors.Join(fmt.Errorf("open shard %d: %w: it has %d rows from row %d on, the manifest says %d from row %d on: submit the job again",
			n, shard.ErrCorrupt, r.Rows(), r.First(), has.Rows, has.First), r.Close())
	}
	return r, nil
}

// An inputReader reads single rows of a job's input as long as it is kept, a
// block in memory at a time.
type inputReader struct {
	ctx    context.Context
	bucket blob.Bucket
	job    string
	spec   *rowmill.Spec
	input  shard.Manifest // no rows where it is gone
	open   *shard.Reader  // nil where none is
	at     int            // its number
	block  *shard.Block   // of it, nil before the first
}

func (a *Archive) openInput(ctx context.Context, record *store.Record) (in *inputReader, err error) {
	in = &inputReader{ctx: ctx, bucket: a.bucket, job: record.Job.ID, spec: &record.Spec}
	if texts := record.Spec.Inline; texts != nil {
		in.input = shard.Inline(texts)
	} else if in.input, err = ReadManifest(ctx, a.bucket, record); errors.Is(err, rowmill.ErrNotFound) {
		err = nil
	}
	return in, err
}

func (in *inputReader) close() {
	if in.open != nil {
		_ = in.open.Close() // it was only read
		in.open, in.block = nil, nil
	}
}

// row is a results.Input.
func (in *inputReader) row(index int64) (row rowmill.Row, err error) {
	shards := in.input.Shards
	n := sort.Search(len(shards), func(i int) bool { return shards[i].First > index }) - 1
	if n < 0 || index >= shards[n].First+int64(shards[n].Rows) {
		return row, results.ErrInputGone
	}
	if in.open == nil || in.at != n {
		in.close()
		if in.open, err = OpenShard(in.ctx, in.bucket, in.job, in.spec, n, shards[n]); err != nil {
			return row, gone(err)
		}
		in.at = n
	}
	within := int(index - shards[n].First)
	if in.block == nil || within < in.block.First || within >= in.block.First+in.block.Rows() {
		if in.block, err = in.open.ReadBlock(in.open.BlockOf(within)); err != nil {
			return row, gone(err)
		}
	}
	return in.block.Row(shards[n].First, within), nil
}

// gone turns the absence of an object into results.ErrInputGone. What stands in
// its place and is none of this input, or damaged, keeps nobody from the answers
// either.
func gone(err error) error {
	if errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, blob.ErrLost) || errors.Is(err, shard.ErrCorrupt) {
		return fmt.Errorf("%w: %w", results.ErrInputGone, err)
	}
	return err
}
