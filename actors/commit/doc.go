// Package commit decides how the parts of a job become its result: which parts are
// recorded together, when the parts of a shard are merged, and when the result can be
// made. It also makes merged parts and results. It uses no actors. Package work writes
// the parts of workers.
package commit
