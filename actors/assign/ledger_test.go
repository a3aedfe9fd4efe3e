package assign

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
)

func TestLedgerKnowsACompletePartWithoutMerging(t *testing.T) {
	t.Parallel()
	l := must.Get(NewPartLedger([]shard.ManifestEntry{{Rows: 10}}, nil))(t)
	l.Add(store.Part{Key: "a", Rows: 10, Complete: true})
	if !l.IsComplete() || l.Mergeable(0) {
		t.Error("one complete part leaves something to do")
	}
}

// The state rebuilt from the records equals the original ledger and states, in any order
// of the parts. Both finish exactly when all rows are recorded.
func TestReplayEqualsTheOriginal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var shards []shard.ManifestEntry
		for range rapid.IntRange(1, 3).Draw(t, "shards") {
			shards = append(shards, shard.ManifestEntry{Rows: rapid.IntRange(1, 40).Draw(t, "rows")})
		}
		l, _ := NewPartLedger(shards, nil)
		o, _ := NewOwner(shards, nil)
		var records []store.Part
		for n := range rapid.IntRange(0, 30).Draw(t, "parts") {
			shard := rapid.IntRange(0, len(shards)-1).Draw(t, "shard")
			set := rows(0, 0)
			for range rapid.IntRange(1, 20).Draw(t, "rows of part") {
				set.Add(uint32(rapid.IntRange(0, shards[shard].Rows-1).Draw(t, "row")))
			}
			if done := o.states.committed.inShard(shard); done != nil {
				set.AndNot(done)
			}
			if set.IsEmpty() {
				continue
			}
			p := Part{Key: fmt.Sprint(n), Shard: shard, Rows: NewRowSet(set), Totals: store.RowTotals{Rows: int64(set.GetCardinality())}}
			proposal := o.propose(&Assignee{Worker: "w"}, p)
			if proposal.Repeat {
				t.Fatal("part of open rows refused")
			}
			o.MarkCommitted("w", p, time.Unix(0, 0))
			l.Add(proposal.Record)
			records = append(records, proposal.Record)
			if l.Mergeable(shard) && rapid.Bool().Draw(t, "merge now") {
				c := NewMergedPart("merged", 1, l.Parts(shard))
				l.RecordCompletePart(c)
				kept := records[:0]
				for _, p := range records {
					if p.Shard != shard {
						kept = append(kept, p)
					}
				}
				records = append(kept, c)
			}
		}
		again := must.Get(NewPartLedger(shards, records))(t)
		states := must.Get(newRowStates(shards, records))(t)
		if again.Totals != l.Totals || again.open != l.open || again.Rows != l.Rows {
			t.Fatalf("replayed %+v/%d, want %+v/%d", again.Totals, again.open, l.Totals, l.open)
		}
		for i := range shards {
			if again.Mergeable(i) != l.Mergeable(i) || !states.committed.intersect(i, rows(0, 40)).Equals(o.states.committed.intersect(i, rows(0, 40))) {
				t.Fatalf("shard %d differs after replay", i)
			}
		}
		if o.states.committed.Count() != l.Totals.Rows || o.states.free.Count()+l.Totals.Rows != l.Rows {
			t.Fatalf("%d rows committed and %d free of %d, totals say %d", o.states.committed.Count(), o.states.free.Count(), l.Rows, l.Totals.Rows)
		}
	})
}
