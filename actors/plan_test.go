package actors

import (
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"pgregory.net/rapid"
)

// Every row that is not done is dealt exactly once, in order, and the last
// span of a shard says so.
func TestPlanDealsEveryOpenRowOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var shards []shardInfo
		var done []*roaring.Bitmap
		want := 0
		for range rapid.IntRange(0, 5).Draw(t, "shards") {
			info := shardInfo{Rows: rapid.IntRange(1, 3000).Draw(t, "rows")}
			info.Bytes = int64(info.Rows) * rapid.Int64Range(0, 5000).Draw(t, "bytes per row")
			set := roaring.New()
			for range rapid.IntRange(0, 3).Draw(t, "done ranges") {
				from := rapid.Uint64Range(0, uint64(info.Rows)).Draw(t, "from")
				set.AddRange(from, min(uint64(info.Rows), from+rapid.Uint64Range(0, 2000).Draw(t, "n")))
			}
			want += info.Rows - int(set.GetCardinality())
			if set.IsEmpty() {
				set = nil
			}
			shards, done = append(shards, info), append(done, set)
		}
		p := newPlan(shards, done)
		workers := rapid.IntRange(1, 8).Draw(t, "workers")
		got, shard, row := 0, -1, 0
		ended := make(map[int]bool)
		for {
			left := p.left
			s, ok := p.deal(workers)
			if !ok {
				break
			}
			if workers > 1 && s.to-s.from > max(minSpanRows, int(left)/(2*workers)) {
				t.Fatalf("span of %d rows for one of %d workers", s.to-s.from, workers)
			}
			if s.shard != shard {
				shard, row = s.shard, 0
			}
			if s.from < row || s.to <= s.from || s.to > shards[s.shard].Rows || ended[s.shard] {
				t.Fatalf("span %+v after row %d of shard %d", s, row, shard)
			}
			st := &shardState{}
			st.dealt(s)
			for r := s.from; r < s.to; r++ {
				if s.done == nil || !s.done.ContainsInt(r) {
					got++
					st.open--
				}
			}
			if st.open != 0 {
				t.Fatalf("span %+v: shardState counts %d rows too many", s, st.open)
			}
			row = s.to
			ended[s.shard] = s.last
		}
		if got != want {
			t.Fatalf("dealt %d rows, want %d", got, want)
		}
		if !p.exhausted() {
			t.Fatal("plan is not exhausted after its last span")
		}
		for i, info := range shards {
			open := done[i] == nil || int(done[i].GetCardinality()) < info.Rows
			if open != ended[i] {
				t.Fatalf("shard %d: last span dealt %v, want %v", i, ended[i], open)
			}
		}
	})
}
