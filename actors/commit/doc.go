// Package commit owns the way from the parts of a job to its result: which are
// recorded together, when those of a shard are merged, when the result can be
// made, and the making of both. It knows neither actors nor who writes parts.
package commit
