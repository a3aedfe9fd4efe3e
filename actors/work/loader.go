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

// A Loader turns spans into tasks, a block of rows at a time. It keeps a shard
// open, and its last block, while rows of it may come.
type Loader struct {
	memory *Memory
	shards []shard.Info
	open   func(ctx context.Context, s assign.Span) (*shard.Reader, error)
	trail  *Trail

	todo      []assign.Span
	inputs    map[int]input
	latest    int // the shard of the span that came last
	block     int // of what was loaded last: the spans' Block and Share
	share     int
	shares    int  // that were begun
	exhausted bool // no more spans are to come now
	loading   bool
	full      bool // the budget had no room
}

// An input is an open shard.
type input struct {
	reader *shard.Reader
	block  *shard.Block // the last one read: the next span may begin in it
}

// A Load is a block to be read. Run does it; Loader.Loaded takes it back.
type Load struct {
	open  func(ctx context.Context, s assign.Span) (*shard.Reader, error)
	span  assign.Span
	bytes int64 // taken from the budget for it
	rows  *tracing.Span
	input
}

// NewLoader returns a Loader. open opens the shard of a span. shards are those that
// are known from elsewhere, for spans that do not say what they are of. trail is nil for
// a job that is not traced.
func NewLoader(memory *Memory, shards []shard.Info, trail *Trail, open func(ctx context.Context, s assign.Span) (*shard.Reader, error)) *Loader {
	return &Loader{memory: memory, shards: shards, open: open, trail: trail, inputs: make(map[int]input)}
}

// Add takes spans in. exhausted says that no others are to come now.
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

// wanted is how many spans there should be: the one being loaded, and the next.
const wanted = 2

// Wants reports whether there is room for more spans.
func (l *Loader) Wants() bool { return len(l.todo) < wanted }

// Exhausted reports whether no spans are to come now.
func (l *Loader) Exhausted() bool { return l.exhausted }

// Empty reports whether no span waits.
func (l *Loader) Empty() bool { return len(l.todo) == 0 }

// Loading reports whether a Load has not come back.
func (l *Loader) Loading() bool { return l.loading }

// Waiting is how many rows are in spans that nobody has begun to load.
func (l *Loader) Waiting() (rows int) {
	for _, s := range l.idle() {
		rows += s.Count()
	}
	return rows
}

func (l *Loader) idle() []assign.Span {
	if l.loading {
		return l.todo[1:]
	}
	return l.todo
}

// Next returns a block to load, if there is a span and the budget has room. A
// worker with nothing in memory is given room in any case, so that no job
// stands still.
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

// spanBytes estimates the memory that the next block of a span takes.
func spanBytes(s assign.Span) int64 {
	rows := int64(s.Count())
	return rows*dispatch.TaskBytes + rows*s.Of.Bytes/int64(max(s.Of.Rows, 1))
}

// Run reads the block. It may be repeated.
func (l *Load) Run(ctx context.Context) (err error) {
	s, fresh := l.span, l.reader == nil
	if fresh {
		if l.reader, err = l.open(ctx, s); err != nil {
			return err
		}
	}
	if s.To > l.reader.Rows() {
		return fmt.Errorf("shard %d has %d rows, not %d", s.Shard, l.reader.Rows(), s.To)
	}
	if b := l.block; b != nil && b.First <= s.From && s.From < b.First+b.Rows() {
		return nil
	}
	if l.block, err = l.reader.ReadBlock(l.reader.BlockOf(s.From)); err != nil && fresh {
		err = errors.Join(err, l.reader.Close())
		l.reader = nil // what is repeated begins anew
	}
	return err
}

// Loaded takes a block in and returns its rows of the span as tasks.
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
	if len(rows) < m.block.Rows()/2 { // else they would keep the memory of all others
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

// Failed takes back a Load that brought nothing.
func (l *Loader) Failed(m Load) {
	l.loading = false
	l.trail.Ended(m.span.Shard, m.rows, nil)
	if m.reader != nil {
		l.inputs[m.span.Shard] = m.input
	}
}

// Resume makes Next ask the budget again.
func (l *Loader) Resume() { l.full = false }

// Revoke takes out n rows that nobody has begun to load, the last first, or all
// where there are fewer.
func (l *Loader) Revoke(n int) (spans []assign.Span) {
	for n > 0 && len(l.idle()) > 0 {
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

// Last reports whether no more rows of a shard are to come, as far as is known.
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
