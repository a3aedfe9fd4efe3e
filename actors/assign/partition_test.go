package assign

import (
	"testing"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
)

// dealt returns an owner with this number of shards, and rows in each. The groups of the
// rows take turns. The shards are large enough for this number of shares.
func dealt(t *testing.T, shards, rows, shares int) *Owner {
	t.Helper()
	infos := make([]shard.ManifestEntry, shards)
	groups := make([]byte, shards*rows)
	for n := range infos {
		infos[n] = shard.ManifestEntry{First: int64(n * rows), Rows: rows, Bytes: int64(shares) * shareBytes / int64(shards)}
	}
	for i := range groups {
		groups[i] = byte(1 + i*101%shard.Groups)
	}
	o := must.Get(NewOwner(infos, nil))(t)
	o.SetRowGroups(groups)
	return o
}

// take takes the next span for a worker from the plan, and returns the groups of its
// rows.
func take(t *testing.T, o *Owner, worker string) (s RowSpan, groups map[byte]bool) {
	t.Helper()
	s, ok := o.plan.nextSpan(worker, maxSpanRows)
	if !ok {
		t.Fatalf("no row for worker %s", worker)
	}
	o.states.assign(worker, s.Shard, s.Rows())
	groups = make(map[byte]bool)
	for row := s.From; row < s.To; row++ {
		if s.Has(row) {
			groups[o.plan.partition.groups[o.plan.shards[s.Shard].First+int64(row)]] = true
		}
	}
	return s, groups
}

// While there are enough shares, one worker gets all rows of a group, from one shard of
// the block after another.
func TestAGroupGoesToOneWorker(t *testing.T) {
	t.Parallel()
	o := dealt(t, 4, 1020, 6)
	whose, shards := map[byte]string{}, map[int]bool{}
	for i := 0; o.plan.free.Count() > 1020; i++ { // at the end workers share a share
		worker := [...]string{"a", "b"}[i%2]
		s, groups := take(t, o, worker)
		for group := range groups {
			if other, has := whose[group]; has && other != worker {
				t.Fatalf("step %d: group %d goes to %s and %s", i, group, other, worker)
			}
			whose[group] = worker
		}
		if s.Block != 3 || s.Share == 0 || len(groups) > shard.Groups/6+1 {
			t.Fatalf("step %d: %d groups of shard %d, behind shard %d, share %d", i, len(groups), s.Shard, s.Block, s.Share)
		}
		shards[s.Shard] = true
	}
	if len(whose) < shard.Groups/2 || len(shards) != 4 {
		t.Errorf("%d groups of %d shards were dealt", len(whose), len(shards))
	}
}

// With more workers than shares each worker gets rows, and rows that come back are dealt
// again.
func TestSharesAreSharedAtTheEnd(t *testing.T) {
	t.Parallel()
	o := dealt(t, 2, 510, 2)
	var last RowSpan
	for _, worker := range []string{"a", "b", "c"} {
		last, _ = take(t, o, worker)
	}
	o.states.release("c", last.Shard, last.Rows())
	o.plan.forget("c")
	for o.plan.free.Count() > 0 {
		take(t, o, "b")
	}
}

// Shares have about the same number of rows, even if groups differ in size.
func TestSharesHaveEqualSize(t *testing.T) {
	t.Parallel()
	b := partitionBlock{shares: 5}
	var groups []byte
	for group := 1; group <= shard.Groups; group++ {
		for range 1 + 10*group/shard.Groups {
			groups = append(groups, byte(group))
		}
	}
	b.divide(append(groups, 0, 0, 0))
	rows := make([]int, b.shares)
	for _, group := range groups {
		rows[b.numbers[group]]++
	}
	for number, n := range rows[1:] {
		if equal := len(groups) / 4; rows[0] != 0 || n < equal-11 || n > equal+11 { // one group more or less
			t.Errorf("share %d has %d rows of %d", 1+number, n, len(groups))
		}
	}
	if b.divide([]byte{0, 0}); b.numbers[0] != 0 {
		t.Error("rows without a group are in a share of groups")
	}
}

// If some rows of a shard ran before the groups were known, the other rows are dealt.
func TestRemainingRowsAreDealt(t *testing.T) {
	t.Parallel()
	const rows = 1020
	infos, groups := make([]shard.ManifestEntry, 4), make([]byte, 4*rows)
	for n := range infos {
		infos[n] = shard.ManifestEntry{First: int64(n * rows), Rows: rows, Bytes: shareBytes}
	}
	for i := range groups {
		groups[i] = byte(1 + i*101%shard.Groups)
	}
	o := must.Get(NewOwner(infos[:1], nil))(t)
	early, ok := o.plan.nextSpan("a", rows/2)
	if !ok || early.Share != 0 {
		t.Fatalf("%+v, %v", early, ok)
	}
	o.states.assign("a", early.Shard, early.Rows())
	o.Append(infos[1:], nil)
	o.SetRowGroups(groups)
	whose, left := map[byte]string{}, o.plan.free.Count()
	for i := 0; o.plan.free.Count() > rows; i++ {
		worker := [...]string{"a", "b"}[i%2]
		s, groups := take(t, o, worker)
		if left -= int64(s.Count()); s.Share == 0 {
			t.Fatalf("step %d: %+v is not dealt", i, s)
		}
		for group := range groups {
			if other, has := whose[group]; has && other != worker {
				t.Fatalf("step %d: group %d goes to %s and %s", i, group, other, worker)
			}
			whose[group] = worker
		}
	}
	if left != o.plan.free.Count() {
		t.Errorf("%d rows are left, of %d", o.plan.free.Count(), left)
	}
}

// A block has a limit in bytes. Shards with rows without a group are not dealt: they
// follow after the dealt shards.
func TestBlocksAreBounded(t *testing.T) {
	t.Parallel()
	infos := make([]shard.ManifestEntry, 6)
	for n := range infos {
		infos[n] = shard.ManifestEntry{First: int64(10 * n), Rows: 10, Bytes: shard.PartitionBytes / 2}
	}
	o := must.Get(NewOwner(infos, nil))(t)
	o.SetRowGroups(make([]byte, 45)) // some rows of the fifth shard have no group
	if blocks := o.plan.partition.blocks; len(blocks) != 2 || blocks[0].to != 2 || blocks[1].from != 2 || blocks[1].to != 4 {
		t.Fatalf("blocks are %+v", blocks)
	}
	for range 60 {
		s, ok := o.plan.nextSpan("a", maxSpanRows)
		if !ok {
			t.Fatal("a row is not assigned")
		}
		if o.states.assign("a", s.Shard, s.Rows()); s.Shard > 3 && s.Share != 0 {
			t.Fatalf("rows of shard %d are dealt", s.Shard)
		}
	}
	if !o.plan.exhausted() {
		t.Error("rows are left")
	}
}
