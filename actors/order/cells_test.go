package order

import (
	"testing"

	"pgregory.net/rapid"
)

// In any sequence of operations, rankedRows returns each row once, in order within a class,
// and never a row of a lower rank while a row of a higher rank is there.
func TestCellsGiveTheBest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var c rankedRows[int]
		var l LengthEstimator
		for range rapid.IntRange(0, 200).Draw(t, "learned") {
			l.Learn(rapid.IntRange(0, 5000).Draw(t, "bytes"), rapid.Int64Range(0, 99).Draw(t, "at"), 100, 10, rapid.Int64Range(1, 500).Draw(t, "tokens"))
		}
		inside := map[int]rowClass{}
		next, last := 0, map[rowClass]int{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1, 2:
				for range rapid.IntRange(1, 20).Draw(t, "rows") {
					k := rowClass{uint8(rapid.IntRange(0, 6).Draw(t, "size")), uint8(rapid.IntRange(0, 3).Draw(t, "region"))}
					next++
					c.add(Row[int]{Value: next, class: k})
					inside[next] = k
				}
			case 3, 4:
				for range min(rapid.IntRange(1, 10).Draw(t, "take"), c.count) {
					r := c.popHighest(&l)
					k, there := inside[r.Value]
					if !there || k != r.class {
						t.Fatalf("row %d came out twice, or of another class", r.Value)
					}
					if r.Value < last[k] {
						t.Fatalf("row %d came out after %d of its class", r.Value, last[k])
					}
					last[k] = r.Value
					delete(inside, r.Value)
					for _, other := range inside {
						if l.rank(int(other.size), int(other.region)) > l.rank(int(k.size), int(k.region)) {
							t.Fatalf("class %v goes before %v", k, other)
						}
					}
				}
			case 5:
				c.filter(func(r Row[int]) bool {
					if r.Value%3 == 0 {
						delete(inside, r.Value)
					}
					return r.Value%3 != 0
				})
			}
			if c.count != len(inside) {
				t.Fatalf("%d rows are counted, %d are there", c.count, len(inside))
			}
		}
	})
}

func TestRegionsFarApartComeOneAfterAnother(t *testing.T) {
	t.Parallel()
	seen := map[uint8]bool{}
	for r := range uint8(regions) {
		s := scatter(r)
		if s >= regions || seen[s] || scatter(s) != r {
			t.Fatalf("region %d is scattered to %d", r, s)
		}
		seen[s] = true
	}
	for i, want := range []uint8{0, 32, 16, 48} {
		if got := scatter(uint8(i)); got != want {
			t.Errorf("region %d comes as number %d, want %d", i, got, want)
		}
	}
}
