package redis

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/panics"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/store/kv"
)

// Limits of the cache of values that transactions have read or written. With this
// cache, the owner of a job can write again without a read.
const (
	knownValues = 2048
	knownBytes  = 8 << 10 // greatest size of a cached value
)

// A staleError means that a value has changed since a transaction read it. It has the key of
// the value.
type staleError struct{ kv.TableKey }

func (e *staleError) Error() string {
	return "other transactions changed the same records at the same time"
}

// conflictLocks is the number of locks for conflicting transactions.
const conflictLocks = 64

// conflictLock returns the lock for a key on which transactions of this process have
// conflicted. Transactions that hold the lock run one after the other, so that they
// conflict only with transactions of other processes.
func (e *Backend) conflictLock(at kv.TableKey) *sync.Mutex {
	return &e.locks[maphash.Comparable(e.seed, at)%conflictLocks]
}

// View runs a read transaction.
func (e *Backend) View(ctx context.Context, read func(kv.Tx) error) error {
	return e.retryConflicts(ctx, false, func(t *tx) error {
		err := read(t)
		if err == nil && t.HasWrites() {
			err = kv.ErrViewWrites
		}
		return err
	})
}

// Update runs a transaction.
func (e *Backend) Update(ctx context.Context, run func(kv.Tx) error) error {
	return e.retryConflicts(ctx, true, func(t *tx) error { return panics.Catch(func() error { return run(t) }) })
}

// retryConflicts repeats a transaction while it conflicts. The pauses grow, because the
// transactions that must run again should not slow the server down. Each time, one of the
// conflicting transactions succeeds.
func (e *Backend) retryConflicts(ctx context.Context, update bool, run func(*tx) error) error {
	var stale *staleError
	err := retry.Contention.Do(ctx, func() error {
		if stale != nil {
			lock := e.conflictLock(stale.TableKey)
			lock.Lock()
			defer lock.Unlock()
		}
		return e.runOnce(ctx, update && stale == nil, update, run)
	}, func(err error) bool { return errors.As(err, &stale) }, nil)
	if errors.As(err, &stale) {
		err = fmt.Errorf("%w: %w: try again", rowmill.ErrUnavailable, err)
	}
	return err
}

// runOnce runs a transaction once and commits it. It returns a *staleError if another
// transaction has written a key that this transaction has read, even if run itself failed.
func (e *Backend) runOnce(ctx context.Context, optimistic, update bool, run func(*tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := &tx{ctx: ctx, backend: e, now: e.now(), optimistic: optimistic, read: map[kv.TableKey][]byte{}, assumedAbsent: map[kv.TableKey]bool{}}
	own := run(t)
	list, err := t.WriteSet.All()
	if own == nil {
		own = err
	}
	writes := update && own == nil && t.HasWrites()
	if !writes && t.trips < 2 && (!optimistic || len(t.alive) == 0) {
		return own // all reads came in one answer, so they saw the tables at the same moment
	}
	r := scriptRequest{read: t.read, alive: t.alive}
	if !writes {
		_, err := e.runScript(ctx, r)
		if err != nil {
			e.dropCached(t, err)
			return err
		}
		return own
	}
	r.token, r.writes, r.adds = uuid.NewString(), list, t.Adds()
	done, err := e.runScript(ctx, r)
	if err != nil {
		e.dropCached(t, err)
		return err
	}
	e.cacheValues(t, list, done.id)
	return nil
}

// cacheValues caches the values that a transaction has read and written.
func (e *Backend) cacheValues(t *tx, list []kv.Write, id string) {
	for at, stored := range t.read {
		if !t.assumedAbsent[at] && len(stored) <= knownBytes {
			e.valueCache.Put(at, stored)
		}
	}
	for _, w := range list {
		at := kv.TableKey{Table: w.Table, Key: string(w.Key)}
		switch {
		case w.Value == nil:
			e.valueCache.Put(at, nil)
		case len(w.Value) <= knownBytes:
			stored := kv.Seal(w.Table, w.Key, 0, w.Value)
			copy(stored, id)
			e.valueCache.Put(at, stored)
		default:
			e.valueCache.Drop(at)
		}
	}
	for _, a := range t.Adds() {
		e.valueCache.Drop(a.TableKey)
	}
}

// dropCached removes from the cache the values that a failed transaction has read or may
// have written.
func (e *Backend) dropCached(t *tx, err error) {
	if stale := (*staleError)(nil); errors.As(err, &stale) {
		e.conflicts.Inc()
	}
	for at := range t.read {
		e.valueCache.Drop(at)
	}
	list, _ := t.WriteSet.All()
	for _, w := range list {
		e.valueCache.Drop(kv.TableKey{Table: w.Table, Key: string(w.Key)})
	}
}

// A scriptRequest holds the arguments of the script.
type scriptRequest struct {
	token  string
	read   map[kv.TableKey][]byte
	alive  []string
	adds   []kv.CounterAdd
	writes []kv.Write
	gets   []kv.TableKey
	scans  []kv.Range
}

// A scriptAnswer holds the result of the script.
type scriptAnswer struct {
	id          string
	gets, scans []any
}

// runScript sends a request to the script and decodes the answer.
func (e *Backend) runScript(ctx context.Context, r scriptRequest) (scriptAnswer, error) {
	args := e.args(r)
	var list []any
	err := e.retryCall(ctx, r.token != "", func(ctx context.Context) (err error) {
		list, err = script.Run(ctx, e.client, nil, args...).Slice()
		return err
	})
	if err != nil {
		return scriptAnswer{}, err
	}
	text := func(i int) string {
		if i >= len(list) {
			return ""
		}
		text, _ := list[i].(string)
		return text
	}
	switch text(0) {
	case "stale":
		return scriptAnswer{}, &staleError{kv.TableKey{Table: kv.Table(text(1)), Key: text(2)}}
	case "damaged":
		table := strings.TrimPrefix(text(1), e.tableName(""))
		return scriptAnswer{}, &kv.DamagedError{Table: kv.Table(table), Key: []byte(text(2))}
	}
	micros, err := strconv.ParseInt(text(1), 10, 64)
	if err != nil || len(list) != 5 {
		return scriptAnswer{}, fmt.Errorf("the answer of the Redis script is not valid: %q", list)
	}
	e.recordServerTime(time.UnixMicro(micros))
	a := scriptAnswer{id: text(2)}
	a.gets, _ = list[3].([]any)
	a.scans, _ = list[4].([]any)
	return a, nil
}

// args encodes a request as the arguments of the script.
func (e *Backend) args(r scriptRequest) []any {
	var args []any
	list := func(n int, of ...any) { args = append(append(args, n), of...) }
	args = append(args, e.config.Prefix, r.token)
	var checks, sessions, adds, puts, deletes, gets, scans []any
	for at, stored := range r.read {
		checks = append(checks, e.tableName(at.Table), at.Key, stored[:min(8, len(stored))])
	}
	for _, session := range r.alive {
		sessions = append(sessions, e.sessionKey(session))
	}
	for _, a := range r.adds {
		adds = append(adds, e.tableName(a.Table), a.Key, kv.KeyChecksum(a.Table, []byte(a.Key)), encodeAmounts(a.Amounts))
	}
	for _, w := range r.writes {
		if w.Value == nil {
			deletes = append(deletes, e.tableName(w.Table), w.Key)
			continue
		}
		puts = append(puts, e.tableName(w.Table), w.Key, kv.Seal(w.Table, w.Key, 0, w.Value)[8:])
	}
	for _, at := range r.gets {
		gets = append(gets, e.tableName(at.Table), at.Key)
	}
	for _, s := range r.scans {
		reverse, from, to := 0, "-", "+"
		if s.Reverse {
			reverse = 1
		}
		if len(s.From) > 0 {
			from = "[" + string(s.From)
		}
		if s.To != nil {
			to = "(" + string(s.To)
		}
		scans = append(scans, e.tableName(s.Table), reverse, from, to, cmp.Or(s.Limit, -1))
	}
	list(len(r.read), checks...)
	list(len(r.alive), sessions...)
	list(len(r.adds), adds...)
	list(len(puts)/3, puts...)
	list(len(deletes)/2, deletes...)
	list(len(r.gets), gets...)
	list(len(r.scans), scans...)
	return args
}

// tableName returns the name that the hash of a table has on the server.
func (e *Backend) tableName(t kv.Table) string { return e.config.Prefix + "t:" + string(t) }

// encodeAmounts encodes the amounts to add to counters for the script. The last amount is
// included even when it is zero, so that the script creates all counters.
func encodeAmounts(more []int64) []byte {
	var raw []byte
	for i, n := range more {
		if n != 0 || i == len(more)-1 {
			raw = binary.BigEndian.AppendUint64(append(raw, byte(i)), uint64(n))
		}
	}
	return raw
}
