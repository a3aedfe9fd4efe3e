package assign

import (
	"fmt"

	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
)

// A PartLedger lists the parts of a job that the store has recorded.
type PartLedger struct {
	Totals store.RowTotals // sums over all recorded parts
	Rows   int64           // number of rows of the job

	shards []shardParts
	open   int // number of shards that do not have a complete part yet
}

// shardParts has the recorded parts of one shard.
type shardParts struct {
	rows     int64 // number of rows of the shard
	parts    []store.Part
	complete bool // one part contains all rows of the shard
}

// NewPartLedger returns the ledger of a job that has these shards and these recorded parts.
// It returns an error if a part belongs to no shard of the job.
func NewPartLedger(shards []shard.ManifestEntry, parts []store.Part) (*PartLedger, error) {
	l := &PartLedger{shards: make([]shardParts, len(shards)), open: len(shards)}
	for i, info := range shards {
		l.shards[i].rows = int64(info.Rows)
		l.Rows += int64(info.Rows)
	}
	for _, p := range parts {
		if p.Shard < 0 || p.Shard >= len(shards) {
			return nil, fmt.Errorf("part %s: the job has no shard %d", p.Key, p.Shard)
		}
		l.Add(p)
	}
	return l, nil
}

// Add adds a part that the store has recorded.
func (l *PartLedger) Add(p store.Part) {
	l.Totals = l.Totals.Plus(p.Totals)
	if p.Complete {
		l.RecordCompletePart(p)
		return
	}
	s := &l.shards[p.Shard]
	s.parts = append(s.parts, p)
}

// RecordCompletePart records that part p contains all rows of its shard. It replaces all other
// parts of the shard.
func (l *PartLedger) RecordCompletePart(p store.Part) {
	s := &l.shards[p.Shard]
	if !s.complete {
		l.open--
	}
	s.complete, s.parts = true, []store.Part{p}
}

// CountShards returns the number of shards of the job.
func (l *PartLedger) CountShards() int { return len(l.shards) }

// Parts returns the recorded parts of a shard.
func (l *PartLedger) Parts(shard int) []store.Part { return l.shards[shard].parts }

// Mergeable reports whether the parts of a shard can be merged: together they have all
// rows of the shard, and no single part has all rows.
func (l *PartLedger) Mergeable(shard int) bool {
	s := &l.shards[shard]
	rows := s.rows
	for _, p := range s.parts {
		rows -= p.Rows
	}
	return !s.complete && rows == 0
}

// IsShardComplete reports whether a single part contains all rows of a shard.
func (l *PartLedger) IsShardComplete(shard int) bool { return l.shards[shard].complete }

// IsComplete reports whether every shard has a complete part.
func (l *PartLedger) IsComplete() bool { return l.open == 0 }

// NewMergedPart returns the record of the complete part that was merged from the given parts.
func NewMergedPart(key string, size int64, parts []store.Part) store.Part {
	p := store.Part{Key: key, Shard: parts[0].Shard, Complete: true, Size: size}
	for _, part := range parts {
		p.Rows += part.Rows
		p.Totals = p.Totals.Plus(part.Totals)
	}
	return p
}
