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
	Fields []string `json:"fields,omitempty"` // names of the columns that rowmill.Row.Fields has the values of
	Rows   int64    `json:"rows"`
	Shards []Info   `json:"shards"`
	Size   Size     `json:"size"`             // of the rows that the job runs, copies left out
	Taken  int64    `json:"taken,omitempty"`  // rows that another job has run
	Copies int64    `json:"copies,omitempty"` // rows that get the answer of an equal row instead of running; but for an estimate an object says which
	Groups bool     `json:"groups,omitempty"` // there is an object that says which rows begin alike
}

// An Info describes one shard.
type Info struct {
	First int64 `json:"first"` // index of its first row
	Rows  int   `json:"rows"`
	Bytes int64 `json:"bytes"` // of its rows in memory, about
}

// A Size is what counting the tokens of an input brings.
type Size struct {
	Tokens       int64 `json:"tokens"`        // of all prompts, as far as they fit the context; the most they can have where that was enough to know
	SampleRows   int64 `json:"sample_rows"`   // the first rows, whose prompts reach the size of a sample
	SampleTokens int64 `json:"sample_tokens"` // of them
}

// Inline is the manifest of rows that ride in a job's record and need no
// objects: they are one shard, which FromTexts reads.
func Inline(texts []string) Manifest {
	info := Info{Rows: len(texts)}
	for _, text := range texts {
		info.Bytes += int64(len(text))
	}
	return Manifest{Rows: int64(info.Rows), Shards: []Info{info}}
}

// Cut is a short name of which rows are in which shard.
func (m Manifest) Cut() string {
	sum := sha256.New()
	for _, s := range m.Shards {
		place := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(s.First)), uint64(s.Rows)) //nolint:gosec // neither is negative
		sum.Write(place)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// FirstRows is the manifest of the first n rows.
func (m Manifest) FirstRows(n int64) Manifest {
	first := Manifest{IDType: m.IDType, Fields: m.Fields, Size: m.Size}
	for _, s := range m.Shards {
		if s.First >= n {
			break
		}
		if over := s.First + int64(s.Rows) - n; over > 0 {
			s.Bytes -= s.Bytes * over / int64(s.Rows)
			s.Rows -= int(over)
		}
		first.Rows += int64(s.Rows)
		first.Shards = append(first.Shards, s)
	}
	return first
}
