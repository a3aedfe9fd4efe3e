package shard

import (
	"math/rand/v2"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
)

// MaxSampledInput is the number of first rows from which a sample is chosen: the numbers in a
// Roaring bitmap have 32 bits.
const MaxSampledInput = 1 << 32

// ChooseRows returns the numbers of the rows that a job with a limit runs, of an input with
// rows rows. Another call returns the same numbers.
func ChooseRows(spec *rowmill.Spec, rows int64) *roaring.Bitmap {
	rows = min(rows, MaxSampledInput)
	limit := min(spec.Limit, rows)
	chosen := roaring.New()
	if spec.Sample != rowmill.SampleRandom {
		chosen.AddRange(0, uint64(limit)) //nolint:gosec // not negative
		return chosen
	}
	// Robert Floyd's algorithm: Bentley, "Programming pearls: a sample of brilliance",
	// Communications of the ACM 30 (9), 1987.
	random := rand.New(rand.NewPCG(uint64(spec.Seed), 0)) //nolint:gosec // no secret
	for last := rows - limit; last < rows; last++ {
		if !chosen.CheckedAdd(uint32(random.Int64N(last + 1))) { //nolint:gosec // below MaxSampledInput
			chosen.Add(uint32(last)) //nolint:gosec // below MaxSampledInput
		}
	}
	return chosen
}
