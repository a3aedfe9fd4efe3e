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

// A Loader turns spans into tasks, one block of rows at a time. It keeps a shard and its
// last block open while more of its rows may come.
type Loader struct {
	memory *Memory
	shards []shard.Info
	open   func(ctx context.Context, s assign.Span) (*shard.Reader, error)
	trail  *Trail

	todo      []assign.Span // spans to load; while a load runs, the first is being loaded
	inputs    map[int]input // by shard
	latest    int           // shard of the newest span
	block     int           // Block and Share of the span that was loaded last
	share     int
	shares    int  // number of shares begun
	exhausted bool // no more spans are expected now
	loading   bool // a Load runs
	full      bool // the budget refused the last request
}

// An input is an open shard.
type input struct {
	reader *shard.Reader
	block  *shard.Block // the last block that was read: the next span may begin in it
}

// A Load is a block to be read: Run reads it, and Loader.Loaded takes the result.
type Load struct {
	open  func(ctx context.Context, s assign.Span) (*shard.Reader, error)
	span  assign.Span
	bytes int64         // taken from the budget for the block
	rows  *tracing.Span // trace span of the rows; nil for none
	input
}

// NewLoader returns a Loader. open opens the shard of a span. shards describes the
// shards for spans without this description. trail is nil if the job is not traced.
func NewLoader(memory *Memory, shards []shard.Info, trail *Trail, open func(ctx context.Context, s assign.Span) (*shard.Reader, error)) *Loader {
	return &Loader{memory: memory, shards: shards, open: open, trail: trail, inputs: make(map[int]input)}
}

// Add appends spans. exhausted says that no more spans are expected now.
func (l *Loader) Add(spans []assign.Span, exhausted bool) {
	for _, s := range spans {
		l.latest = s.Shard
		if s.Of.Rows == 0 && s.Shard < len(l.shards) {
			s.Of = l.shards[s.Shard]
		}
		l.todo = append(l.todo, s)
	}
	l.exhausted = exhausted
}

// wanted is the target number of spans: one being loaded, and the next.
const wanted = 2

// Wants reports whether there is room for more spans.
func (l *Loader) Wants() bool { return len(l.todo) < wanted }

// Exhausted reports whether no more spans are expected now.
func (l *Loader) Exhausted() bool { return l.exhausted }

// Empty reports whether there are no spans to load.
func (l *Loader) Empty() bool { return len(l.todo) == 0 }

// Loading reports whether a Load is running.
func (l *Loader) Loading() bool { return l.loading }

// Waiting returns the number of rows in spans that are not being loaded.
func (l *Loader) Waiting() (rows int) {
	for _, s := range l.queued() {
		rows += s.Count()
	}
	return rows
}

// queued returns the spans that are not being loaded.
func (l *Loader) queued() []assign.Span {
	if l.loading {
		return l.todo[1:]
	}
	return l.todo
}

// Next returns the next block to load, if there is a span and the budget has room.
// nothing says that the worker has no rows in memory: then it always gets room, so that
// each job makes progress.
func (l *Loader) Next(nothing bool) (load Load, ok bool) {
	if l.loading || l.full || len(l.todo) == 0 {
		return Load{}, false
	}
	s := l.todo[0]
	size := spanBytes(s)
	if nothing {
		l.memory.take(size)
	} else if l.memory.acquire(1, size, toLoad) == 0 {
		l.full = true
		return Load{}, false
	}
	l.loading = true
	return Load{open: l.open, span: s, bytes: size, rows: l.trail.load(s.Shard), input: l.inputs[s.Shard]}, true
}

// spanBytes estimates the memory for the next block of a span.
func spanBytes(s assign.Span) int64 {
	rows := int64(s.Count())
	return rows*dispatch.TaskBytes + rows*s.Of.Bytes/int64(max(s.Of.Rows, 1))
}

// Run reads the block. It may be called again after an error.
func (l *Load) Run(ctx context.Context) (err error) {
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

// Loaded takes a loaded block and returns the span's rows in it as tasks.
func (l *Loader) Loaded(m Load) []*dispatch.Task {
	l.loading = false
	l.inputs[m.span.Shard] = m.input
	end := min(m.span.To, m.block.First+m.block.Rows())
	rows := make([]rowmill.Row, 0, end-m.span.From)
	for rel := m.span.From; rel < end; rel++ {
		if m.span.Has(rel) {
			rows = append(rows, m.block.Row(m.reader.First(), rel))
		}
	}
	if len(rows) < m.block.Rows()/2 { // otherwise a few rows would keep the whole block in memory
		for i := range rows {
			rows[i].Text, rows[i].Fields, rows[i].ID.Text = strings.Clone(rows[i].Text), strings.Clone(rows[i].Fields), strings.Clone(rows[i].ID.Text)
		}
	}
	tasks, bytes := dispatch.NewTasks(m.span.Shard, m.reader.First(), rows)
	if s := m.span; s.Share != l.share || s.Block != l.block {
		l.block, l.share = s.Block, s.Share
		l.shares++
	}
	for _, t := range tasks {
		t.Behind = m.span.Behind()
		if m.span.Share > 0 {
			t.Share = l.shares
		}
		for _, s := range m.span.Suspects {
			if s.Row == t.Rel {
				t.Suspect(s.Group, s.Crashes)
			}
		}
	}
	l.trail.loaded(m.span.Shard, m.rows, tasks)
	l.memory.take(bytes - m.bytes)
	if rest := m.span.After(end); rest.Count() > 0 {
		l.todo[0] = rest
	} else {
		l.todo = l.todo[1:]
	}
	return tasks
}

// Failed takes back a Load after an error.
func (l *Loader) Failed(m Load) {
	l.loading = false
	l.trail.Ended(m.span.Shard, m.rows, nil)
	if m.reader != nil {
		l.inputs[m.span.Shard] = m.input
	}
}

// Resume makes Next ask the budget again.
func (l *Loader) Resume() { l.full = false }

// Revoke removes up to n rows that are not being loaded, the last ones first.
func (l *Loader) Revoke(n int) (spans []assign.Span) {
	for n > 0 && len(l.queued()) > 0 {
		end := len(l.todo) - 1
		last := l.todo[end]
		if last.Count() > n {
			l.todo[end], last = last.Cut(n)
		} else {
			l.todo = l.todo[:end]
		}
		n -= last.Count()
		spans = append(spans, last)
	}
	return spans
}

// Last reports whether no more rows of a shard are expected.
func (l *Loader) Last(shard int) bool { return shard != l.latest || l.exhausted }

// Shards returns the open shards, in order.
func (l *Loader) Shards() []int { return slices.Sorted(maps.Keys(l.inputs)) }

// Release closes a shard.
func (l *Loader) Release(shard int) error {
	in, open := l.inputs[shard]
	delete(l.inputs, shard)
	l.trail.closed(shard)
	if !open {
		return nil
	}
	return in.reader.Close()
}

// Close closes all shards.
func (l *Loader) Close() (err error) {
	for n := range l.inputs {
		err = errors.Join(err, l.Release(n))
	}
	l.trail.end()
	return err
}
