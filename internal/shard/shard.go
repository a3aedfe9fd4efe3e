// Package shard is the format in which the pipeline hands input rows from
// ingest to workers: an object of consecutive rows, bounded in rows and bytes,
// read by blocks or as a whole. It knows nothing of where rows come from or go
// to.
//
// A shard object is, in order: the magic "RMSHARD1"; blocks of rows; the index
// of the blocks; and a footer of fixed size.
//
//	row     uvarint byte length and the text; then, in a shard with ids, one
//	        kind byte and the id's value: uvarint length and text for a string,
//	        or the bytes that a Parquet file had for a value of another type,
//	        8 bytes for a number, nothing for null, one byte for a boolean
//	        and in a shard with fields: uvarint length and the fields
//	block   its rows one behind the other, compressed: one Zstandard frame, which
//	        says how many bytes they are, or, where rows are long, the byte 1 and
//	        one Snappy block
//	index   per block: offset (8 bytes), size (4), rows (4), CRC-32C of the
//	        block (4), both as it is stored
//	footer  flags (4; bit 0: the shard has ids, bit 1: fields), blocks (4), rows
//	        (8), index of the first row within the input (8), CRC-32C of the index
//	        and the footer up to here (4), the magic again
//
// Numbers are little-endian.
package shard

import (
	"errors"
	"hash/crc32"
)

const (
	magic      = "RMSHARD1"
	indexEntry = 8 + 4 + 4 + 4
	footerSize = 4 + 4 + 8 + 8 + 4 + len(magic)

	flagIDs    = 1 << 0
	flagFields = 1 << 1
	knownFlags = flagIDs | flagFields

	// blockRows and blockBytes end a block, whichever comes first. A block is
	// what a worker holds in memory to read one row of it, so it is small; its
	// index entry and checksum still cost nothing per row.
	blockRows  = 1024
	blockBytes = 256 << 10
)

// maxSize bounds a shard object, in bytes: what a 32-bit machine can map.
// Ingest cuts shards two orders of magnitude sooner.
const maxSize = 1<<31 - 1

// ErrCorrupt says that bytes are not a shard, or not all of one, or were
// changed since they were written.
var ErrCorrupt = errors.New("corrupt shard")

// castagnoli is CRC-32C, which amd64 and arm64 compute in hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)
