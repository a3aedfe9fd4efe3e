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
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// ReadManifest returns the list of a job's input shards. If the shards are incomplete
// or removed, the error is rowmill.ErrNotFound. A suspended node may resume and
// overwrite the manifest with other shards than the record counts. Then ReadManifest
// returns shard.ErrCorrupt.
func ReadManifest(ctx context.Context, bucket blob.Bucket, rec *store.Record) (shard.Manifest, error) {
	m, err := readManifest(ctx, bucket, rec.Job.ID)
	if err != nil {
		return m, err
	}
	if rec.Cut != "" && rec.Cut != m.ShardHash() {
		return m, fmt.Errorf("%w: the manifest lists other shards than the job counted: a node that had been suspended overwrote it", shard.ErrCorrupt)
	}
	return m, nil
}

// ReadWholeManifest returns the list of shards of the whole input of a job with a limit. If
// there is none, the error is rowmill.ErrNotFound.
func ReadWholeManifest(ctx context.Context, bucket blob.Bucket, job string) (shard.Manifest, error) {
	return readManifest(ctx, bucket, layout.WholeInput(job))
}

func readManifest(ctx context.Context, bucket blob.Bucket, job string) (m shard.Manifest, err error) {
	o, err := bucket.Open(ctx, layout.ManifestKey(job))
	if err != nil {
		return m, fmt.Errorf("open manifest: %w", err)
	}
	defer o.Close()
	if err := json.NewDecoder(blob.NewReader(o)).Decode(&m); err != nil {
		return m, fmt.Errorf("read manifest: %w", err)
	}
	return m, nil
}

// OpenShard opens shard n of a job's input. want is the shard's entry in the manifest.
// A node that was suspended while it split the input may resume and overwrite a shard.
// A shard with the same first row as want, and at least as many rows, contains the rows
// of want. Any other shard is an error.
func OpenShard(ctx context.Context, bucket blob.Bucket, job string, spec *rowmill.Spec, n int, want shard.ManifestEntry) (*shard.Reader, error) {
	if spec.Inline != nil {
		return shard.NewTextReader(spec.Inline), nil
	}
	o, err := bucket.Open(ctx, layout.ShardKey(job, n))
	if err != nil {
		return nil, fmt.Errorf("open shard %d: %w", n, err)
	}
	r, err := shard.NewReader(o, o.Size(), o)
	if err != nil {
		o.Close()
		return nil, fmt.Errorf("open shard %d: %w", n, err)
	}
	if r.FirstRow() != want.First || r.Rows() < want.Rows {
		return nil, errors.Join(fmt.Errorf("open shard %d: %w: it has %d rows from row %d on, the manifest says %d from row %d on: submit the job again",
			n, shard.ErrCorrupt, r.Rows(), r.FirstRow(), want.Rows, want.First), r.Close())
	}
	return r, nil
}

// InputReader reads single rows of a job's input until the input is removed. It has one
// block in memory.
type InputReader struct {
	ctx         context.Context
	bucket      blob.Bucket
	job         string // ID of the job
	spec        *rowmill.Spec
	input       shard.Manifest // the shards of the input; no rows if the input was removed
	open        *shard.Reader  // nil if no shard is open
	shardNumber int            // number of the open shard
	block       *shard.Block   // current block of the open shard, or nil
}

// openInput returns a reader of a job's input. If the input was removed, the reader has
// no rows.
func (a *Archive) openInput(ctx context.Context, record *store.Record) (in *InputReader, err error) {
	var input shard.Manifest
	if texts := record.Spec.Inline; texts != nil {
		input = shard.InlineManifest(texts)
	} else if input, err = ReadManifest(ctx, a.bucket, record); errors.Is(err, rowmill.ErrNotFound) {
		err = nil
	}
	return NewInputReader(ctx, a.bucket, record.Job.ID, &record.Spec, input), err
}

// NewInputReader returns a reader of the rows in the shards that input lists. job is the
// name of the job in their keys. The caller closes it.
func NewInputReader(ctx context.Context, bucket blob.Bucket, job string, spec *rowmill.Spec, input shard.Manifest) *InputReader {
	return &InputReader{ctx: ctx, bucket: bucket, job: job, spec: spec, input: input}
}

// Close closes the open shard.
func (in *InputReader) Close() {
	if in.open != nil {
		_ = in.open.Close() // the shard was only read, so an error loses no data
		in.open, in.block = nil, nil
	}
}

// Row returns the input row with an index. It can be used as a results.InputReadFunc.
func (in *InputReader) Row(index int64) (row rowmill.Row, err error) {
	shards := in.input.Shards
	n := sort.Search(len(shards), func(i int) bool { return shards[i].First > index }) - 1
	if n < 0 || index >= shards[n].First+int64(shards[n].Rows) {
		return row, results.ErrInputRemoved
	}
	if in.open == nil || in.shardNumber != n {
		in.Close()
		if in.open, err = OpenShard(in.ctx, in.bucket, in.job, in.spec, n, shards[n]); err != nil {
			return row, asInputRemoved(err)
		}
		in.shardNumber = n
	}
	within := int(index - shards[n].First)
	if in.block == nil || within < in.block.First || within >= in.block.First+in.block.Rows() {
		if in.block, err = in.open.ReadBlock(in.open.BlockOf(within)); err != nil {
			return row, asInputRemoved(err)
		}
	}
	return in.block.Row(shards[n].First, within), nil
}

// asInputRemoved converts the error for a missing object into results.ErrInputRemoved.
// It does the same for a shard that is damaged or belongs to another input, so that the
// job's outputs can still be read.
func asInputRemoved(err error) error {
	if errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, blob.ErrLost) || errors.Is(err, shard.ErrCorrupt) {
		return fmt.Errorf("%w: %w", results.ErrInputRemoved, err)
	}
	return err
}
