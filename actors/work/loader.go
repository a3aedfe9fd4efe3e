package work

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/internal/tracing"
)

// A Loader reads the rows of spans as tasks, one block of rows at a time. A shard and
// its last block stay open while more rows of the shard may come.
type Loader struct {
	memory *WorkerMemory
	shards []shard.ManifestEntry
	open   func(ctx context.Context, s assign.RowSpan) (*shard.Reader, error) // opens the shard of a span
	// trail has the trace spans of the job; nil if the job is not traced.
	trail *WorkerTrace

	todo      []assign.RowSpan   // spans to load; while a load runs, it loads from the first span
	inputs    map[int]shardInput // open shards, by number
	latest    int                // number of the shard of the span that was added last
	block     int                // Block of the span that was loaded last
	share     int                // Share of the span that was loaded last
	shares    int                // number of different shares loaded so far
	exhausted bool               // the owner has no more spans for this worker now
	loading   bool               // a BlockLoad runs
	full      bool               // the budget refused the last request
}

// A shardInput is an open shard and its last block.
type shardInput struct {
	reader *shard.Reader
	block  *shard.Block // the last block that was read; the next span may begin in this block
}

// A BlockLoad is a block that must be read. The caller calls Run to read it, and then
// Loader.FinishLoad.
type BlockLoad struct {
	open  func(ctx context.Context, s assign.RowSpan) (*shard.Reader, error)
	span  assign.RowSpan
	bytes int64         // bytes taken from the budget for the block
	rows  *tracing.Span // trace span of the loaded rows; nil for none
	shardInput
}

// NewLoader returns a Loader. open opens the shard of a span. shards has the
// descriptions of all shards, for spans that do not contain one. trail is nil if the
// job is not traced.
func NewLoader(memory *WorkerMemory, shards []shard.ManifestEntry, trail *WorkerTrace, open func(ctx context.Context, s assign.RowSpan) (*shard.Reader, error)) *Loader {
	return &Loader{memory: memory, shards: shards, open: open, trail: trail, inputs: make(map[int]shardInput)}
}

// Add appends spans to load. exhausted means that no more spans are expected now.
func (l *Loader) Add(spans []assign.RowSpan, exhausted bool) {
	for _, s := range spans {
		l.latest = s.Shard
		if s.Of.Rows == 0 && s.Shard < len(l.shards) {
			s.Of = l.shards[s.Shard]
		}
		l.todo = append(l.todo, s)
	}
	l.exhausted = exhausted
}

// wanted is the number of spans that a Loader should have: the span that is being
// loaded, and the next span.
const wanted = 2

// WantsSpans reports whether the Loader has fewer spans than wanted.
func (l *Loader) WantsSpans() bool { return len(l.todo) < wanted }

// Exhausted reports whether no more spans are expected now.
func (l *Loader) Exhausted() bool { return l.exhausted }

// Empty reports whether there are no spans to load.
func (l *Loader) Empty() bool { return len(l.todo) == 0 }

// Loading reports whether a BlockLoad is running.
func (l *Loader) Loading() bool { return l.loading }

// CountQueuedRows returns the number of rows in spans from which no block is being loaded.
func (l *Loader) CountQueuedRows() (rows int) {
	for _, s := range l.queuedSpans() {
		rows += s.Count()
	}
	return rows
}

// queuedSpans returns the spans from which no block is being loaded.
func (l *Loader) queuedSpans() []assign.RowSpan {
	if l.loading {
		return l.todo[1:]
	}
	return l.todo
}

// Next returns the next block to load; ok is false if a BlockLoad runs, no span is left, or
// the budget has no room. isMemoryEmpty means that the worker has no rows in memory: then
// the budget always has room, so that each job makes progress.
func (l *Loader) Next(isMemoryEmpty bool) (load BlockLoad, ok bool) {
	if l.loading || l.full || len(l.todo) == 0 {
		return BlockLoad{}, false
	}
	s := l.todo[0]
	size := spanBytes(s)
	if isMemoryEmpty {
		l.memory.adjustBytes(size)
	} else if l.memory.acquire(1, size, toLoad) == 0 {
		l.full = true
		return BlockLoad{}, false
	}
	l.loading = true
	return BlockLoad{open: l.open, span: s, bytes: size, rows: l.trail.beginLoadSpan(s.Shard), shardInput: l.inputs[s.Shard]}, true
}

// spanBytes estimates the memory that the next block of a span needs.
func spanBytes(s assign.RowSpan) int64 {
	rows := int64(s.Count())
	return rows*dispatch.TaskBytes + rows*s.Of.Bytes/int64(max(s.Of.Rows, 1))
}

// Run reads the block. After an error the caller may call Run again.
func (l *BlockLoad) Run(ctx context.Context) (err error) {
	s, fresh := l.span, l.reader == nil
	if fresh {
		if l.reader, err = l.open(ctx, s); err != nil {
			return err
		}
	}
	if s.To > l.reader.Rows() {
		return fmt.Errorf("shard %d has only %d rows, and a span ends at row %d", s.Shard, l.reader.Rows(), s.To)
	}
	if b := l.block; b != nil && b.First <= s.From && s.From < b.First+b.Rows() {
		return nil
	}
	if l.block, err = l.reader.ReadBlock(l.reader.BlockOf(s.From)); err != nil && fresh {
		err = errors.Join(err, l.reader.Close())
		l.reader = nil // the next call opens the shard again
	}
	return err
}

// FinishLoad takes a block that was read, and returns the rows of the span in this block as
// tasks.
func (l *Loader) FinishLoad(m BlockLoad) []*dispatch.RowTask {
	l.loading = false
	l.inputs[m.span.Shard] = m.shardInput
	end := min(m.span.To, m.block.First+m.block.Rows())
	rows := make([]rowmill.Row, 0, end-m.span.From)
	for rel := m.span.From; rel < end; rel++ {
		if m.span.Has(rel) {
			rows = append(rows, m.block.Row(m.reader.FirstRow(), rel))
		}
	}
	if len(rows) < m.block.Rows()/2 { // otherwise a few rows would keep the whole block in memory
		for i := range rows {
			rows[i].Text, rows[i].Fields, rows[i].ID.Text = strings.Clone(rows[i].Text), strings.Clone(rows[i].Fields), strings.Clone(rows[i].ID.Text)
		}
	}
	tasks, bytes := dispatch.NewTasks(m.span.Shard, m.reader.FirstRow(), rows)
	if s := m.span; s.Share != l.share || s.Block != l.block {
		l.block, l.share = s.Block, s.Share
		l.shares++
	}
	for _, t := range tasks {
		t.Behind = m.span.WaitLimitShard()
		if m.span.Share > 0 {
			t.Share = l.shares
		}
		for _, s := range m.span.Suspects {
			if s.Row == t.Rel {
				t.Suspect(s.Group, s.Crashes)
			}
		}
	}
	l.trail.attachTasks(m.span.Shard, m.rows, tasks)
	l.memory.adjustBytes(bytes - m.bytes)
	if rest := m.span.TrimBefore(end); rest.Count() > 0 {
		l.todo[0] = rest
	} else {
		l.todo = l.todo[1:]
	}
	return tasks
}

// FailLoad takes back a BlockLoad that could not be read.
func (l *Loader) FailLoad(m BlockLoad) {
	l.loading = false
	l.trail.EndSpan(m.span.Shard, m.rows, nil)
	if m.reader != nil {
		l.inputs[m.span.Shard] = m.shardInput
	}
}

// Resume makes Next ask the budget again after a refusal.
func (l *Loader) Resume() { l.full = false }

// Revoke removes up to n rows that are not being loaded, from the last span backwards,
// and returns them as spans.
func (l *Loader) Revoke(n int) (spans []assign.RowSpan) {
	for n > 0 && len(l.queuedSpans()) > 0 {
		end := len(l.todo) - 1
		last := l.todo[end]
		if last.Count() > n {
			l.todo[end], last = last.SplitLast(n)
		} else {
			l.todo = l.todo[:end]
		}
		n -= last.Count()
		spans = append(spans, last)
	}
	return spans
}

// IsShardExhausted reports whether no more rows of this shard are expected.
func (l *Loader) IsShardExhausted(shard int) bool { return shard != l.latest || l.exhausted }

// Shards returns the numbers of the open shards, in order.
func (l *Loader) Shards() []int { return slices.Sorted(maps.Keys(l.inputs)) }

// Release closes a shard, if it is open.
func (l *Loader) Release(shard int) error {
	in, open := l.inputs[shard]
	delete(l.inputs, shard)
	l.trail.markClosed(shard)
	if !open {
		return nil
	}
	return in.reader.Close()
}

// Close closes all open shards.
func (l *Loader) Close() (err error) {
	for n := range l.inputs {
		err = errors.Join(err, l.Release(n))
	}
	l.trail.end()
	return err
}
