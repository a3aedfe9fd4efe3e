package mem

import (
	"bytes"
	"iter"
	"slices"
	"time"

	"github.com/rowmill/rowmill/store/kv"
)

// find returns the index of a key in sorted entries. If the key is missing, it returns the
// index where the key belongs, and false.
func find(entries []kv.Entry, key []byte) (int, bool) {
	return slices.BinarySearchFunc(entries, key, func(e kv.Entry, key []byte) int { return bytes.Compare(e.Key, key) })
}

// get returns the value of a key, nil for none.
func (s TableSnapshot) get(t kv.Table, key []byte) ([]byte, error) {
	i, found := find(s.tables[t], key)
	if !found {
		return nil, nil
	}
	_, value, err := kv.Unseal(t, key, s.tables[t][i].Value)
	return value, err
}

// lastWriterID returns the id of the transaction that wrote a key, 0 for none.
func (s TableSnapshot) lastWriterID(at kv.TableKey) uint64 {
	if i, found := find(s.tables[at.Table], []byte(at.Key)); found {
		return s.tables[at.Table][i].Tx
	}
	return 0
}

// write applies a write to s, a new state that no transaction reads yet.
func (s TableSnapshot) write(w kv.Write) {
	entries := s.tables[w.Table]
	i, found := find(entries, w.Key)
	if found {
		entries = slices.Concat(entries[:i], entries[i+1:])
	}
	if w.Value != nil {
		e := kv.Entry{Table: w.Table, Key: w.Key, Value: kv.Seal(w.Table, w.Key, s.last, w.Value), Tx: s.last}
		entries = slices.Concat(entries[:i], []kv.Entry{e}, entries[i:])
	}
	s.tables[w.Table] = entries
}

// A tx is one run of a transaction on the state at its start.
type tx struct {
	kv.WriteSet
	backend *Backend
	state   TableSnapshot
	now     time.Time
	read    map[kv.TableKey]uint64
	alive   []string
}

// Get returns the value of a key.
func (t *tx) Get(table kv.Table, key []byte) ([]byte, error) {
	if value, written := t.WriteSet.Get(table, key); written {
		return value, nil
	}
	at := kv.TableKey{Table: table, Key: string(key)}
	t.read[at] = t.state.lastWriterID(at)
	return t.state.get(table, key)
}

// IsAbsent reports whether a key has no value.
func (t *tx) IsAbsent(table kv.Table, key []byte) (bool, error) {
	value, err := t.Get(table, key)
	return value == nil, err
}

// Prefetch does nothing, because all data is in memory.
func (t *tx) Prefetch(kv.Table, ...[]byte) {}

// Scan iterates over the entries of ranges.
func (t *tx) Scan(ranges ...kv.Range) iter.Seq2[kv.Entry, error] {
	return func(yield func(kv.Entry, error) bool) {
		for _, r := range ranges {
			entries := t.state.tables[r.Table]
			from, _ := find(entries, r.From)
			entries = entries[from:]
			if r.To != nil {
				to, _ := find(entries, r.To)
				entries = entries[:to]
			}
			if r.Reverse {
				entries = slices.Clone(entries)
				slices.Reverse(entries)
			}
			if r.Limit > 0 {
				entries = entries[:min(r.Limit, len(entries))]
			}
			for _, e := range entries {
				_, value, err := kv.Unseal(e.Table, e.Key, e.Value)
				e.Value = value
				if !yield(e, err) {
					return
				}
			}
		}
	}
}

// Put writes a value.
func (t *tx) Put(table kv.Table, key, value []byte) { t.WriteSet.Put(table, key, bytes.Clone(value)) }

// AreAlive reports whether sessions are alive.
func (t *tx) AreAlive(sessions ...string) (alive []bool, err error) {
	for _, session := range sessions {
		lives := t.backend.IsAlive(session)
		if lives {
			t.alive = append(t.alive, session)
		}
		alive = append(alive, lives)
	}
	return alive, nil
}

// Now returns the clock at the start of the run.
func (t *tx) Now() time.Time { return t.now }
