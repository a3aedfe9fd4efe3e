// Package kv is the contract between the records (store/records) and the engines that keep
// them (store/kv/bolt, store/kv/redis, store/kv/mem): transactions over tables of keys and
// values. It knows nothing of what the records are for. Package kvtest holds an engine to the contract.
//
// # Rules
//
//  1. A table is a set of keys in byte order, made by its first write. A key has 1 to MaxKey
//     bytes.
//  2. Each value carries the id of the transaction that wrote it. Ids grow in the order of
//     commits.
//  3. Get puts a key into the read set, whether it has a value or not. A transaction commits
//     if nobody has written a key of its read set since it was read, and if each session that
//     Alive called alive still is. Else Update runs its function again, also where the
//     function has returned an error: an error counts only if all that was read is of one
//     moment.
//  4. A scan is a hint: it puts nothing into the read set. What must be exact hangs on a key
//     that every writer of the scanned keys writes too, and that the transaction gets before
//     it scans, or wants before and gets then. A scan over several ranges sees one moment.
//  5. A transaction sees its own Put and Delete in Get, and never in Scan.
//  6. Add needs no read: transactions that add to the same key do not conflict. A key that
//     Add writes is never written by Put.
//  7. Now is the engine's clock when the transaction began. The same clock judges sessions.
//  8. Each value carries a checksum over its table, its key and its bytes, which is checked
//     where the value is read. A mismatch is ErrDamaged, and costs that value alone.
//
// # What follows for the records
//
// The proof that an operation is exact names the key for each scan:
//
//	parts of a job          the header of the job (table jobs): each commit of parts writes it
//	deliveries of an        the key of the endpoint in table endpoints: each write of a
//	endpoint that are due   delivery writes it
//	reservations of an      the key of the account in table granted, and the headers of the
//	account                 jobs that have some: a commit of parts writes the header of its
//	                        job in the transaction that adds to the ledger
//	expired idempotency     the key itself, read before it is removed
//	keys
//
// All other scans answer lists, which may be a moment old.
package kv

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rowmill/rowmill/store"
)

// ErrViewWrites is returned by a View whose function writes.
var ErrViewWrites = errors.New("a view must not write")

// MaxKey is the longest key in bytes: some names of store.MaxName and what stands between.
const MaxKey = 8 << 10

// A Table is the name of a table.
type Table string

// An Engine keeps tables, and the sessions of nodes. All methods are safe for concurrent use.
type Engine interface {
	store.Sessions

	// View runs read, which may run several times: all that it reads in the run that counts
	// is of one moment. It must not write.
	View(ctx context.Context, read func(Tx) error) error

	// Update runs a transaction. run may run several times, so it must set its results
	// anew in each run. Where run returns an error nothing is written, and Update returns
	// that error. Where it returns nil, Update returns once all writes are durable.
	Update(ctx context.Context, run func(Tx) error) error

	// Time, Ping, Confirm and Close are those of store.Store.
	Time(ctx context.Context) (time.Time, error)
	Ping(ctx context.Context) error
	Confirm(ctx context.Context) error
	Close() error
}

// A Tx is one run of a transaction. It is good until the function that got it returns, and so
// are the values that it returns.
type Tx interface {
	// Get returns the value of a key, or nil where the key has none. An empty value is not
	// nil.
	Get(t Table, key []byte) ([]byte, error)

	// Absent reports whether a key has no value, as Get would. It is for a key that has none
	// almost always: an engine may take that for granted until the commit.
	Absent(t Table, key []byte) (bool, error)

	// Want says that the transaction will get some keys: an engine that asks a server reads
	// them with the next key or ranges, in one answer.
	Want(t Table, keys ...[]byte)

	// Scan goes over the entries of ranges, one range after the other. An entry whose value
	// is damaged comes with ErrDamaged and without a value, and the scan goes on. After any
	// other error the scan is over.
	Scan(ranges ...Range) iter.Seq2[Entry, error]

	// Put writes a value, Delete removes a key. An error in what they are given is the
	// transaction's.
	Put(t Table, key, value []byte)
	Delete(t Table, key []byte)

	// Add adds to the counters under a key, which Counters reads. A key without a value has
	// counters of zero. A sum beyond an int64 stays at its end.
	Add(t Table, key []byte, more ...int64)

	// Alive reports for each session whether it exists and has not expired.
	Alive(sessions ...string) (alive []bool, err error)

	// Now is the engine's clock.
	Now() time.Time
}

// A Range is the keys of a table from From on and below To. A nil To has no end.
type Range struct {
	Table    Table
	From, To []byte
	Reverse  bool // from the last key down
	Limit    int  // the most entries that a scan yields of the range; 0 for all
}

// Beyond is the part of a range that a scan has left once it has yielded a key.
func (r Range) Beyond(key []byte) Range {
	if r.Reverse {
		r.To = append([]byte(nil), key...)
	} else {
		r.From = append(append([]byte(nil), key...), 0)
	}
	return r
}

// Prefix is the range of the keys that begin with a prefix.
func Prefix(t Table, prefix []byte) Range { return Range{Table: t, From: prefix, To: After(prefix)} }

// After is the first key behind all that begin with a prefix; nil where there is none.
func After(prefix []byte) []byte {
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

// A DamagedError names a value whose checksum is wrong. It is ErrDamaged.
type DamagedError struct {
	Table Table
	Key   []byte
}

// Error says what to do, too.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("the checksum of key %q in table %s is wrong: %v", e.Key, e.Table, store.ErrDamaged)
}

// Unwrap returns store.ErrDamaged.
func (e *DamagedError) Unwrap() error { return store.ErrDamaged }
