package actors

import (
	"fmt"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/shard"
	"github.com/rowmill/rowmill/store"
)

func rows(from, to uint64) *roaring.Bitmap {
	b := roaring.New()
	b.AddRange(from, to)
	return b
}

func written(key string, shard int, set *roaring.Bitmap) partReport {
	return partReport{Key: key, Shard: shard, Rows: newRowSet(set), Totals: store.Totals{Rows: int64(set.GetCardinality())}}
}

func TestLedgerRefusesRowsThatAreDone(t *testing.T) {
	t.Parallel()
	l, err := newLedger([]shard.Info{{Rows: 10}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, ok := l.propose(written("a", 0, rows(0, 6))); !ok {
		t.Fatal("first part refused")
	}
	if _, open, ok := l.propose(written("b", 0, rows(5, 10))); ok || !open.Equals(rows(6, 10)) {
		t.Errorf("part with a row that is done: accepted %v, rows to run again %v", ok, open)
	}
	if _, _, ok := l.propose(written("c", 0, rows(0, 10))); ok {
		t.Error("complete part with rows that are done was accepted")
	}
}

func TestLedgerKnowsACompletePartWithoutMerging(t *testing.T) {
	t.Parallel()
	l, _ := newLedger([]shard.Info{{Rows: 10}}, nil)
	p, _, ok := l.propose(written("a", 0, rows(0, 10)))
	if !ok || !p.Complete || p.Accepted != nil {
		t.Fatalf("part = %+v, %v, want a complete one", p, ok)
	}
	l.committed(p)
	if !l.finished() || l.mergeable(0) {
		t.Error("one complete part leaves something to do")
	}
}

// A ledger replayed from its own records equals the one that made them,
// whatever the order of parts, and finishes exactly when all rows are in.
func TestLedgerReplayEqualsTheOriginal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var shards []shard.Info
		for range rapid.IntRange(1, 3).Draw(t, "shards") {
			shards = append(shards, shard.Info{Rows: rapid.IntRange(1, 40).Draw(t, "rows")})
		}
		l, err := newLedger(shards, nil)
		if err != nil {
			t.Fatal(err)
		}
		var records []store.Part
		for n := range rapid.IntRange(0, 30).Draw(t, "parts") {
			shard := rapid.IntRange(0, len(shards)-1).Draw(t, "shard")
			set := roaring.New()
			for range rapid.IntRange(1, 20).Draw(t, "rows of part") {
				set.Add(uint32(rapid.IntRange(0, shards[shard].Rows-1).Draw(t, "row")))
			}
			set.AndNot(taken(l, shard))
			if set.IsEmpty() {
				continue
			}
			p, _, ok := l.propose(written(fmt.Sprint(n), shard, set))
			if !ok {
				t.Fatal("part of open rows refused")
			}
			l.committed(p)
			records = append(records, p)
			if l.mergeable(shard) && rapid.Bool().Draw(t, "merge now") {
				c := mergedPart("merged", 1, l.shards[shard].parts)
				l.complete(c)
				kept := records[:0]
				for _, p := range records {
					if p.Shard != shard {
						kept = append(kept, p)
					}
				}
				records = append(kept, c)
			}
		}
		again, err := newLedger(shards, records)
		if err != nil {
			t.Fatal(err)
		}
		if again.totals != l.totals || again.open != l.open || again.rows != l.rows {
			t.Fatalf("replayed %+v/%d, want %+v/%d", again.totals, again.open, l.totals, l.open)
		}
		for i := range shards {
			if again.mergeable(i) != l.mergeable(i) || !taken(again, i).Equals(taken(l, i)) {
				t.Fatalf("shard %d differs after replay", i)
			}
		}
		all := int64(0)
		for i := range shards {
			all += int64(taken(l, i).GetCardinality())
		}
		if all != l.totals.Rows {
			t.Fatalf("%d rows taken, totals say %d", all, l.totals.Rows)
		}
	})
}

// taken is the set of rows of a shard that need no work.
func taken(l *ledger, shard int) *roaring.Bitmap {
	if set := l.done()[shard]; set != nil {
		return set
	}
	return roaring.New()
}

func TestLedgerRefusesRecordsOfAnotherInput(t *testing.T) {
	t.Parallel()
	if _, err := newLedger([]shard.Info{{Rows: 1}}, []store.Part{{Key: "x", Shard: 1, Complete: true}}); err == nil {
		t.Error("a part of a shard that does not exist was accepted")
	}
	if _, err := newLedger([]shard.Info{{Rows: 1}}, []store.Part{{Key: "x", Accepted: []byte("nonsense")}}); err == nil {
		t.Error("a part with a broken row set was accepted")
	}
}
