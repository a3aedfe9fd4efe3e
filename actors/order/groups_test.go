package order

import (
	"math/rand/v2"
	"testing"
)

// grouped returns the groups of n texts.
func grouped(n int, text func(i int) string) (*PrefixGrouper, []byte) {
	g := NewPrefixGrouper()
	for i := range n {
		g.Add(text(i))
	}
	return g, g.RowGroups()
}

func TestRowsAreGroupedWhereItSavesPrompts(t *testing.T) {
	t.Parallel()
	order := rand.New(rand.NewPCG(1, 1)).Perm(6000)
	for _, test := range []struct {
		name string
		rows int
		text func(i int) string
		want bool
	}{
		{"500 prefixes in no order", 6000, func(i int) string { return shared(order[i]%500, 8192, 500, i) }, true},
		{"pairs in no order", 6000, func(i int) string { return shared(order[i]/2, 8192, 500, i) }, true},
		{"fewer rows than a worker has", 1500, func(i int) string { return shared(order[i]%500, 8192, 500, i) }, false},
		{"a table sorted by prefix", 6000, func(i int) string { return shared(i/12, 8192, 500, i) }, false},
		{"few prefixes, which a server remembers", 6000, func(i int) string { return shared(order[i]%20, 8192, 500, i) }, false},
		{"nothing in common", 6000, func(i int) string { return shared(i, 8192, 500, i) }, false},
		{"long rows that share little", 6000, func(i int) string { return shared(order[i]%500, 300, 8192, i) }, false},
	} {
		_, groups := grouped(test.rows, test.text)
		if got := groups != nil; got != test.want {
			t.Errorf("%s: grouped is %v, want %v", test.name, got, test.want)
		}
		if test.want && len(groups) != test.rows {
			t.Errorf("%s: %d rows have groups, of %d", test.name, len(groups), test.rows)
		}
	}
}

// Rows with the same prefix have the same group, before and after the decision. Short
// rows have no group. Groups have about the same size.
func TestAPrefixHasOneGroup(t *testing.T) {
	t.Parallel()
	const rows = 3 * sampleRows / 2
	random := rand.New(rand.NewPCG(2, 2))
	prefix := make([]int, rows)
	_, groups := grouped(rows, func(i int) string {
		if prefix[i] = random.IntN(1500); i%100 == 7 {
			prefix[i] = -1
			return "short"
		}
		return shared(prefix[i], 8192, 200, i)
	})
	if len(groups) != rows {
		t.Fatalf("%d rows have groups, of %d", len(groups), rows)
	}
	of, used := map[int]byte{}, map[byte]int{}
	for i, group := range groups {
		if before, again := of[prefix[i]]; again && before != group {
			t.Fatalf("row %d of prefix %d is in group %d, one before in %d", i, prefix[i], group, before)
		}
		of[prefix[i]] = group
		used[group]++
	}
	if of[-1] != 0 {
		t.Errorf("short rows are in group %d", of[-1])
	}
	if len(used) < 200 {
		t.Errorf("%d groups are used", len(used))
	}
}

func TestGroupsHaveALimit(t *testing.T) {
	t.Parallel()
	order := rand.New(rand.NewPCG(3, 3)).Perm(6000)
	g := NewPrefixGrouper()
	g.limit = 5000
	for i := range 6000 {
		g.Add(shared(order[i]%500, 8192, 500, i))
	}
	if n := len(g.RowGroups()); n != 5000 {
		t.Errorf("%d rows have groups, at most 5000 should", n)
	}
}

func TestAnEmptyInputHasNoGroups(t *testing.T) {
	t.Parallel()
	if groups := NewPrefixGrouper().RowGroups(); groups != nil {
		t.Errorf("there are %d", len(groups))
	}
}
