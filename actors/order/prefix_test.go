package order

import (
	"fmt"
	"strings"
	"testing"
)

// sampled returns the prefixes after n texts, for a server that caches this many bytes.
func sampled(n int, cache int64, text func(i int) string) *prefixSampler {
	p := newPrefixSampler()
	p.cache = cache
	for i := range n {
		p.addSample(text(i))
	}
	return p
}

// shared returns a text that begins with the text of a group.
func shared(group, bytes, rest int, i int) string {
	begin := strings.Repeat(fmt.Sprintf("group %04d. ", group), bytes/12+1)[:bytes]
	return begin + strings.Repeat(fmt.Sprintf("row %06d ", i), rest/11+1)
}

func TestTheLengthThatSavesMostIsChosen(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		cache int64
		text  func(i int) string
		depth int
	}{
		{"nothing in common", 0, func(i int) string { return shared(i, 2000, 100, i) }, none},
		{"too short", 0, func(i int) string { return shared(i%8, 200, 20, i) }, none},
		{"1 KiB of ten groups", 0, func(i int) string { return shared(i%10, 1024, 300, i) }, 2},
		{"4 KiB of ten groups", 0, func(i int) string { return shared(i%10, 4096, 300, i) }, 4},
		{"all are remembered", 1 << 20, func(i int) string { return shared(i%10, 4096, 300, i) }, none},
		{"hardly worth it", 0, func(i int) string { return shared(i%100, 256, 8000, i) }, none},
	} {
		if p := sampled(1024, test.cache, test.text); p.depth != test.depth {
			t.Errorf("%s: level %d is chosen, want %d", test.name, p.depth, test.depth)
		}
	}
}

func TestHashDiffersByGroup(t *testing.T) {
	t.Parallel()
	p := sampled(1024, 0, func(i int) string { return shared(i%10, 1024, 300, i) })
	hashes := map[uint64]int{}
	for i := range 100 {
		hashes[p.hash(shared(i%10, 1024, 50, i))]++
	}
	if len(hashes) != 10 || hashes[0] != 0 {
		t.Errorf("ten groups have hashes %v", hashes)
	}
	if p.hash("short") != 0 {
		t.Error("a text below the chosen length is of a group")
	}
	seen, changed := p.addSample(shared(3, 1024, 50, 1))
	if seen != p.hash(shared(3, 1024, 99, 2)) || changed {
		t.Errorf("a text that is seen has another hash (%v), or changes the level", seen)
	}
}

// After the sample ends, its memory is freed, and texts still get their hashes.
func TestTheSampleEnds(t *testing.T) {
	t.Parallel()
	p := sampled(sampleRows+10, 0, func(i int) string { return shared(i%10, 1024, 300, i) })
	if p.seen != sampleRows || p.level[0].hashes != nil {
		t.Errorf("%d rows were seen", p.seen)
	}
	if hash, changed := p.addSample(shared(3, 1024, 50, 1)); hash == 0 || changed {
		t.Error("after the sample no text is of a group")
	}
}
