package actors

import (
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/shard"
	"github.com/rowmill/rowmill/store"
)

// A ledger knows which rows of a job are done. It is derived from the part
// records, by the owner, and knows no actors and no store.
type ledger struct {
	shards []shardLedger
	totals store.Totals
	rows   int64 // of the job
	open   int   // shards that are not complete
}

type shardLedger struct {
	rows     int
	done     *roaring.Bitmap // nil once the shard is complete
	parts    []store.Part
	complete bool // one part holds the whole shard
}

// newLedger replays the part records of a job with these shards.
func newLedger(shards []shard.Info, parts []store.Part) (*ledger, error) {
	l := &ledger{shards: make([]shardLedger, len(shards)), open: len(shards)}
	for i, info := range shards {
		l.shards[i] = shardLedger{rows: info.Rows, done: roaring.New()}
		l.rows += int64(info.Rows)
	}
	for _, p := range parts {
		if p.Shard < 0 || p.Shard >= len(shards) {
			return nil, fmt.Errorf("part %s: no shard %d", p.Key, p.Shard)
		}
		l.totals = l.totals.Plus(p.Totals)
		if p.Complete {
			l.complete(p)
			continue
		}
		s := &l.shards[p.Shard]
		accepted := roaring.New()
		if err := accepted.UnmarshalBinary(p.Accepted); err != nil {
			return nil, fmt.Errorf("part %s: decode accepted rows: %w", p.Key, err)
		}
		s.done.Or(accepted)
		s.parts = append(s.parts, p)
	}
	return l, nil
}

// propose turns a written part into the record to commit. It returns false
// where some of its rows are done already, and those that are not: such a part
// is dropped as a whole.
func (l *ledger) propose(w partReport) (p store.Part, open *roaring.Bitmap, ok bool) {
	s := &l.shards[w.Shard]
	if s.complete {
		return store.Part{}, roaring.New(), false
	}
	if s.done.Intersects(w.Rows.Bitmap) {
		return store.Part{}, roaring.AndNot(w.Rows.Bitmap, s.done), false
	}
	p = store.Part{
		Key: w.Key, Shard: w.Shard, Rows: int64(w.Rows.GetCardinality()), Totals: w.Totals, Size: w.Size,
	}
	s.done.Or(w.Rows.Bitmap) // proposed rows count as taken
	if p.Rows == int64(s.rows) {
		p.Complete = true
		return p, nil, true
	}
	p.Accepted, _ = w.Rows.ToBytes() // writing to memory cannot fail
	return p, nil, true
}

// has reports whether a part is recorded and counts.
func (l *ledger) has(w partReport) bool {
	return slices.ContainsFunc(l.shards[w.Shard].parts, func(p store.Part) bool { return p.Key == w.Key })
}

// keys are the keys of all parts.
func (l *ledger) keys() map[string]bool {
	keys := make(map[string]bool)
	for i := range l.shards {
		for _, p := range l.shards[i].parts {
			keys[p.Key] = true
		}
	}
	return keys
}

// committed notes that the store has recorded p.
func (l *ledger) committed(p store.Part) {
	l.totals = l.totals.Plus(p.Totals)
	if p.Complete {
		l.complete(p)
		return
	}
	s := &l.shards[p.Shard]
	s.parts = append(s.parts, p)
}

// mergeable reports whether all rows of shard n are committed in several
// parts.
func (l *ledger) mergeable(n int) bool {
	s := &l.shards[n]
	if s.complete {
		return false
	}
	var rows int64
	for _, p := range s.parts {
		rows += p.Rows
	}
	return rows == int64(s.rows)
}

// mergedPart returns the record of the complete part that parts were merged
// into.
func mergedPart(key string, size int64, parts []store.Part) store.Part {
	p := store.Part{Key: key, Shard: parts[0].Shard, Complete: true, Size: size}
	for _, part := range parts {
		p.Rows += part.Rows
		p.Totals = p.Totals.Plus(part.Totals)
	}
	return p
}

// complete notes that p holds its whole shard.
func (l *ledger) complete(p store.Part) {
	s := &l.shards[p.Shard]
	if !s.complete {
		l.open--
	}
	s.complete, s.done, s.parts = true, nil, []store.Part{p}
}

// done returns the rows of each shard that need no work, for the plan.
func (l *ledger) done() []*roaring.Bitmap {
	sets := make([]*roaring.Bitmap, len(l.shards))
	for i := range l.shards {
		s := &l.shards[i]
		switch {
		case s.complete:
			sets[i] = roaring.New()
			sets[i].AddRange(0, uint64(s.rows))
		case !s.done.IsEmpty():
			sets[i] = s.done.Clone()
		}
	}
	return sets
}

// finished reports whether every shard is complete.
func (l *ledger) finished() bool { return l.open == 0 }
