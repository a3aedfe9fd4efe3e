package shard

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/rowmill/rowmill"
)

// A Manifest lists the shards of a job's input.
type Manifest struct {
	rowmill.IDType
	Fields []string        `json:"fields,omitempty"` // names of the columns in rowmill.Row.Fields
	Rows   int64           `json:"rows"`
	Shards []ManifestEntry `json:"shards"`
	Tokens int64           `json:"tokens"`           // tokens of all prompts that the job runs, each cut to the context, without copies; an upper bound if no exact count was needed
	Taken  int64           `json:"taken,omitempty"`  // number of rows that the job took over, with their outputs, from the job that it continues
	Copies int64           `json:"copies,omitempty"` // number of rows that get the answer of an equal row; an object lists them, except in an estimate
	Groups bool            `json:"groups,omitempty"` // whether an object with the groups of rows exists

	// Sample has the numbers of the rows in the whole input, as a Roaring bitmap, and InputRows
	// is the number of rows of the whole input. Both are empty if the job runs all rows.
	Sample    []byte `json:"sample,omitempty"`
	InputRows int64  `json:"input_rows,omitempty"`

	// Estimated is the size of the whole input, without copies. Only an estimate has it.
	Estimated InputSize `json:"estimated,omitzero"`
}

// An InputSize counts rows and the tokens of their prompts.
type InputSize struct {
	Rows   int64 `json:"rows"`
	Tokens int64 `json:"tokens"`
}

// A ManifestEntry describes one shard.
type ManifestEntry struct {
	First int64 `json:"first"` // index of the shard's first row in the input
	Rows  int   `json:"rows"`
	Bytes int64 `json:"bytes"` // approximate size of the shard's rows in memory
}

// InlineManifest returns the manifest of rows that are stored in a job's record. They form
// one shard, which NewTextReader reads.
func InlineManifest(texts []string) Manifest {
	info := ManifestEntry{Rows: len(texts)}
	for _, text := range texts {
		info.Bytes += int64(len(text))
	}
	return Manifest{Rows: int64(info.Rows), Shards: []ManifestEntry{info}}
}

// ShardHash returns a short hash of how the input is divided into shards: of the first row
// and the number of rows of each shard.
func (m Manifest) ShardHash() string {
	sum := sha256.New()
	for _, s := range m.Shards {
		place := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(s.First)), uint64(s.Rows)) //nolint:gosec // neither is negative
		sum.Write(place)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
