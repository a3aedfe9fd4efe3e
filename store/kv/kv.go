// Package kv is the contract between the records (store/records) and their backends
// (store/kv/bolt, store/kv/redis, store/kv/mem): transactions over tables of keys and
// values. It does not know the meaning of the tables. Package kvtest tests backends
// against the contract.
//
// # Rules
//
//  1. A table is a set of keys in byte order. The first write to a table creates the
//     table. A key has 1 to MaxKey bytes.
//  2. Each value carries the id of the transaction that wrote it. Ids grow in the order of
//     commits.
//  3. Get adds a key to the read set, even when the key has no value. A transaction commits
//     only if no other transaction has written a key of its read set since the read, and if
//     each session that AreAlive reported as alive is still alive. Otherwise Update runs its
//     function again, even when the function returned an error: an error counts only if all
//     reads saw the tables at one moment.
//  4. A scan adds nothing to the read set. For an exact result, every writer of the scanned
//     keys must also write one guard key, and the scanning transaction must Get that key
//     before the scan, or Prefetch it before the scan and Get it after. A scan of several ranges
//     sees the tables at one moment.
//  5. A transaction sees its own Put and Delete in Get, but not in Scan.
//  6. AddToCounters reads nothing: two transactions that add to the same key do not
//     conflict. A key that AddToCounters writes is never written by Put.
//  7. Now is the backend's clock at the start of the transaction. The same clock decides when
//     sessions expire.
//  8. Each value carries a checksum of its table, its key and its bytes. Reads check it. A
//     mismatch is ErrDamaged and affects only that value.
//
// # Guard keys of the records
//
// These are the guard keys of the scans that must be exact:
//
//	parts of a job          the header of the job (table jobs): every commit of parts writes it
//	due deliveries of an    the key of the endpoint in table endpoints: every write of a
//	endpoint                delivery writes it
//	reservations of an      the key of the account in table granted, and the headers of the
//	account                 jobs with reservations: a commit of parts writes the header of
//	                        its job in the transaction that adds to the ledger
//	expired idempotency     the key itself, read before it is removed
//	keys
//
// All other scans are for lists, which may be slightly out of date.
package kv

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rowmill/rowmill/store"
)

// ErrViewWrites is the error of a View whose function writes.
var ErrViewWrites = errors.New("a view must not write")

// ErrClosed is the error that every method of a backend returns after Close.
var ErrClosed = errors.New("record store is closed")

// MaxKey is the longest key in bytes. Several names of store.MaxName bytes and separators
// fit into such a key.
const MaxKey = 8 << 10

// A Table is the name of a table.
type Table string

// A Backend stores tables, and the sessions of nodes. All methods are safe for
// concurrent use.
type Backend interface {
	store.Sessions

	// View calls read, possibly several times. Only the last call counts: all reads of
	// this call see the tables at one moment. read must not write.
	View(ctx context.Context, read func(Tx) error) error

	// Update runs a transaction. run may be called several times, so it must set its
	// results again in each call. When run returns an error, nothing is written and
	// Update returns the error. When run returns nil, Update returns after all writes
	// are durable.
	Update(ctx context.Context, run func(Tx) error) error

	// Time, Ping, ConfirmPrimary and Close have the same contract as in store.Store.
	Time(ctx context.Context) (time.Time, error)
	Ping(ctx context.Context) error
	ConfirmPrimary(ctx context.Context) error
	Close() error
}

// A Tx is one run of a transaction. The Tx and the values that it returns are valid
// until the function that received it returns.
type Tx interface {
	// Get returns the value of a key, or nil when the key has none. An empty value is
	// not nil.
	Get(t Table, key []byte) ([]byte, error)

	// IsAbsent reports whether a key has no value. Like Get, it adds the key to the read
	// set. Use it for a key that almost never has a value: a backend may assume that there
	// is no value, and check this at the commit.
	IsAbsent(t Table, key []byte) (bool, error)

	// Prefetch announces keys that the transaction will Get. A backend on a server then reads
	// these keys in the same request as the next Get or Scan.
	Prefetch(t Table, keys ...[]byte)

	// Scan iterates over the entries of ranges, one range after the other. A damaged
	// entry comes with ErrDamaged and without a value, and the scan continues. Any
	// other error ends the scan.
	Scan(ranges ...Range) iter.Seq2[Entry, error]

	// Put writes a value, Delete removes a key. An invalid argument fails the
	// transaction.
	Put(t Table, key, value []byte)
	Delete(t Table, key []byte)

	// AddToCounters adds the numbers in amounts to the counters under a key; see
	// DecodeCounters. Missing counters are zero. A sum that overflows int64 becomes the
	// limit of int64.
	AddToCounters(t Table, key []byte, amounts ...int64)

	// AreAlive reports which sessions exist and have not expired.
	AreAlive(sessions ...string) (alive []bool, err error)

	// Now returns the backend's clock at the start of the run.
	Now() time.Time
}

// A Range holds the keys of a table from From, included, to To, excluded. If To is nil,
// the range has no end.
type Range struct {
	Table    Table
	From, To []byte
	Reverse  bool // from the last key to the first
	Limit    int  // largest number of entries that a scan of this range yields; 0 for all
}

// RestAfter returns the rest of a range after key, in the direction of the scan. Use it to
// continue a scan that ended at key.
func (r Range) RestAfter(key []byte) Range {
	if r.Reverse {
		r.To = append([]byte(nil), key...)
	} else {
		r.From = append(append([]byte(nil), key...), 0)
	}
	return r
}

// PrefixRange returns the range of the keys that begin with a prefix.
func PrefixRange(t Table, prefix []byte) Range {
	return Range{Table: t, From: prefix, To: PrefixEnd(prefix)}
}

// PrefixEnd returns the first key after all keys that begin with prefix; nil when there is
// none.
func PrefixEnd(prefix []byte) []byte {
	for end := len(prefix); end > 0; end-- {
		if prefix[end-1] < 0xff {
			after := append([]byte(nil), prefix[:end]...)
			after[end-1]++
			return after
		}
	}
	return nil
}

// An Entry is a key with its value.
type Entry struct {
	Table Table
	Key   []byte
	Value []byte
	Tx    uint64 // the id of the transaction that wrote the value
}

// A DamagedError names a value with a wrong checksum. It wraps ErrDamaged.
type DamagedError struct {
	Table Table
	Key   []byte
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("the checksum of key %q in table %s is wrong: %v", e.Key, e.Table, store.ErrDamaged)
}

func (e *DamagedError) Unwrap() error { return store.ErrDamaged }
