package actors

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/actors/ingest"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/shard"
	"github.com/rowmill/rowmill/store"
)

// A shardState is what a worker has of one shard: its open object, the block
// being dealt from, and the rows that are finished but not written.
type shardState struct {
	input *shard.Reader
	block *shard.Block // the last one read: the next span may begin in it
	done  *batch       // finished rows that gather; nil where there are none
}

// loadBlock reads the block in which m.span begins; m holds what the worker has
// of the shard already: its open reader and the last block.
func loadBlock(ctx context.Context, bucket blob.Bucket, job *jobContext, m blockLoaded) blockLoaded {
	s := m.span
	if m.input == nil {
		if m.input, m.err = ingest.OpenShard(ctx, bucket, job.id, job.spec, s.Shard); m.err != nil {
			return m
		}
	}
	if s.To > m.input.Rows() {
		m.err = fmt.Errorf("shard %d has %d rows, not %d", s.Shard, m.input.Rows(), s.To)
		return m
	}
	if b := m.block; b != nil && b.First <= s.From && s.From < b.First+b.Rows() {
		return m
	}
	m.block, m.err = m.input.ReadBlock(m.input.BlockOf(s.From))
	return m
}

// unpack turns the rows of the span that lie in the loaded block into tasks
// and returns what is left of the span.
func (st *shardState) unpack(m blockLoaded) (rest assign.Span, tasks []*dispatch.Task, bytes int64) {
	st.input, st.block = m.input, m.block
	rest = m.span
	end := min(rest.To, m.block.First+m.block.Rows())
	rows := make([]rowmill.Row, 0, end-rest.From)
	for rel := rest.From; rel < end; rel++ {
		if rest.Has(rel) {
			rows = append(rows, rowmill.Row{Index: m.input.First() + int64(rel), Text: m.block.Text(rel), ID: m.block.ID(rel)})
		}
	}
	tasks, bytes = dispatch.NewTasks(rest.Shard, m.input.First(), rows)
	return rest.After(end), tasks, bytes
}

// finished takes in a row and returns the bytes it adds to what gathers.
func (st *shardState) finished(t *dispatch.Task, now time.Time) int64 {
	if st.done == nil {
		st.done = &batch{since: now}
	}
	n := t.OutputBytes() + t.RowBytes()
	st.done.tasks = append(st.done.tasks, t)
	st.done.bytes += n
	return n
}

// gathered is how many bytes of finished rows gather.
func (st *shardState) gathered() int64 {
	if st.done == nil {
		return 0
	}
	return st.done.bytes
}

// waits reports whether a row that was finished before then still gathers.
func (st *shardState) waits(then time.Time) bool { return st.done != nil && st.done.since.Before(then) }

func (st *shardState) close(log *slog.Logger) {
	if st.input == nil {
		return
	}
	if err := st.input.Close(); err != nil {
		log.Warn("close shard", "err", err)
	}
	st.input, st.block = nil, nil
}

// spanBytes estimates the memory that the next block of a span takes.
func spanBytes(s shard.Info, sp assign.Span) int64 {
	rows := int64(sp.Count())
	return rows*dispatch.TaskBytes + rows*s.Bytes/int64(max(s.Rows, 1))
}

// writePart writes finished rows of one shard, in order, as a part.
func writePart(ctx context.Context, bucket blob.Bucket, job *jobContext, n int, tasks []*dispatch.Task) (assign.Part, error) {
	slices.SortFunc(tasks, func(a, b *dispatch.Task) int { return cmp.Compare(a.Rel, b.Rel) })
	part := assign.Part{Key: layout.Part(job.id, n, job.fence.Epoch), Shard: n}
	w, err := bucket.Create(ctx, part.Key, layout.Parquet)
	if err != nil {
		return part, err
	}
	defer w.Abort()
	buffered := bufio.NewWriterSize(w, 64<<10)
	p, err := results.NewPartWriter(buffered, job.schema)
	if err != nil {
		return part, err
	}
	rels := make([]uint32, len(tasks))
	for i, t := range tasks {
		if err := p.Add(&t.Row, &t.Out); err != nil {
			return part, fmt.Errorf("row %d: %w", t.Row.Index, err)
		}
		rels[i] = uint32(t.Rel)
		part.Totals = part.Totals.Plus(totalsOf(t))
	}
	part.Rows = assign.NewRowSet(roaring.BitmapOf(rels...))
	if err := p.Close(); err != nil {
		return part, err
	}
	if err := buffered.Flush(); err != nil {
		return part, err
	}
	info, err := w.Commit()
	part.Size = info.Size
	return part, err
}

func totalsOf(t *dispatch.Task) store.Totals {
	sum := store.Totals{Rows: 1}
	if t.Out.Failed() {
		sum.Failed = 1
		return sum
	}
	if t.Cut {
		sum.TruncatedRows = 1
	}
	if t.Out.Finish == rowmill.FinishLength {
		sum.TruncatedOutputs = 1
	}
	sum.InputTokens, sum.OutputTokens = t.Out.InputTokens, t.Out.OutputTokens
	return sum
}
