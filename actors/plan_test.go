package actors

import (
	"fmt"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/shard"
)

// someShards draws shards and what of them is done.
func someShards(t *rapid.T, most int) (shards []shard.Info, done []*roaring.Bitmap, open int64) {
	for range rapid.IntRange(0, most).Draw(t, "shards") {
		info := shard.Info{Rows: rapid.IntRange(1, 3000).Draw(t, "rows")}
		info.Bytes = int64(info.Rows) * rapid.Int64Range(0, 5000).Draw(t, "bytes per row")
		set := roaring.New()
		for range rapid.IntRange(0, 3).Draw(t, "done ranges") {
			from := rapid.Uint64Range(0, uint64(info.Rows)).Draw(t, "from")
			set.AddRange(from, min(uint64(info.Rows), from+rapid.Uint64Range(0, 2000).Draw(t, "n")))
		}
		open += int64(info.Rows) - int64(set.GetCardinality())
		if set.IsEmpty() {
			set = nil
		}
		shards, done = append(shards, info), append(done, set)
	}
	return shards, done, open
}

// Every row that is not done is with exactly one worker or with the plan,
// whoever takes, gives back and leaves; none is dealt twice, and in the end
// all are dealt.
func TestPlanDealsEveryOpenRowOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		shards, done, open := someShards(t, 5)
		p := newPlan(shards, done)
		if p.left != open {
			t.Fatalf("%d rows to deal, want %d", p.left, open)
		}
		workers := rapid.IntRange(1, 6).Draw(t, "workers")
		out := make(holdings)
		dealt := func(s span) {
			if s.count() < 1 || s.To > shards[s.Shard].Rows {
				t.Fatalf("span %+v", s)
			}
			rows := s.rows()
			if int(rows.GetCardinality()) != s.count() {
				t.Fatalf("span %+v has %d rows and says %d", s, rows.GetCardinality(), s.count())
			}
			if have := out[s.Shard]; have != nil && have.Intersects(rows) {
				t.Fatalf("span %+v was dealt before", s)
			}
			if done[s.Shard] != nil && done[s.Shard].Intersects(rows) {
				t.Fatalf("span %+v has rows that are done", s)
			}
			out.add(s.Shard, rows)
		}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1, 2, 3:
				left := p.left
				most := rapid.IntRange(1, 3000).Draw(t, "most")
				s, ok := p.deal(fmt.Sprint(rapid.IntRange(1, workers).Draw(t, "worker")), most)
				if ok != (left > 0) {
					t.Fatalf("dealt %v of %d rows", ok, left)
				}
				if ok {
					dealt(s)
				}
				if ok && s.count() > most {
					t.Fatalf("span of %d rows, at most %d were asked for", s.count(), most)
				}
			case 4: // some of what is out comes back
				for n, rows := range out {
					back := rows.Clone()
					back.RemoveRange(rapid.Uint64Range(0, 3000).Draw(t, "from"), 3000)
					out.remove(n, back)
					p.giveBack(n, back)
					break
				}
			case 5:
				p.forget(fmt.Sprint(rapid.IntRange(1, workers).Draw(t, "leaver")))
			}
			if p.left+out.count() != open {
				t.Fatalf("%d rows in the plan and %d dealt, want %d in all", p.left, out.count(), open)
			}
		}
		for {
			s, ok := p.deal("last", p.share(1))
			if !ok {
				break
			}
			dealt(s)
		}
		if out.count() != open || !p.exhausted() {
			t.Fatalf("%d of %d rows dealt in the end", out.count(), open)
		}
	})
}

// A worker stays with its shard, and another gets one of its own as long as
// there is one.
func TestPlanKeepsWorkersApart(t *testing.T) {
	t.Parallel()
	p := newPlan([]shard.Info{{Rows: 2000}, {Rows: 2000}, {Rows: 2000}}, make([]*roaring.Bitmap, 3))
	var order []int
	for _, worker := range []string{"a", "b", "a", "b", "a", "b"} {
		s, _ := p.deal(worker, p.share(1))
		order = append(order, s.Shard)
	}
	if got := fmt.Sprint(order); got != "[0 1 0 1 2 2]" {
		t.Errorf("shards dealt are %s; want each worker on its own, then both on the last", got)
	}
}

func TestPlanRefusesRowsThatAreAnothersAndTakesTheRest(t *testing.T) {
	t.Parallel()
	p := newPlan([]shard.Info{{Rows: 100}, {Rows: 100}}, []*roaring.Bitmap{rows(0, 10), nil})
	if !p.take(holdings{0: rows(5, 30), 1: rows(0, 100)}) || p.left != 70 {
		t.Fatalf("%d rows left, want 70", p.left)
	}
	if p.take(holdings{0: rows(29, 31)}) || p.left != 70 {
		t.Errorf("a row was taken twice, %d left", p.left)
	}
	s, _ := p.deal("a", p.share(1))
	if s.Shard != 0 || s.From != 30 || s.To != 100 {
		t.Errorf("span %+v, want what nobody has", s)
	}
}
