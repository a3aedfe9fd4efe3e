package shard

// Rows with a common start of their texts form a group. A separate object holds one
// byte per row, the group, for the first rows of the input. Groups only decide which
// rows run near each other: a job without groups has the same result.
const (
	// Groups is the number of groups. Group 0, for all other rows, is not counted.
	Groups = 255
	// PartitionBytes limits the size of a range of shards. The owner divides the rows of a
	// range by group into shares for workers. With larger ranges, servers compute a
	// common prefix less often, but a worker reads all shards of the range for each
	// share.
	PartitionBytes = 256 << 20
)
