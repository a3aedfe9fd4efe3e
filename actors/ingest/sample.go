package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// cutSample cuts the whole input of an estimate or a job with a limit, chooses the rows to run, and cuts
// them as the input of the job. A later job can then run the other rows of the input.
func (g *ingester) cutSample(ctx context.Context, source store.Record) (m shard.Manifest, err error) {
	whole, err := g.cutWhole(ctx, source)
	if err != nil {
		return m, err
	}
	chosen := roaring.New()
	if g.spec.Estimate {
		err = chosen.UnmarshalBinary(whole.Sample)
		g.spec.Dedup = false // no chosen row is a copy
	} else {
		chosen = shard.ChooseRows(&g.spec, whole.Rows)
	}
	if err != nil {
		return m, fmt.Errorf("read the numbers of the chosen rows: %w: %w", shard.ErrCorrupt, err)
	}
	in := archive.NewInputReader(ctx, g.Bucket, layout.WholeInput(g.id), &g.spec, whole)
	if m, err = g.cutRows(ctx, &sampleReader{in: in, types: whole.IDType, numbers: chosen.Iterator()}, whole.Fields); err != nil {
		return m, err
	}
	m.InputRows, m.Estimated = whole.Rows, whole.Estimated
	if m.Sample, err = chosen.ToBytes(); err != nil {
		return m, fmt.Errorf("encode the numbers of the chosen rows: %w", err)
	}
	return m, g.writeManifestAndLists(ctx, &m)
}

// cutWhole cuts the whole input, unless an earlier run has cut it. Without an estimate, the
// quotas apply to the rows that will run only.
func (g *ingester) cutWhole(ctx context.Context, source store.Record) (shard.Manifest, error) {
	m, err := archive.ReadWholeManifest(ctx, g.Bucket, g.id)
	if !errors.Is(err, rowmill.ErrNotFound) {
		return m, err
	}
	whole := &ingester{Config: g.Config, counter: g.counter, rec: g.rec, id: layout.WholeInput(g.id), spec: g.spec}
	if !g.spec.Estimate {
		whole.spec.RowQuota, whole.spec.TokenQuota, whole.spec.CostQuota, whole.spec.Dedup = 0, 0, nil, false
		whole.spec.Model.ContextLength = 0 // a row that is too long matters only if it is chosen
	}
	defer func() { whole.copies.drop() }()
	if g.spec.Reuse != nil {
		if whole.digests, err = g.newDigestWriter(ctx, layout.DigestsKey(g.id, string(g.spec.Reuse.By))); err != nil {
			return m, err
		}
		defer whole.digests.object.Abort()
	}
	return whole.cutInput(ctx, source)
}

// A sampleReader is the input.Reader of the chosen rows of an input.
type sampleReader struct {
	in      *archive.InputReader
	types   rowmill.IDType
	numbers roaring.IntPeekable
	next    int64 // index of the next chosen row
}

func (s *sampleReader) Next(row *rowmill.Row) (err error) {
	if !s.numbers.HasNext() {
		return io.EOF
	}
	if *row, err = s.in.Row(int64(s.numbers.Next())); err != nil {
		return fmt.Errorf("read a chosen row: %w", err)
	}
	row.Index = s.next
	s.next++
	return nil
}

func (s *sampleReader) IDType() rowmill.IDType { return s.types }

func (s *sampleReader) Close() error {
	s.in.Close()
	return nil
}

// A sampleTakeover takes over the committed rows of a job with a limit into a job that runs
// the whole input. The rows have other numbers there.
type sampleTakeover struct {
	chosen    *roaring.Bitmap       // numbers in the whole input, by index in the old job
	shards    []shard.ManifestEntry // shards of the old job
	truncated int64                 // number of truncated rows that no part of the new job counts yet

	next func() (sampledRow, bool) // returns the committed rows in order
	stop func()
	row  sampledRow // the last row from next
	more bool       // row has not been visited
}

type sampledRow struct {
	rowmill.Row
	out *rowmill.RowOutput
	err error
}

// findWholeInput makes the new job use the whole input of the old job, which has a limit. If
// the old job is a continuation, the first of its predecessors has the whole input.
func (t *takeover) findWholeInput(ctx context.Context) error {
	chosen := roaring.New()
	if err := chosen.UnmarshalBinary(t.input.Sample); err != nil {
		return fmt.Errorf("read the numbers of the chosen rows: %w: %w", shard.ErrCorrupt, err)
	}
	t.sample = &sampleTakeover{chosen: chosen, shards: t.input.Shards}
	for source := t.old; ; {
		var err error
		t.source = layout.WholeInput(source.Job.ID)
		t.input, err = archive.ReadWholeManifest(ctx, t.Bucket, source.Job.ID)
		t.input.Sample = nil // the new job runs all rows
		switch {
		case !errors.Is(err, rowmill.ErrNotFound):
			return err
		case source.Spec.Continue == nil:
			return inputGoneFailure(t.old.Job.ID)
		}
		if source, err = t.Jobs.Get(ctx, source.Spec.Continue.Job); err != nil {
			return fmt.Errorf("read the job with the whole input: %w", err)
		}
	}
}

// begin begins to read the committed rows of the old job. The caller must call stop.
func (s *sampleTakeover) begin(ctx context.Context, rows *archive.CommittedRows) {
	for n := range s.shards {
		s.truncated += rows.TruncatedRows(n)
	}
	s.next, s.stop = iter.Pull(s.committedRows(ctx, rows))
	s.row, s.more = s.next()
}

// errStopped stops the reading of committed rows, because the sample needs no more of them.
var errStopped = errors.New("stopped")

// committedRows returns the committed rows of the old job, with their numbers in the whole
// input.
func (s *sampleTakeover) committedRows(ctx context.Context, rows *archive.CommittedRows) iter.Seq[sampledRow] {
	return func(yield func(sampledRow) bool) {
		for n, info := range s.shards {
			err := rows.EachRowOfShard(ctx, n, info.First, info.Rows, func(row *rowmill.Row, out *rowmill.RowOutput) error {
				number, err := s.chosen.Select(uint32(row.Index)) //nolint:gosec // a number in a bitmap
				sampled := sampledRow{Row: *row, out: out, err: err}
				if sampled.Index = int64(number); !yield(sampled) {
					return errStopped
				}
				return nil
			})
			if err != nil {
				if !errors.Is(err, errStopped) {
					yield(sampledRow{err: err})
				}
				return
			}
		}
	}
}

// eachRowOfShard calls visit for the committed rows that are in a shard of the whole input. The
// caller must go through the shards in order.
func (s *sampleTakeover) eachRowOfShard(info shard.ManifestEntry, visit func(*rowmill.Row, *rowmill.RowOutput) error) error {
	for ; s.more && s.row.Index < info.First+int64(info.Rows); s.row, s.more = s.next() {
		if s.row.err != nil {
			return s.row.err
		}
		if s.row.Index < info.First { // the new job has the rows of that shard already
			continue
		}
		if err := visit(&s.row.Row, s.row.out); err != nil {
			return err
		}
	}
	return nil
}

// takeTruncated returns how many of a part's rows count as truncated: only the number for the
// whole old job is known.
func (s *sampleTakeover) takeTruncated(rows int64) int64 {
	n := min(rows, s.truncated)
	s.truncated -= n
	return n
}
