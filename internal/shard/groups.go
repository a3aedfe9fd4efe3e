package shard

// Rows of an input may have groups, told by the beginnings of their texts: a byte
// for each of the first rows of the input, in an object of their own. They say
// only which rows should run near one another: a job without them has the same
// result.
const (
	// Groups is the number of groups, beside group 0 of rows that begin like no
	// other.
	Groups = 255
	// DealtBytes bounds the shards in a row whose rows are dealt by groups
	// together. What many texts begin with is computed once for each such block,
	// and each of its shards is read once for each share into which the block is
	// dealt.
	DealtBytes = 256 << 20
)
