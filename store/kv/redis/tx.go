package redis

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	driver "github.com/redis/go-redis/v9"

	"github.com/rowmill/rowmill/store/kv"
)

// A tx is one run of a transaction.
type tx struct {
	kv.WriteSet
	ctx     context.Context
	backend *Backend
	now     time.Time
	// optimistic makes the transaction use cached values and local leases without a
	// request; the commit verifies them.
	optimistic    bool
	read          map[kv.TableKey][]byte // stored bytes of each key that was read; nil for a key without a value
	assumedAbsent map[kv.TableKey]bool   // keys of read that were assumed to be absent, and not read
	wanted        []kv.TableKey          // keys to read with the next request
	trips         int                    // number of answers that contained values, plus unchecked for each unverified value
	alive         []string
}

// unchecked is the amount that is added to trips for a value that came from the cache or
// was assumed to be absent. It forces a check at the end, even when nothing is written.
const unchecked = 2

// Get returns the value of a key.
func (t *tx) Get(table kv.Table, key []byte) ([]byte, error) {
	if value, written := t.WriteSet.Get(table, key); written {
		return value, nil
	}
	at := kv.TableKey{Table: table, Key: string(key)}
	if _, read := t.read[at]; !read {
		if err := t.fetch(at); err != nil {
			return nil, err
		}
	}
	return unsealStored(at, t.read[at])
}

// IsAbsent reports whether a key has no value. It may assume this without a read; the
// commit then verifies the assumption.
func (t *tx) IsAbsent(table kv.Table, key []byte) (bool, error) {
	at := kv.TableKey{Table: table, Key: string(key)}
	_, read := t.read[at]
	if _, written := t.WriteSet.Get(table, key); t.optimistic && !read && !written {
		t.read[at], t.assumedAbsent[at] = nil, true
		t.trips += unchecked
	}
	value, err := t.Get(table, key)
	return value == nil, err
}

// Prefetch adds keys to the next request.
func (t *tx) Prefetch(table kv.Table, keys ...[]byte) {
	for _, key := range keys {
		t.wanted = append(t.wanted, kv.TableKey{Table: table, Key: string(key)})
	}
}

// unsealStored checks the checksum in the stored bytes of a key and returns the value; nil if
// stored is nil.
func unsealStored(at kv.TableKey, stored []byte) ([]byte, error) {
	if stored == nil {
		return nil, nil
	}
	_, value, err := kv.Unseal(at.Table, []byte(at.Key), stored)
	return value, err
}

// fetch reads the key first and all keys in t.wanted in one request.
func (t *tx) fetch(first kv.TableKey) error {
	t.wanted = append(t.wanted, first)
	_, err := t.readWanted()
	return err
}

// readWanted reads ranges and the keys in t.wanted in one request. If t.optimistic is set, it
// does not request keys that are in the cache.
func (t *tx) readWanted(ranges ...kv.Range) (scans []any, err error) {
	var gets []kv.TableKey
	for _, at := range t.wanted {
		if _, read := t.read[at]; read || slices.Contains(gets, at) {
			continue
		}
		if stored, known := t.backend.valueCache.Get(at); known && t.optimistic {
			t.read[at], t.trips = stored, t.trips+unchecked
			continue
		}
		gets = append(gets, at)
	}
	t.wanted = nil
	if len(gets)+len(ranges) == 0 {
		return nil, nil
	}
	got, err := t.backend.runScript(t.ctx, scriptRequest{gets: gets, scans: ranges})
	if err != nil {
		return nil, err
	}
	if len(gets) > 0 {
		t.trips++
	}
	for i, at := range gets {
		stored, _ := got.gets[i].(string)
		t.read[at] = []byte(stored)
		if got.gets[i] == nil {
			t.read[at] = nil
		}
	}
	return got.scans, nil
}

// These are the sizes of the chunks, in entries, in which a range without a small limit is
// read. The first chunk is small, because many scans stop early.
const (
	firstChunk = 64
	mostChunk  = 4096
)

// Scan iterates over the entries of ranges. Several ranges are read in one request.
func (t *tx) Scan(ranges ...kv.Range) iter.Seq2[kv.Entry, error] {
	return func(yield func(kv.Entry, error) bool) {
		if len(ranges) == 1 && (ranges[0].Limit == 0 || ranges[0].Limit > mostChunk) {
			t.scanInChunks(ranges[0], yield)
			return
		}
		scans, err := t.readWanted(ranges...)
		if err != nil {
			yield(kv.Entry{}, err)
			return
		}
		for i, found := range scans {
			list, _ := found.([]any)
			if _, more := yieldEntries(ranges[i].Table, list, yield); !more {
				return
			}
		}
	}
}

// scanInChunks iterates over a range that may have many entries.
func (t *tx) scanInChunks(r kv.Range, yield func(kv.Entry, error) bool) {
	left := cmp.Or(r.Limit, math.MaxInt)
	for chunk := firstChunk; left > 0; chunk = min(4*chunk, mostChunk) {
		r.Limit = min(chunk, left)
		scans, err := t.readWanted(r)
		if err != nil {
			yield(kv.Entry{}, err)
			return
		}
		list, _ := scans[0].([]any)
		last, more := yieldEntries(r.Table, list, yield)
		if !more || len(list) < 2*r.Limit {
			return
		}
		r, left = r.RestAfter(last), left-r.Limit
	}
}

// yieldEntries passes keys with their stored values to yield, and reports whether yield
// wants more.
func yieldEntries(table kv.Table, list []any, yield func(kv.Entry, error) bool) (last []byte, more bool) {
	for i := 0; i+1 < len(list); i += 2 {
		key, _ := list[i].(string)
		stored, there := list[i+1].(string)
		last = []byte(key)
		if !there {
			continue
		}
		id, value, err := kv.Unseal(table, last, []byte(stored))
		if !yield(kv.Entry{Table: table, Key: last, Value: value, Tx: id}, err) {
			return last, false
		}
	}
	return last, true
}

// AreAlive reports whether sessions are alive.
func (t *tx) AreAlive(sessions ...string) (alive []bool, err error) {
	alive = make([]bool, len(sessions))
	var ask []int
	for i, session := range sessions {
		if alive[i] = t.optimistic && t.backend.isProbablyAlive(session); !alive[i] && session != "" {
			ask = append(ask, i)
		}
	}
	if len(ask) > 0 {
		if err := t.backend.retryCall(t.ctx, false, func(ctx context.Context) error {
			_, err := t.backend.client.Pipelined(ctx, func(p driver.Pipeliner) error {
				found := make([]*driver.IntCmd, len(ask))
				for n, i := range ask {
					found[n] = p.Exists(ctx, t.backend.sessionKey(sessions[i]))
				}
				_, err := p.Exec(ctx)
				for n, i := range ask {
					alive[i] = found[n].Val() == 1
				}
				return err
			})
			return err
		}); err != nil {
			return nil, fmt.Errorf("read sessions: %w", err)
		}
	}
	for i, session := range sessions {
		if alive[i] {
			t.alive = append(t.alive, session)
		}
	}
	return alive, nil
}

// Now estimates the server's clock at the start of the run.
func (t *tx) Now() time.Time { return t.now }
