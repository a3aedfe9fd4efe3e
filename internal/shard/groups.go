package shard

// Rows whose texts begin in the same way form a group. A separate object has one byte
// per row, the group, for the first rows of the input. Groups only decide which rows
// run near each other: a job without groups has the same result.
const (
	// Groups is the largest number of groups, without group 0. Group 0 has all rows
	// that are in no other group.
	Groups = 255
	// PartitionBytes is the largest size in bytes of a range of shards. The owner
	// divides the rows of a range by group into shares for workers. With larger ranges,
	// servers compute a common prefix less often, but a worker reads all shards of the
	// range for each share.
	PartitionBytes = 256 << 20
)
