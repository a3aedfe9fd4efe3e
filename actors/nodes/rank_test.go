package nodes

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/cluster"
)

// All members compute the same ranks: 0, 1, 2 … for each job, and the member that
// FirstRanked returns has rank 0. When a member leaves, only the members behind it change
// their rank.
func TestRanksAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var owners, members []cluster.Member
		for i := range rapid.IntRange(1, 6).Draw(t, "members") {
			m := cluster.Member{ID: fmt.Sprint("node-", i), Owns: rapid.Bool().Draw(t, "owns")}
			members = append(members, m)
			if m.Owns {
				owners = append(owners, m)
			}
		}
		job := rapid.StringN(1, 8, -1).Draw(t, "job")
		order := make([]string, len(owners))
		for _, m := range owners {
			order[Rank(job, m.ID, members)] = m.ID
		}
		if slices.Contains(order, "") {
			t.Fatalf("ranks are not 0 to %d: %q", len(owners)-1, order)
		}
		first, ok := FirstRanked(job, members)
		if ok != (len(owners) > 0) || ok && first.ID != order[0] {
			t.Fatalf("first is %q (%v), want that of %q", first.ID, ok, order)
		}
		if len(owners) == 0 {
			return
		}
		gone := rapid.SampledFrom(owners).Draw(t, "gone")
		left := slices.DeleteFunc(slices.Clone(members), func(m cluster.Member) bool { return m.ID == gone.ID })
		for at, id := range order {
			want := at
			if at > slices.Index(order, gone.ID) {
				want--
			}
			if got := Rank(job, id, left); id != gone.ID && got != want {
				t.Fatalf("%s is of rank %d without %s, want %d", id, got, gone.ID, want)
			}
		}
	})
}

// Each of several members is first for about the same number of jobs.
func TestJobsSpread(t *testing.T) {
	t.Parallel()
	members := []cluster.Member{{ID: "a", Owns: true}, {ID: "b", Owns: true}, {ID: "c", Owns: true}, {ID: "d"}}
	count := map[string]int{}
	for i := range 3000 {
		first, _ := FirstRanked(fmt.Sprint("job-", i), members)
		count[first.ID]++
	}
	for _, id := range []string{"a", "b", "c"} {
		if n := count[id]; n < 800 || n > 1200 {
			t.Errorf("%s is first for %d of 3000 jobs", id, n)
		}
	}
	if count["d"] != 0 {
		t.Error("a member that owns none is first")
	}
}
