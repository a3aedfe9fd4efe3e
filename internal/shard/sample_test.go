package shard_test

import (
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/shard"
)

// Each row has the same chance to be in a random sample, and the same seed gives the same rows.
func TestChooseRows(t *testing.T) {
	t.Parallel()
	const rows, limit, seeds = 20, 5, 4000
	var chosen [rows]int
	for seed := range int64(seeds) {
		spec := rowmill.Spec{RowChoice: rowmill.RowChoice{Limit: limit, Sample: rowmill.SampleRandom}, Seeds: rowmill.Seeds{Seed: seed}}
		numbers := shard.ChooseRows(&spec, rows)
		if numbers.GetCardinality() != limit || !numbers.Equals(shard.ChooseRows(&spec, rows)) {
			t.Fatalf("seed %d gives %v", seed, numbers)
		}
		for _, n := range numbers.ToArray() {
			chosen[n]++
		}
	}
	for n, count := range chosen { // fixed seeds, so the counts are always the same
		if want := seeds * limit / rows; count < want*9/10 || count > want*11/10 {
			t.Errorf("row %d is in %d samples, want about %d", n, count, want)
		}
	}
}
