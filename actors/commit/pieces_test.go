package commit

import (
	"slices"
	"testing"

	"github.com/rowmill/rowmill/store"
)

// cuts completes shards of this size in bytes, one row each, in this order.
func cuts(p *joinPlan, size int64, order ...int) (cut []ShardRange) {
	for _, n := range order {
		cut = append(cut, p.addCompletePart(store.Part{Shard: n, Size: size, Rows: 1})...)
	}
	return cut
}

func ascending(from, to int) (order []int) {
	for n := from; n < to; n++ {
		order = append(order, n)
	}
	return order
}

// Pieces are as large as allowed, and smaller when less is left.
func TestPiecesBecomeSmallerTowardsTheEnd(t *testing.T) {
	t.Parallel()
	p := newJoinPlan(JoinSizes{Least: 2, Most: 16}, 200, 200)
	cut := cuts(&p, 1, ascending(0, 200)...)
	var sizes []int
	at := 0
	for _, one := range append(cut, p.cutRemaining()...) {
		if one.From != at {
			t.Fatalf("%+v follows shard %d", one, at-1)
		}
		at = one.To
		sizes = append(sizes, one.To-one.From)
	}
	if at < 199 || // fewer bytes than the minimum stay as they are
		sizes[0] != 16 || !slices.IsSortedFunc(sizes, func(a, b int) int { return b - a }) || sizes[len(sizes)-1] > 3 {
		t.Errorf("pieces of %v shards", sizes)
	}
	if p.cutRemaining() != nil {
		t.Error("the end comes twice")
	}
}

// A late shard splits the shards that are joined. When it is complete, it joins the rest
// on both sides.
func TestALateShardHoldsUpItsNeighboursOnly(t *testing.T) {
	t.Parallel()
	p := newJoinPlan(JoinSizes{Least: 2, Most: 80}, 1000, 1000)
	if cut := cuts(&p, 10, append(ascending(0, 4), ascending(5, 13)...)...); !slices.Equal(cut, []ShardRange{{5, 13}}) {
		t.Errorf("without shard 4: %v", cut)
	}
	if cut := cuts(&p, 10, ascending(13, 16)...); cut != nil {
		t.Errorf("too little: %v", cut)
	}
	if cut := cuts(&p, 40, 4); !slices.Equal(cut, []ShardRange{{0, 5}}) {
		t.Errorf("with shard 4: %v", cut)
	}
}

func TestSmallRunsAreNotJoined(t *testing.T) {
	t.Parallel()
	p := newJoinPlan(JoinSizes{Least: 30, Most: 800}, 12, 12)
	if cut := cuts(&p, 10, ascending(0, 9)...); cut != nil {
		t.Errorf("less than an eighth: %v", cut)
	}
	p.parts[2].taken = true
	if cut := p.cutRemaining(); !slices.Equal(cut, []ShardRange{{3, 9}}) {
		t.Errorf("the rest: %v", cut)
	}
	none := newJoinPlan(JoinSizes{}, 3, 3)
	if cut := append(cuts(&none, 1<<40, 0, 1, 2), none.cutRemaining()...); cut != nil {
		t.Errorf("where none is needed: %v", cut)
	}
}
