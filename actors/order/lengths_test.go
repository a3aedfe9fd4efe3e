package order

import (
	"math/bits"
	"testing"

	"pgregory.net/rapid"
)

func TestClassesGrowWithTheText(t *testing.T) {
	t.Parallel()
	for n := 2; n < 1<<12; n++ {
		if a, b := sizeClass(n), sizeClass(n+1); b < a || b > a+1 {
			t.Fatalf("%d bytes are of class %d, one more of %d", n, a, b)
		}
	}
	for log := 2; log < 30; log++ { // two for each doubling
		if a, b := sizeClass(1<<log), sizeClass(1<<(log+1)); b-a != 2 && b != sizes-1 {
			t.Errorf("%d bytes are of class %d, twice as many of %d", 1<<log, a, b)
		}
	}
	if c := sizeClass(1<<(bits.UintSize-2) - 1); c > sizes-1 {
		t.Errorf("the largest text is of class %d", c)
	}
}

func TestRegionsCoverTheInput(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(0, 1<<40).Draw(t, "total")
		at := rapid.Int64Range(0, max(total-1, 0)).Draw(t, "position")
		r := regionOf(at, total)
		if r < 0 || r >= regions || at+1 < total && regionOf(at+1, total) < r {
			t.Fatalf("row %d of %d is in region %d, the next in %d", at, total, r, regionOf(at+1, total))
		}
	})
	if regionOf(0, 1000) != 0 || regionOf(999, 1000) != regions-1 {
		t.Error("the ends of the input are not in the first and last region")
	}
}

func TestNothingLearned(t *testing.T) {
	t.Parallel()
	var l LengthEstimator
	if got := l.AnswerTokens(100, 0, 10); got != firstAnswer {
		t.Errorf("an answer of %d tokens is expected", got)
	}
	if got := l.PromptTokens(400); got != 101 {
		t.Errorf("400 bytes are %d tokens", got)
	}
	if small, large := l.rank(sizeClass(100), 3), l.rank(sizeClass(10_000), 3); large <= small {
		t.Errorf("long texts rank at %v, short ones at %v", large, small)
	}
}

// Answers change the expectation for their own size and region, and not for others.
func TestEffectsAreSeparate(t *testing.T) {
	t.Parallel()
	const total = 10_000
	var l LengthEstimator
	for i := range int64(4000) {
		at := i * 5 % total
		bytes, tokens := 100, int64(20)
		if i%2 == 1 {
			bytes, tokens = 5000, 400
		}
		if at >= total/2 {
			tokens *= 4
		}
		l.Learn(bytes, at, total, int64(bytes/5), tokens)
	}
	for _, test := range []struct {
		bytes    int
		position int64
		want     int64
	}{{100, 10, 20}, {100, 9990, 80}, {5000, 10, 400}, {5000, 9990, 1600}} {
		got := l.AnswerTokens(test.bytes, test.position, total)
		if got < test.want*3/4 || got > test.want*2 { // within half of the usual spread
			t.Errorf("%d bytes at %d: %d tokens are expected, %d would be right", test.bytes, test.position, got, test.want)
		}
	}
	if got := l.PromptTokens(1000); got < 190 || got > 210 {
		t.Errorf("1000 bytes are %d tokens, 5 bytes make one", got)
	}
}

// An unknown region is tried before a known region with the same length, and its bonus
// disappears with its answers.
func TestUnknownRegionsAreTriedEarly(t *testing.T) {
	t.Parallel()
	var l LengthEstimator
	for range 100 {
		l.Learn(100, 0, 6400, 20, 50)
	}
	size := sizeClass(100)
	if l.rank(size, regionOf(0, 6400)) >= l.rank(size, regionOf(6399, 6400)) {
		t.Error("an unknown region ranks below a known region of the same length")
	}
}

// If the input changes, the new lengths are learned.
func TestOldAnswersLoseWeight(t *testing.T) {
	t.Parallel()
	var l LengthEstimator
	for range 3 * memory {
		l.Learn(100, 0, 10, 20, 10)
	}
	for range 3 * memory {
		l.Learn(100, 0, 10, 20, 1000)
	}
	if got := l.AnswerTokens(100, 0, 10); got < 500 {
		t.Errorf("%d tokens are expected, long after they have become 1000", got)
	}
}
