package work

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
)

// shards has test shards in memory; each row is named after its shard and number. It
// counts how often shards are opened and closed.
type shards struct {
	objects [][]byte
	infos   []shard.ManifestEntry
	opened  int
	closed  int
	fail    error // error of the next open
}

func newShards(t *testing.T, rows ...int) *shards {
	t.Helper()
	s := &shards{}
	first := int64(0)
	for n, count := range rows {
		var b bytes.Buffer
		w := shard.NewWriter(&b, first, false)
		for i := range count {
			must.Succeed(t, w.Add(fmt.Sprintf("%d/%d", n, i), rowmill.ID{}))
		}
		must.Succeed(t, w.Close())
		s.objects = append(s.objects, b.Bytes())
		s.infos = append(s.infos, shard.ManifestEntry{First: first, Rows: count, Bytes: int64(b.Len())})
		first += int64(count)
	}
	return s
}

func (s *shards) open(_ context.Context, span assign.RowSpan) (*shard.Reader, error) {
	if err := s.fail; err != nil {
		s.fail = nil
		return nil, err
	}
	s.opened++
	return shard.NewReader(bytes.NewReader(s.objects[span.Shard]), int64(len(s.objects[span.Shard])), s)
}

func (s *shards) Close() error { s.closed++; return nil }

func memory(bytes int64) *WorkerMemory {
	return NewMemoryBudget(bytes, nil).NewWorkerMemory("a", rowmill.Production, func() {})
}

// loader returns a loader with these spans, and no others to come.
func (s *shards) loader(m *WorkerMemory, spans ...assign.RowSpan) *Loader {
	l := NewLoader(m, s.infos, nil, s.open)
	l.Add(spans, true)
	return l
}

// loadAll loads all spans and returns the texts of their rows.
func loadAll(t *testing.T, l *Loader) (texts []string, tasks []*dispatch.RowTask) {
	t.Helper()
	for !l.Empty() {
		load, ok := l.Next(true)
		if !ok {
			t.Fatal("nothing to load, although spans wait")
		}
		must.Succeed(t, load.Run(t.Context()))
		some := l.FinishLoad(load)
		tasks = append(tasks, some...)
		for _, task := range some {
			texts = append(texts, task.Row.Text)
		}
	}
	return texts, tasks
}

// Each row of the spans is loaded once, with its place, and its memory is given back
// when the row is freed.
func TestLoaderLoadsTheRowsOfItsSpans(t *testing.T) {
	t.Parallel()
	s, m := newShards(t, 5000, 3), memory(1<<30)
	l := s.loader(m, assign.RowSpan{Shard: 0, From: 10, To: 4990, Except: assign.NewRowSet(roaring.BitmapOf(11, 4000))}, assign.RowSpan{Shard: 1, From: 1, To: 3})
	texts, tasks := loadAll(t, l)
	if len(texts) != 4978+2 || texts[0] != "0/10" || texts[1] != "0/12" || texts[len(texts)-1] != "1/2" {
		t.Fatalf("%d rows, from %v to %v", len(texts), texts[:2], texts[len(texts)-1])
	}
	if last := tasks[len(tasks)-1]; last.Shard != 1 || last.Rel != 2 || last.Row.Index != 5002 {
		t.Errorf("the last row is %d of shard %d, number %d", last.Rel, last.Shard, last.Row.Index)
	}
	if m.held < 4980*dispatch.TaskBytes {
		t.Errorf("%d bytes held for 4980 rows", m.held)
	}
	m.Free(tasks)
	if m.held != 0 {
		t.Errorf("%d bytes held after all rows are gone", m.held)
	}
	if s.opened != 2 || s.closed != 0 {
		t.Errorf("opened %d shards and closed %d before they were released", s.opened, s.closed)
	}
	if err := errors.Join(l.Release(0), l.Release(0), l.Close()); err != nil || s.closed != 2 {
		t.Errorf("closed %d of 2 shards: %v", s.closed, err)
	}
}

// A block is kept for the next span that begins in it.
func TestLoaderReadsABlockOnce(t *testing.T) {
	t.Parallel()
	s := newShards(t, 100)
	l := s.loader(memory(1<<30), assign.RowSpan{From: 0, To: 50}, assign.RowSpan{From: 50, To: 100})
	first, _ := l.Next(false)
	must.Succeed(t, first.Run(t.Context()))
	l.FinishLoad(first)
	second, _ := l.Next(false)
	if second.block == nil || second.block != first.block || second.reader != first.reader {
		t.Error("the second span of a block does not find it")
	}
	if !l.IsShardExhausted(0) || !slices.Equal(l.Shards(), []int{0}) {
		t.Error("the only shard is not the last one")
	}
}

func TestLoaderWaitsForTheBudget(t *testing.T) {
	t.Parallel()
	s := newShards(t, 100)
	m := memory(100)
	l := s.loader(m, assign.RowSpan{From: 0, To: 100})
	if _, ok := l.Next(false); ok {
		t.Fatal("a load that the budget has no room for")
	}
	l.Resume()
	if _, ok := l.Next(true); !ok {
		t.Error("a worker with nothing in memory got nothing")
	}
	if _, ok := l.Next(true); ok {
		t.Error("two loads at once")
	}
}

// Rows that are being loaded cannot be revoked; other rows can, the last ones first.
func TestLoaderRevokesWaitingRows(t *testing.T) {
	t.Parallel()
	s := newShards(t, 100)
	l := s.loader(memory(1<<30), assign.RowSpan{From: 0, To: 10}, assign.RowSpan{From: 10, To: 30}, assign.RowSpan{From: 30, To: 60})
	if l.WantsSpans() || l.CountQueuedRows() != 60 {
		t.Errorf("wants %v, %d rows wait", l.WantsSpans(), l.CountQueuedRows())
	}
	l.Next(false)
	if got := l.Revoke(0); got != nil || l.CountQueuedRows() != 50 {
		t.Errorf("revoked %v though nothing was asked for", got)
	}
	if got := l.Revoke(29); len(got) != 1 || got[0].From != 31 || got[0].To != 60 || l.CountQueuedRows() != 21 {
		t.Errorf("revoked %v, %d rows wait, instead of the last 29 of 50", got, l.CountQueuedRows())
	}
	got := l.Revoke(100)
	if len(got) != 2 || got[0].From != 30 || got[0].To != 31 || got[1].From != 10 || got[1].To != 30 || l.CountQueuedRows() != 0 || l.Empty() {
		t.Errorf("revoked %v, %d rows wait", got, l.CountQueuedRows())
	}
}

// A failed load can be repeated, and the shard that it opened is closed.
func TestLoaderRepeatsALoad(t *testing.T) {
	t.Parallel()
	s := newShards(t, 10)
	l := s.loader(memory(1<<30), assign.RowSpan{From: 0, To: 10})
	load, _ := l.Next(false)
	s.fail = errors.New("away")
	if err := load.Run(t.Context()); err == nil {
		t.Fatal("a shard that could not be opened was read")
	}
	whole := s.objects[0]
	s.objects[0] = append([]byte(nil), whole...)
	s.objects[0][len(whole)/4] ^= 0xFF // in the data of its block
	if err := load.Run(t.Context()); err == nil || s.opened != 1 || s.closed != 1 {
		t.Fatalf("a broken block: %v, opened %d, closed %d", err, s.opened, s.closed)
	}
	s.objects[0] = whole
	must.Succeed(t, load.Run(t.Context()))
	if tasks := l.FinishLoad(load); len(tasks) != 10 {
		t.Errorf("%d rows", len(tasks))
	}
}

// A span beyond its shard is an error, not a panic.
func TestLoaderRefusesASpanBeyondItsShard(t *testing.T) {
	t.Parallel()
	s := newShards(t, 10)
	l := s.loader(memory(1<<30), assign.RowSpan{From: 0, To: 11})
	load, _ := l.Next(false)
	if err := load.Run(t.Context()); err == nil {
		t.Error("a row that is not there was read")
	}
	l.FailLoad(load)
	if l.Loading() {
		t.Error("a load that failed goes on")
	}
	if err := l.Close(); err != nil || s.closed != 1 {
		t.Errorf("closed %d shards: %v", s.closed, err)
	}
}

// Dealt rows come from many shards in turn. Each block with rows of a span is read, a
// few rows do not keep their whole block in memory, and the rows of a share have the
// same share number.
func TestLoaderLoadsDealtRows(t *testing.T) {
	t.Parallel()
	s, m := newShards(t, 5000, 5000), memory(1<<30)
	l := NewLoader(m, s.infos, nil, s.open)
	only := func(n, share int, rows ...uint32) assign.RowSpan {
		all := roaring.New()
		all.AddRange(uint64(rows[0]), uint64(rows[len(rows)-1]+1))
		all.AndNot(roaring.BitmapOf(rows...))
		return assign.RowSpan{Shard: n, From: int(rows[0]), To: int(rows[len(rows)-1]) + 1, Except: assign.NewRowSet(all), Block: 1, Share: share}
	}
	l.Add([]assign.RowSpan{only(0, 2, 5, 4500), only(1, 2, 7, 8), only(0, 3, 9), {Shard: 1, From: 20, To: 21}}, false)
	loads := 0
	var tasks []*dispatch.RowTask
	for ; !l.Empty(); loads++ {
		load, _ := l.Next(true)
		must.Succeed(t, load.Run(t.Context()))
		some := l.FinishLoad(load)
		if len(some) == 0 {
			t.Errorf("load %d brought nothing", loads)
		}
		tasks = append(tasks, some...)
	}
	want := []struct {
		text          string
		share, behind int
	}{{"0/5", 1, 1}, {"0/4500", 1, 1}, {"1/7", 1, 1}, {"1/8", 1, 1}, {"0/9", 2, 1}, {"1/20", 0, 1}}
	if len(tasks) != len(want) || loads != 5 {
		t.Fatalf("%d rows in %d loads", len(tasks), loads)
	}
	for i, w := range want {
		if got := tasks[i]; got.Row.Text != w.text || got.Share != w.share || got.Behind != w.behind {
			t.Errorf("row %d is %s of share %d behind shard %d, want %+v", i, got.Row.Text, got.Share, got.Behind, w)
		}
	}
	block := l.inputs[0].block
	if unsafe.StringData(tasks[4].Row.Text) == unsafe.StringData(block.Text(9)) {
		t.Error("a row of a block shares its memory")
	}
}

// A row that may have crashed a server is marked as a suspect when it is loaded.
func TestLoaderMarksSuspects(t *testing.T) {
	t.Parallel()
	s, m := newShards(t, 10), memory(1<<30)
	l := s.loader(m, assign.RowSpan{To: 10, Suspects: []assign.SuspectRow{{Row: 3, Group: 4}, {Row: 7, Group: 1, Crashes: 1}}})
	_, tasks := loadAll(t, l)
	for _, task := range tasks {
		group, crashes := task.SuspectInfo()
		want := map[int][2]int{3: {4, 0}, 7: {1, 1}}[task.Rel]
		if [2]int{group, crashes} != want {
			t.Errorf("row %d: a group of %d, %d crashes; want %v", task.Rel, group, crashes, want)
		}
	}
	m.Free(tasks)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
