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

// An inputReader reads single rows of a job's input as long as it is kept, a
// block in memory at a time.
type inputReader struct {
	ctx    context.Context
	bucket blob.Bucket
	job    string
	texts  []string       // of an inline input
	shards []shard.Info   // of any other; none where it is gone
	kind   rowmill.IDKind // of its IDs
	open   *shard.Reader  // nil where none is
	at     int            // its number
	block  *shard.Block   // of it, nil before the first
}

func (a *Archive) openInput(ctx context.Context, record store.Record) (*inputReader, error) {
	in := &inputReader{ctx: ctx, bucket: a.bucket, job: record.Job.ID, texts: record.Spec.Inline}
	if in.texts != nil {
		return in, nil
	}
	o, err := a.bucket.Open(ctx, layout.Manifest(record.Job.ID))
	if errors.Is(err, rowmill.ErrNotFound) {
		return in, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open manifest: %w", err)
	}
	defer o.Close()
	var m shard.Manifest
	if err := json.NewDecoder(blob.NewReader(o)).Decode(&m); err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	in.shards, in.kind = m.Shards, m.IDKind
	return in, nil
}

func (in *inputReader) close() {
	if in.open != nil {
		_ = in.open.Close() // it was only read
		in.open, in.block = nil, nil
	}
}

// row is a results.Input.
func (in *inputReader) row(index int64) (row rowmill.Row, err error) {
	if in.texts != nil {
		if index >= int64(len(in.texts)) {
			return row, results.ErrInputGone
		}
		return rowmill.Row{Index: index, Text: in.texts[index]}, nil
	}
	n := sort.Search(len(in.shards), func(i int) bool { return in.shards[i].First > index }) - 1
	if n < 0 || index >= in.shards[n].First+int64(in.shards[n].Rows) {
		return row, results.ErrInputGone
	}
	if in.open == nil || in.at != n {
		if err := in.openShard(n); err != nil {
			return row, err
		}
	}
	within := int(index - in.shards[n].First)
	if in.block == nil || within < in.block.First || within >= in.block.First+in.block.Rows() {
		if in.block, err = in.open.ReadBlock(in.open.BlockOf(within)); err != nil {
			return row, gone(err)
		}
	}
	return rowmill.Row{Index: index, Text: in.block.Text(within), ID: in.block.ID(within)}, nil
}

func (in *inputReader) openShard(n int) error {
	in.close()
	o, err := in.bucket.Open(in.ctx, layout.Shard(in.job, n))
	if err != nil {
		return gone(fmt.Errorf("open shard %d: %w", n, err))
	}
	if in.open, err = shard.NewReader(o, o.Size(), o); err != nil {
		o.Close()
		return gone(fmt.Errorf("open shard %d: %w", n, err))
	}
	in.at = n
	return nil
}

// gone turns the absence of an object into results.ErrInputGone.
func gone(err error) error {
	if errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, blob.ErrLost) {
		return fmt.Errorf("%w: %w", results.ErrInputGone, err)
	}
	return err
}
