package assign

import (
	"fmt"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
)

// rows returns a set of consecutive rows.
func rows(from, to int) *roaring.Bitmap { return rowRange(from, to) }

// committed returns the record of a part with these rows.
func committed(key string, shard int, set *roaring.Bitmap) store.Part {
	accepted, _ := set.ToBytes()
	return store.Part{Key: key, Shard: shard, Accepted: accepted, Rows: int64(set.GetCardinality()), Totals: store.RowTotals{Rows: int64(set.GetCardinality())}}
}

// someShards draws shards, and parts with some of their rows.
func someShards(t *rapid.T, most int) (shards []shard.ManifestEntry, done []*roaring.Bitmap, parts []store.Part, open int64) {
	for n := range rapid.IntRange(0, most).Draw(t, "shards") {
		info := shard.ManifestEntry{Rows: rapid.IntRange(1, 3000).Draw(t, "rows")}
		info.Bytes = int64(info.Rows) * rapid.Int64Range(0, 5000).Draw(t, "bytes per row")
		if n > 0 {
			info.First = shards[n-1].First + int64(shards[n-1].Rows)
		}
		set := roaring.New()
		for range rapid.IntRange(0, 3).Draw(t, "done ranges") {
			from := rapid.Uint64Range(0, uint64(info.Rows)).Draw(t, "from")
			set.AddRange(from, min(uint64(info.Rows), from+rapid.Uint64Range(0, 2000).Draw(t, "n")))
		}
		open += int64(info.Rows) - int64(set.GetCardinality())
		if !set.IsEmpty() {
			parts = append(parts, committed(fmt.Sprint("earlier", n), n, set))
		}
		shards, done = append(shards, info), append(done, set)
	}
	return shards, done, parts, open
}

// Workers take rows, give rows back and leave in any order. Each row that is not done is
// free or assigned to exactly one worker, and in the end all rows were assigned once.
func TestPlanAssignsEveryOpenRowOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		shards, done, parts, open := someShards(t, 5)
		o := must.Get(NewOwner(shards, parts))(t)
		if rapid.Bool().Draw(t, "dealt") {
			some := rapid.SliceOfN(rapid.Byte(), 1, 7).Draw(t, "groups")
			groups := make([]byte, rapid.IntRange(0, 15_000).Draw(t, "rows with groups"))
			for i := range groups {
				groups[i] = some[i%len(some)]
			}
			o.SetRowGroups(groups)
		}
		b, p := o.states, o.plan
		if b.free.Count() != open {
			t.Fatalf("%d rows free, want %d", b.free.Count(), open)
		}
		workers := rapid.IntRange(1, 6).Draw(t, "workers")
		var out RowsByShard
		assigned := func(s RowSpan) {
			if s.Count() < 1 || s.To > shards[s.Shard].Rows {
				t.Fatalf("span %+v", s)
			}
			rows := s.Rows()
			if int(rows.GetCardinality()) != s.Count() {
				t.Fatalf("span %+v has %d rows and says %d", s, rows.GetCardinality(), s.Count())
			}
			if !out.intersect(s.Shard, rows).IsEmpty() {
				t.Fatalf("span %+v was assigned before", s)
			}
			if done[s.Shard].Intersects(rows) {
				t.Fatalf("span %+v has rows that are done", s)
			}
			out.Add(s.Shard, rows)
			b.assign("w", s.Shard, rows)
		}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1, 2, 3:
				left := b.free.Count()
				most := rapid.IntRange(1, 3000).Draw(t, "most")
				s, ok := p.nextSpan(fmt.Sprint(rapid.IntRange(1, workers).Draw(t, "worker")), most)
				if ok != (left > 0) {
					t.Fatalf("got %v of %d free rows", ok, left)
				}
				if ok && s.Count() > most {
					t.Fatalf("span of %d rows, at most %d were asked for", s.Count(), most)
				}
				if ok {
					assigned(s)
				}
			case 4: // some assigned rows come back
				for n, rows := range out.shards {
					back := rows.Clone()
					back.RemoveRange(rapid.Uint64Range(0, 3000).Draw(t, "from"), 3000)
					out.remove(n, back)
					b.release("w", n, back)
					break
				}
			case 5:
				p.forget(fmt.Sprint(rapid.IntRange(1, workers).Draw(t, "leaver")))
			}
			if b.free.Count()+out.Count() != open {
				t.Fatalf("%d rows free and %d assigned, want %d in all", b.free.Count(), out.Count(), open)
			}
		}
		for {
			s, ok := p.nextSpan("last", p.fairRowShare(1))
			if !ok {
				break
			}
			assigned(s)
		}
		if out.Count() != open || !p.exhausted() {
			t.Fatalf("%d of %d rows assigned in the end", out.Count(), open)
		}
	})
}

// A worker stays with its shard, and another worker gets another shard while there is
// one.
func TestPlanKeepsWorkersApart(t *testing.T) {
	t.Parallel()
	o := must.Get(NewOwner([]shard.ManifestEntry{{Rows: 2000}, {Rows: 2000}, {Rows: 2000}}, nil))(t)
	var order []int
	for _, worker := range []string{"a", "b", "a", "b", "a", "b"} {
		s, _ := o.plan.nextSpan(worker, o.plan.fairRowShare(1))
		o.states.assign(worker, s.Shard, s.Rows())
		order = append(order, s.Shard)
	}
	if got := fmt.Sprint(order); got != "[0 1 0 1 2 2]" {
		t.Errorf("shards assigned are %s; want each worker on its own, then both on the last", got)
	}
}

// A worker of an earlier owner keeps its rows, unless another worker has them.
func TestOwnerRefusesAWorkerWithAssignedRows(t *testing.T) {
	t.Parallel()
	o := must.Get(NewOwner([]shard.ManifestEntry{{Rows: 100}, {Rows: 100}}, []store.Part{committed("p", 0, rows(0, 10))}))(t)
	join := func(worker string, holds map[int]*roaring.Bitmap) *Assignee {
		h := &Heartbeat{Worker: worker, Number: 1, Fresh: true}
		for n, rows := range holds {
			h.Holds = append(h.Holds, ShardRows{n, NewRowSet(rows)})
		}
		a, _ := o.HandleHeartbeat(h, start)
		return a
	}
	if join("a", map[int]*roaring.Bitmap{0: rows(5, 30), 1: rows(0, 100)}) == nil || o.states.free.Count() != 70 {
		t.Fatalf("%d rows left, want 70", o.states.free.Count())
	}
	if join("b", map[int]*roaring.Bitmap{0: rows(29, 31)}) != nil || o.states.free.Count() != 70 {
		t.Errorf("a row was taken twice, %d left", o.states.free.Count())
	}
	s, _ := o.plan.nextSpan("c", o.plan.fairRowShare(1))
	if s.Shard != 0 || s.From != 30 || s.To != 100 {
		t.Errorf("span %+v, want the free rows", s)
	}
}

// The plan finds shards again that a worker gave back or left, in their order, even if
// all their rows were assigned before.
func TestPlanFindsReturnedShards(t *testing.T) {
	t.Parallel()
	o := must.Get(NewOwner([]shard.ManifestEntry{{Rows: 10}, {First: 10, Rows: 10}, {First: 20, Rows: 10}}, nil))(t)
	take := func(worker string, want int) {
		t.Helper()
		s, ok := o.plan.nextSpan(worker, 10)
		if !ok || s.Shard != want {
			t.Fatalf("%s gets rows of shard %d (%v), want %d", worker, s.Shard, ok, want)
		}
		o.states.assign(worker, s.Shard, s.Rows())
	}
	take("a", 0)
	take("b", 1)
	take("c", 2)
	if _, ok := o.plan.firstAbandonedShard(); ok || len(o.plan.open) != 0 {
		t.Errorf("nothing is free, and %v are open", o.plan.open)
	}
	o.release("b", 1, rowRange(0, 5))
	o.plan.forget("b")
	take("d", 1)
	o.Remove(&Assignee{Worker: "a"})
	take("d", 0)
}
