package ingest

import (
	"math/bits"
	"math/rand/v2"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/internal/shard"
)

// A lengthSampler chooses a random sample of rows while they are counted. Rows are in classes
// by the length of their prompts, and each class has about the same share of the sample as of
// all rows (proportional stratification: Cochran, Sampling Techniques, 1977, chapter 5). Its
// memory does not depend on the number of rows.
type lengthSampler struct {
	size    int // maximum number of rows in the sample
	random  *rand.Rand
	classes [bits.UintSize + 1]lengthClass // by the number of bits of the number of tokens
}

// A lengthClass has the rows of one class.
type lengthClass struct {
	rows   int64
	chosen []uint32 // random rows of the class, chosen by algorithm R (Vitter, ACM TOMS 11, 1985)
}

// newLengthSampler returns a sampler of at most size rows. The same seed gives the same sample.
func newLengthSampler(size int, seed int64) *lengthSampler {
	return &lengthSampler{size: size, random: rand.New(rand.NewPCG(uint64(seed), 0))} //nolint:gosec // no secret
}

// add adds the next row, with the tokens of its prompt.
func (s *lengthSampler) add(row int64, tokens int) {
	if row >= shard.MaxSampledInput {
		return
	}
	c := &s.classes[bits.Len(uint(tokens))] //nolint:gosec // not negative
	c.rows++
	if len(c.chosen) < s.size {
		c.chosen = append(c.chosen, uint32(row))
	} else if at := s.random.Int64N(c.rows); at < int64(s.size) {
		c.chosen[at] = uint32(row)
	}
}

// minSample is the least number of rows of a sample, whatever their length.
const minSample = 20

// choose returns the rows of the sample. all is the size of the input. The sample has about
// as many tokens as given, or fewer.
func (s *lengthSampler) choose(tokens int64, all shard.InputSize) *roaring.Bitmap {
	var rows, before, share int64
	for _, c := range s.classes {
		rows += c.rows
	}
	most := min(int64(s.size), rows, max(minSample, tokens*all.Rows/max(1, all.Tokens)))
	chosen := roaring.New()
	for _, c := range s.classes {
		before += c.rows
		end := (before*most + rows/2) / max(1, rows) // rows of the sample in this class and those before
		s.random.Shuffle(len(c.chosen), func(i, j int) { c.chosen[i], c.chosen[j] = c.chosen[j], c.chosen[i] })
		chosen.AddMany(c.chosen[:end-share])
		share = end
	}
	return chosen
}
