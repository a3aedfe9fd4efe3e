package shard

import "github.com/rowmill/rowmill"

// A Block has some consecutive rows of a shard in memory. It does not change and is
// safe for concurrent use.
type Block struct {
	First int   // number of the block's first row, counted from the shard's first row
	Bytes int64 // approximate size in memory

	texts  []string
	ids    []rowmill.ID // nil in a shard without ids
	fields []string     // nil in a shard without fields
}

// Rows returns the number of rows in the block.
func (b *Block) Rows() int { return len(b.texts) }

// Text returns the text of a row. row is counted from the shard's first row, as in
// Reader.BlockOf. The text shares its memory with the whole block.
func (b *Block) Text(row int) string { return b.texts[row-b.First] }

// Row returns a row. row is counted from the shard's first row; first is the index of
// the shard's first row in the input.
func (b *Block) Row(first int64, row int) rowmill.Row {
	r := rowmill.Row{Index: first + int64(row), Text: b.Text(row), ID: b.ID(row)}
	if b.fields != nil {
		r.Fields = b.fields[row-b.First]
	}
	return r
}

// ID returns the id of a row. row is counted from the shard's first row. The id is null
// in a shard without ids.
func (b *Block) ID(row int) rowmill.ID {
	if b.ids == nil {
		return rowmill.ID{}
	}
	return b.ids[row-b.First]
}
