// Package shard is the format in which the pipeline hands input rows from
// ingest to workers: an object of consecutive rows, bounded in rows and bytes,
// read by block or all at once. It does not know where rows come from or go.
//
// A shard object is, in order: the magic "RMSHARD1"; blocks of rows; the index
// of the blocks; and a footer of fixed size.
//
//	row     uvarint byte length and the text; then, in a shard with ids, one
//	        kind byte and the id's value: uvarint length and text for a string,
//	        or the bytes that a Parquet file had for a value of another type,
//	        8 bytes for a number, nothing for null, one byte for a boolean
//	        and in a shard with fields: uvarint length and the fields
//	block   its rows one after the other, compressed: one Zstandard frame with its
//	        content size or, if rows are long, the byte 1 and one Snappy block
//	index   per block: offset (8 bytes), size (4), rows (4), CRC-32C of the
//	        block (4); size and CRC are of the stored block
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

	// A block ends when it has blockRows rows or blockBytes bytes. A worker has a whole
	// block in memory to read one row, so blocks are small, but large enough that index
	// entry and checksum cost almost nothing per row.
	blockRows  = 1024
	blockBytes = 256 << 10
)

// maxSize is the largest size of a shard object in bytes: the limit of memory mappings
// on 32-bit machines. Ingest ends shards at a hundredth of that size.
const maxSize = 1<<31 - 1

// ErrCorrupt means that bytes are not a shard, that the end of the shard is missing, or
// that the shard was changed after it was written.
var ErrCorrupt = errors.New("corrupt shard")

// castagnoli is the table for CRC-32C, which amd64 and arm64 compute in hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)
