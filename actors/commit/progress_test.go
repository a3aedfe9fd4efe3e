package commit

import (
	"fmt"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
)

// shards returns n shards of ten rows each.
func shards(n int) (out []shard.ManifestEntry) {
	for i := range n {
		out = append(out, shard.ManifestEntry{First: int64(10 * i), Rows: 10})
	}
	return out
}

// proposal returns a part with the rows [from, to) of a shard; failed is the number of
// failed rows.
func proposal(key string, n, from, to int, failed int64) assign.PartProposal {
	rows := roaring.New()
	rows.AddRange(uint64(from), uint64(to))
	rec := store.Part{Key: key, Shard: n, Rows: int64(to - from), Size: int64(to - from), Totals: store.RowTotals{Rows: int64(to - from), Failed: failed}}
	if rec.Complete = rec.Rows == 10; !rec.Complete {
		rec.Accepted, _ = rows.ToBytes()
	}
	return assign.PartProposal{Worker: "w", Record: rec}
}

func progress(t testing.TB, n int, survives int64, parts ...store.Part) *PartProgress {
	t.Helper()
	return NewPartProgress(must.Get(assign.NewPartLedger(shards(n), parts))(t), survives, JoinSizes{})
}

// record proposes a part and records it.
func (p *PartProgress) record(part assign.PartProposal) {
	p.Propose(part)
	p.MarkRecorded(p.Next().Record)
}

func keys(b *PartBatch) (out []string) {
	if b != nil {
		for _, p := range b.Parts() {
			out = append(out, p.Key)
		}
	}
	return out
}

func TestWaitingPartsAreRecordedTogether(t *testing.T) {
	t.Parallel()
	p := progress(t, 2, 100)
	if next := p.Next(); next.Record != nil || next.Final || next.Drained || next.Merge != nil {
		t.Errorf("at first there is %+v to do", next)
	}
	p.Propose(proposal("a", 0, 0, 4, 1))
	first := p.Next().Record
	if got := keys(first); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("recorded %q", got)
	}
	p.Propose(proposal("b", 0, 4, 10, 0))
	p.Propose(proposal("c", 1, 0, 10, 0))
	if p.Next().Record != nil || p.HasRecorded() {
		t.Error("two batches are recorded at a time")
	}
	p.MarkRecorded(first)
	second := p.Next().Record
	if got := keys(second); !slices.Equal(got, []string{"b", "c"}) {
		t.Fatalf("recorded %q", got)
	}
	p.MarkRecorded(second)
	if next := p.Next(); !slices.Equal(next.Merge, []int{0}) || next.Final {
		t.Errorf("all parts are recorded, and there is %+v to do", next)
	}
	if len(p.ShardParts(0)) != 2 || !p.HasRecorded() {
		t.Error("its parts are not there")
	}
	if old := p.MarkMerged(store.Part{Key: "d", Shard: 0, Rows: 10, Complete: true}); len(old) != 2 || old[0].Key != "a" || old[1].Key != "b" {
		t.Errorf("%+v are replaced", old)
	}
	if next := p.Next(); !next.Final || next.Merge != nil {
		t.Errorf("all shards are merged, and there is %+v to do", next)
	}
	if parts := p.Parts(); len(parts) != 2 || parts[0].Key != "d" || parts[1].Key != "c" {
		t.Errorf("the result is made of %+v", parts)
	}
	if p.Next().Final {
		t.Error("the result is made twice")
	}
}

func TestAnOwnerGoesOnWhereTheLastOneStopped(t *testing.T) {
	t.Parallel()
	a, b, c := proposal("a", 0, 0, 4, 0).Record, proposal("b", 0, 4, 10, 0).Record, proposal("c", 1, 0, 10, 0).Record
	if next := progress(t, 2, 1, a, b, c).Next(); !slices.Equal(next.Merge, []int{0}) || next.Final {
		t.Errorf("to be merged: %+v", next)
	}
	if p := progress(t, 1, 1, proposal("c", 0, 0, 10, 0).Record); !p.Next().Final || p.HasRecorded() {
		t.Error("a job whose last row is done is not finished")
	}
}

func TestTooManyFailedRows(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name             string
		survives, failed int64
		fails            bool
	}{
		{"none", 0, 0, false},
		{"as many as it survives", 3, 3, false},
		{"one more", 3, 4, true},
		{"all of them", 100, 10, true},
	} {
		p := progress(t, 1, test.survives)
		p.record(proposal("a", 0, 0, 10, test.failed))
		p.Propose(proposal("b", 0, 0, 1, 0))
		next := p.Next()
		if (next.Failed > 0) != test.fails || test.fails && (next.Failed != test.failed || next.MayFail != test.survives || next.Record != nil || next.Final) {
			t.Errorf("%s: there is %+v to do", test.name, next)
		}
		if again := p.Next(); test.fails && (again.Failed > 0 || again.Record != nil) {
			t.Errorf("%s: and then %+v", test.name, again)
		}
	}
}

// Failed rows taken over from another job count before any row runs.
func TestTooManyFailedRowsTakenOver(t *testing.T) {
	t.Parallel()
	carried := proposal("a", 0, 0, 10, 2).Record
	carried.Carried = true
	if next := progress(t, 2, 1, carried).Next(); next.Failed != 2 {
		t.Errorf("of two, where one may be: there is %+v to do", next)
	}
	if next := progress(t, 2, 2, carried).Next(); next.Failed != 0 {
		t.Errorf("as many as may be: there is %+v to do", next)
	}
}

// Steps and answers come in any order. Each part is recorded once, and before its shard
// is merged. Each shard is merged at most once. The result is made once, at the end,
// from all rows in order. After Drain only records are made. If parts are joined, each
// shard is in at most one piece, of complete parts, and the result waits for all pieces.
func TestEverythingIsDoneOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(1, 8).Draw(t, "shards")
		var sizes JoinSizes
		if rapid.Bool().Draw(t, "joins") {
			sizes = JoinSizes{Least: rapid.Int64Range(1, 30).Draw(t, "least"), Most: rapid.Int64Range(1, 200).Draw(t, "most")}
		}
		ledger := must.Get(assign.NewPartLedger(shards(count), nil))(t)
		p := NewPartProgress(ledger, 100, sizes)
		var waiting []assign.PartProposal
		for n := range count {
			for from := 0; from < 10; {
				to := rapid.IntRange(from+1, 10).Draw(t, "to")
				waiting = append(waiting, proposal(fmt.Sprint(n, "-", from), n, from, to, 0))
				from = to
			}
		}
		waiting = rapid.Permutation(waiting).Draw(t, "order")
		total := len(waiting)
		recorded, merged := map[string]bool{}, map[int]bool{}
		var batch *PartBatch
		var merging []int
		var joining []ShardRange
		joined := map[int]bool{}
		if sizes.Most > 0 && rapid.Bool().Draw(t, "helped") {
			p.EnableFinalJoins()
		}
		draining, final, drained := false, false, false
		for steps := 0; !final && !drained; steps++ {
			if steps > 1000 {
				t.Fatal("nothing happens any more")
			}
			switch rapid.IntRange(0, 10).Draw(t, "step") {
			case 0, 1, 2:
				if len(waiting) > 0 {
					p.Propose(waiting[0])
					waiting = waiting[1:]
				}
			case 3, 4, 5:
				if batch != nil {
					p.MarkRecorded(batch)
					for _, key := range keys(batch) {
						if recorded[key] {
							t.Fatalf("%s is recorded twice", key)
						}
						recorded[key] = true
					}
					batch = nil
				}
			case 6, 7, 8:
				if len(merging) > 0 {
					n := merging[0]
					for _, old := range p.MarkMerged(assign.NewMergedPart(fmt.Sprint("m", n), 10, p.ShardParts(n))) {
						if !recorded[old.Key] {
							t.Fatalf("%s is merged before it is recorded", old.Key)
						}
					}
					merging = merging[1:]
				}
			case 9:
				if len(joining) > 0 {
					at := joining[0]
					p.MarkJoined(at, store.Part{Key: fmt.Sprint("j", at.From), Shard: at.From, Rows: int64(10 * (at.To - at.From))})
					joining = joining[1:]
				}
			case 10:
				if rapid.IntRange(0, 9).Draw(t, "drain") == 0 {
					p.Drain()
					draining = true
				}
			}
			next := p.Next()
			if next.Record != nil {
				if batch != nil {
					t.Fatal("two batches at a time")
				}
				batch = next.Record
			}
			for _, n := range next.Merge {
				if merged[n] {
					t.Fatalf("shard %d is merged twice", n)
				}
				merged[n] = true
			}
			merging = append(merging, next.Merge...)
			for _, at := range next.Join {
				if at.To <= at.From || sizes.Most == 0 {
					t.Fatalf("%+v is put together", at)
				}
				for n := at.From; n < at.To; n++ {
					if parts := p.ShardParts(n); joined[n] || len(parts) != 1 || !parts[0].Complete {
						t.Fatalf("shard %d is merged, but it has the parts %+v", n, parts)
					}
					joined[n] = true
				}
			}
			joining = append(joining, next.Join...)
			if draining && (next.Final || len(next.Merge)+len(next.Join) > 0) {
				t.Fatal("something is begun by one that drains")
			}
			if next.Final && (len(recorded) != total || len(merging)+len(joining) > 0) {
				t.Fatal("the result is made too early")
			}
			if next.Drained && (!draining || batch != nil || len(merging) > 0) {
				t.Fatal("it has drained too early")
			}
			if next.Final {
				at := 0
				for _, part := range p.Parts() {
					if part.Shard != at {
						t.Fatalf("%+v follows shard %d", part, at-1)
					}
					at += int(part.Rows / 10)
				}
				if at != count {
					t.Fatalf("the result has %d of %d shards", at, count)
				}
			}
			final, drained = next.Final, next.Drained
		}
	})
}

// Parts gather after HoldBatch, except when they complete the job or the owner drains.
func TestPartsGather(t *testing.T) {
	t.Parallel()
	p := progress(t, 2, 100)
	p.HoldBatch()
	p.Propose(proposal("a", 0, 0, 4, 0))
	p.Propose(proposal("b", 0, 4, 9, 0))
	if next := p.Next(); next.Record != nil {
		t.Errorf("%q are recorded at once", keys(next.Record))
	}
	p.ReleaseBatch()
	batch := p.Next().Record
	if got := keys(batch); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("%q are recorded", got)
	}
	p.HoldBatch()
	p.MarkRecorded(batch)
	p.Propose(proposal("c", 0, 9, 10, 0))
	if p.Next().Record != nil {
		t.Error("a part that others follow is recorded at once")
	}
	p.Propose(proposal("d", 1, 0, 10, 0))
	if got := keys(p.Next().Record); !slices.Equal(got, []string{"c", "d"}) {
		t.Errorf("of the last parts %q are recorded", got)
	}

	p = progress(t, 2, 100)
	p.HoldBatch()
	p.Propose(proposal("a", 0, 0, 4, 0))
	p.Drain()
	if next := p.Next(); len(keys(next.Record)) != 1 || next.Drained {
		t.Errorf("a job that is given back has %+v to do", next)
	}
}
