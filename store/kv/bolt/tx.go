package bolt

import (
	"bytes"
	"iter"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/rowmill/rowmill/store/kv"
)

// A tx is one kv transaction within a bbolt transaction. Its writes are applied after the
// function of the transaction has succeeded.
type tx struct {
	kv.WriteSet
	btx      *bbolt.Tx
	sessions *kv.Sessions
	now      time.Time
	cursors  []cursor // used only in a view
}

// A cursor keeps the bbolt cursor of a table, so that later reads of the table in a
// view allocate nothing.
type cursor struct {
	table kv.Table
	at    *bbolt.Cursor
}

// readStored returns the stored bytes of a key, nil for none.
func (t *tx) readStored(table kv.Table, key []byte) []byte {
	i := slices.IndexFunc(t.cursors, func(c cursor) bool { return c.table == table })
	if i < 0 {
		bucket := t.btx.Bucket([]byte(table))
		switch {
		case bucket == nil:
			return nil
		case t.btx.Writable():
			return bucket.Get(key)
		}
		i = len(t.cursors)
		t.cursors = append(t.cursors, cursor{table, bucket.Cursor()})
	}
	if found, value := t.cursors[i].at.Seek(key); bytes.Equal(found, key) {
		return value
	}
	return nil
}

// Get returns the value of a key.
func (t *tx) Get(table kv.Table, key []byte) ([]byte, error) {
	if value, written := t.WriteSet.Get(table, key); written {
		return value, nil
	}
	stored := t.readStored(table, key)
	if stored == nil {
		return nil, nil
	}
	_, value, err := kv.Unseal(table, key, stored)
	return value, err
}

// IsAbsent reports whether a key has no value.
func (t *tx) IsAbsent(table kv.Table, key []byte) (bool, error) {
	value, err := t.Get(table, key)
	return value == nil, err
}

// Prefetch does nothing, because reads of the file are cheap.
func (t *tx) Prefetch(kv.Table, ...[]byte) {}

// Scan iterates over the entries of ranges.
func (t *tx) Scan(ranges ...kv.Range) iter.Seq2[kv.Entry, error] {
	return func(yield func(kv.Entry, error) bool) {
		for _, r := range ranges {
			if !t.scan(r, yield) {
				return
			}
		}
	}
}

// scan iterates over one range and reports whether yield wants more.
func (t *tx) scan(r kv.Range, yield func(kv.Entry, error) bool) bool {
	bucket := t.btx.Bucket([]byte(r.Table))
	if bucket == nil {
		return true
	}
	c := bucket.Cursor()
	first, next := rangeSteps(c, r)
	key, stored := first()
	for n := 0; isInRange(r, key) && (r.Limit == 0 || n < r.Limit); n++ {
		id, value, err := kv.Unseal(r.Table, key, stored)
		if !yield(kv.Entry{Table: r.Table, Key: key, Value: value, Tx: id}, err) {
			return false
		}
		key, stored = next()
	}
	return true
}

// rangeSteps returns two functions that move a cursor: to the first key of a range, and to the
// next key. For a reverse range, first is the last key.
func rangeSteps(c *bbolt.Cursor, r kv.Range) (first, next func() (key, value []byte)) {
	if !r.Reverse {
		return func() ([]byte, []byte) { return c.Seek(r.From) }, c.Next
	}
	return func() ([]byte, []byte) {
		if r.To == nil {
			return c.Last()
		}
		if beyond, _ := c.Seek(r.To); beyond == nil {
			return c.Last()
		}
		return c.Prev()
	}, c.Prev
}

// isInRange reports whether key, which a cursor has reached from the start of the range, is
// still in the range.
func isInRange(r kv.Range, key []byte) bool {
	switch {
	case key == nil:
		return false
	case r.Reverse:
		return bytes.Compare(key, r.From) >= 0
	}
	return r.To == nil || bytes.Compare(key, r.To) < 0
}

// AddToCounters adds amounts to the counters of a key. It may read the counters first,
// because transactions run one after the other.
func (t *tx) AddToCounters(table kv.Table, key []byte, amounts ...int64) {
	value, err := t.Get(table, key)
	if err == nil {
		value, err = kv.AddCounters(value, amounts...)
	}
	if err != nil {
		t.WriteSet.Fail(err)
		return
	}
	t.WriteSet.Put(table, key, value)
}

// AreAlive reports whether sessions are alive.
func (t *tx) AreAlive(sessions ...string) (alive []bool, err error) {
	for _, session := range sessions {
		alive = append(alive, t.sessions.IsAlive(session))
	}
	return alive, nil
}

// Now returns the clock at the start of the transaction.
func (t *tx) Now() time.Time { return t.now }

// apply adds the writes of the transaction to the bbolt transaction, and reports
// whether there are any.
func (t *tx) apply() (wrote bool, err error) {
	list, err := t.WriteSet.All()
	if err != nil || len(list) == 0 {
		return false, err
	}
	id, err := t.btx.Bucket(bucketForm).NextSequence()
	if err != nil {
		return false, err
	}
	for _, w := range list {
		bucket, err := t.btx.CreateBucketIfNotExists([]byte(w.Table))
		if err == nil && w.Value == nil {
			err = bucket.Delete(w.Key)
		} else if err == nil {
			err = bucket.Put(w.Key, kv.Seal(w.Table, w.Key, id, w.Value))
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}
