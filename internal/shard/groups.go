package shard

// Rows with a common start of their texts form a group. A separate object holds one
// byte per row, the group, for the first rows of the input. Groups only decide which
// rows run near each other: a job without groups has the same result.
const (
	// Groups is the number of groups. Group 0, for all other rows, is not counted.
	Groups = 255
	// DealtBytes limits the size of a range of shards that is distributed by group
	// together. A larger range computes common prefixes less often, but each share of
	// the range reads each of its shards.
	DealtBytes = 256 << 20
)
