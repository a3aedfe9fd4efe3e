// Package mem is a backend in memory, for tests; the data is lost when the process ends.
// The transactions run concurrently and conflict, like transactions of several nodes on
// one server.
package mem

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rowmill/rowmill/internal/panics"
	"github.com/rowmill/rowmill/store/kv"
)

var _ kv.Backend = (*Backend)(nil)

// Backend stores tables in memory. All methods are safe for concurrent use.
type Backend struct {
	*kv.Sessions
	clock func() time.Time

	again sync.Mutex // locked by a transaction that runs again after a conflict

	mu     sync.Mutex
	now    TableSnapshot
	closed bool
}

// A TableSnapshot holds all tables at one moment. It never changes.
type TableSnapshot struct {
	tables map[kv.Table][]kv.Entry // sorted by key; values as kv.Seal returns them
	last   uint64                  // id of the last transaction
}

// LastID returns the id of the last transaction that wrote something.
func (s TableSnapshot) LastID() uint64 { return s.last }

// New returns a backend without tables. clock decides when its sessions expire.
func New(clock func() time.Time) *Backend {
	return &Backend{Sessions: kv.NewSessions(clock), clock: clock}
}

// Reopen returns a new backend with the tables of e, which is closed, and without sessions.
func (e *Backend) Reopen() *Backend {
	again := New(e.clock)
	again.now = e.Snapshot()
	return again
}

// Snapshot returns the present tables.
func (e *Backend) Snapshot() TableSnapshot {
	now, _ := e.state() // the error of a closed backend does not matter here
	return now
}

// Restore restores an earlier state: it replaces all tables. The sessions stay.
func (e *Backend) Restore(to TableSnapshot) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now = to
}

// Fork returns a new backend with the same tables and sessions.
func (e *Backend) Fork() *Backend {
	return &Backend{Sessions: e.Sessions.Copy(), clock: e.clock, now: e.Snapshot()}
}

// DamageValue flips one bit in the stored value of a key.
func (e *Backend) DamageValue(t kv.Table, key []byte, at int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, _ := find(e.now.tables[t], key)
	found := e.now.tables[t][i]
	found.Value = bytes.Clone(found.Value)
	found.Value[at] ^= 1
	e.now.tables[t] = slices.Clone(e.now.tables[t])
	e.now.tables[t][i] = found
}

func (e *Backend) state() (TableSnapshot, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return e.now, kv.ErrClosed
	}
	return e.now, nil
}

// Time returns the time of the clock.
func (e *Backend) Time(ctx context.Context) (time.Time, error) { return e.clock(), ctx.Err() }

// ConfirmPrimary checks nothing: unlike a Redis replica, no other backend can replace this one.
func (e *Backend) ConfirmPrimary(ctx context.Context) error { return ctx.Err() }

// Ping reports whether the backend is open.
func (e *Backend) Ping(ctx context.Context) error {
	_, err := e.state()
	return errors.Join(err, ctx.Err())
}

// Close closes the backend: later calls return an error.
func (e *Backend) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	return nil
}

// View runs a read transaction.
func (e *Backend) View(ctx context.Context, read func(kv.Tx) error) error {
	t, err := e.begin(ctx)
	if err == nil {
		err = read(t)
	}
	if err == nil && t.HasWrites() {
		err = kv.ErrViewWrites
	}
	return err
}

// Update runs a transaction until it does not conflict. Transactions that conflicted
// run one after the other, because many writers of the same key would otherwise conflict
// again and again.
func (e *Backend) Update(ctx context.Context, run func(kv.Tx) error) error {
	if done, err := e.tryUpdate(ctx, run); done {
		return err
	}
	e.again.Lock()
	defer e.again.Unlock()
	for {
		if done, err := e.tryUpdate(ctx, run); done {
			return err
		}
	}
}

// tryUpdate runs a transaction once. done is false when it conflicted.
func (e *Backend) tryUpdate(ctx context.Context, run func(kv.Tx) error) (done bool, err error) {
	t, err := e.begin(ctx)
	if err != nil {
		return true, err
	}
	return e.commit(t, panics.Catch(func() error { return run(t) }))
}

func (e *Backend) begin(ctx context.Context) (*tx, error) {
	now, err := e.state()
	if err := cmp.Or(ctx.Err(), err); err != nil {
		return nil, err
	}
	return &tx{backend: e, state: now, now: e.clock(), read: map[kv.TableKey]uint64{}}, nil
}

// commit applies the writes of a transaction. txErr is the error of the transaction; if it
// is not nil, nothing is written. done is false when the transaction conflicted and must
// run again.
func (e *Backend) commit(t *tx, txErr error) (done bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for at, id := range t.read {
		if e.now.lastWriterID(at) != id {
			return false, nil
		}
	}
	if slices.ContainsFunc(t.alive, func(session string) bool { return !e.IsAlive(session) }) {
		return false, nil
	}
	list, err := t.WriteSet.All()
	if err = cmp.Or(txErr, err); err != nil || !t.HasWrites() {
		return true, err
	}
	next := TableSnapshot{maps.Clone(e.now.tables), e.now.last + 1}
	if next.tables == nil {
		next.tables = map[kv.Table][]kv.Entry{}
	}
	for _, w := range list {
		next.write(w)
	}
	for _, a := range t.Adds() {
		value, err := next.get(a.Table, []byte(a.Key))
		if err == nil {
			value, err = kv.AddCounters(value, a.Amounts...)
		}
		if err != nil {
			return true, err
		}
		next.write(kv.Write{Table: a.Table, Key: []byte(a.Key), Value: value})
	}
	e.now = next
	return true, nil
}
