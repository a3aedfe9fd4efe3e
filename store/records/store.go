package records

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
)

var _ store.Store = (*Store)(nil)

// Store implements store.Store over a backend. All methods are safe for concurrent use.
type Store struct {
	store.Sessions // implemented by the backend

	backend kv.Backend
	log     *slog.Logger
	cache   headCache
}

// layout is the number of the table layout in doc.go. Open refuses records of another
// layout.
const layout = 4

// Open returns a store over a backend. Store.Close closes the backend. Open refuses
// records of another layout. log gets messages for operators; nil discards them.
func Open(ctx context.Context, backend kv.Backend, log *slog.Logger) (*Store, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	err := backend.Update(ctx, func(t kv.Tx) error {
		found, err := layoutOf(t)
		switch {
		case err != nil:
			return err
		case found == 0:
			t.Put(tableMeta, keyLayout, binary.BigEndian.AppendUint64(nil, layout))
		case found != layout:
			return fmt.Errorf("the records have layout %d, this version of rowmill reads layout %d: start the version that wrote them", found, layout)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &Store{Sessions: backend, backend: backend, log: log, cache: headCache{Most: cachedJobs}}, nil
}

// layoutOf returns the number of the layout of the stored records, or 0 if the tables are
// empty.
func layoutOf(t kv.Tx) (int64, error) {
	raw, err := t.Get(tableMeta, keyLayout)
	if err == nil && raw == nil {
		return 0, nil
	}
	found := int64(0)
	if err == nil {
		found, err = decodeNumber(raw)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: read the layout of the records: %s", rowmill.ErrUnavailable, err.Error()) // the whole store is affected, not one job
	}
	return found, nil
}

// checkLayout returns store.ErrNewer when a newer version of the program has changed
// the layout of the records while this program was running or disconnected.
func checkLayout(t kv.Tx) error {
	found, err := layoutOf(t)
	if err == nil && found == 0 { // Open wrote the layout, so the store has lost it since then
		err = fmt.Errorf("%w: all records are gone: the store was emptied, or another server answers in its place; restore the records, or restart the nodes to begin without them", rowmill.ErrUnavailable)
	}
	if err == nil && found > layout {
		err = fmt.Errorf("the records have layout %d now, this version of rowmill writes layout %d: %w", found, layout, store.ErrNewer)
	}
	return err
}

// OpenSession starts a session.
func (s *Store) OpenSession(ctx context.Context, node string, ttl time.Duration) (string, error) {
	if err := s.backend.View(ctx, checkLayout); err != nil {
		return "", err
	}
	return s.backend.OpenSession(ctx, node, ttl)
}

// RenewSession extends a session. It returns store.ErrNewer if a newer version has
// changed the layout of the records: this program must not write then, so its session
// expires.
func (s *Store) RenewSession(ctx context.Context, session string) error {
	if err := s.backend.View(ctx, checkLayout); err != nil {
		return err
	}
	return s.backend.RenewSession(ctx, session)
}

// Ping returns nil if records can be written now.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.backend.Ping(ctx); err != nil {
		return err
	}
	return s.backend.View(ctx, checkLayout)
}

// Time returns the time of the backend's clock.
func (s *Store) Time(ctx context.Context) (time.Time, error) { return s.backend.Time(ctx) }

// ConfirmPrimary returns nil if the backend writes to the same server as all nodes.
func (s *Store) ConfirmPrimary(ctx context.Context) error { return s.backend.ConfirmPrimary(ctx) }

// Close closes the backend.
func (s *Store) Close() error { return s.backend.Close() }

// A tx is a transaction over the tables of the records.
type tx struct {
	kv.Tx
	log      *slog.Logger
	writer   *store.WriteCounter // writer in the context of the call; nil if the caller does not track its writes
	recorded int64               // number of writes by writer in the record
}

// view runs a read transaction. read may be called several times.
func (s *Store) view(ctx context.Context, read func(*tx) error) error {
	return s.backend.View(ctx, func(t kv.Tx) error { return read(&tx{Tx: t, log: s.log}) })
}

// viewResult returns what read returns in a view; the zero value after an error.
func viewResult[T any](ctx context.Context, s *Store, read func(*tx) (T, error)) (T, error) {
	var result T
	err := s.view(ctx, func(t *tx) (err error) {
		result, err = read(t)
		return err
	})
	return resultUnless(err, result)
}

// viewList is viewResult for a list. what describes the call in errors.
func viewList[T any](ctx context.Context, s *Store, what string, read func(*tx) ([]T, error)) ([]T, error) {
	list, err := viewResult(ctx, s, read)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return list, nil
}

// writeResult returns what run returns in a write; the zero value after an error.
func writeResult[T any](ctx context.Context, s *Store, run func(*tx) (T, error)) (T, error) {
	var result T
	err := s.write(ctx, func(t *tx) (err error) {
		result, err = run(t)
		return err
	})
	return resultUnless(err, result)
}

func resultUnless[T any](err error, result T) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return result, nil
}

// write runs a transaction and returns when it is durable. run may be called several
// times, so it must set its results only at its end.
func (s *Store) write(ctx context.Context, run func(*tx) error) error {
	w := store.WriteCounterOf(ctx)
	var recorded int64
	err := s.backend.Update(ctx, func(k kv.Tx) error {
		k.Prefetch(tableMeta, keyLayout)
		t := &tx{Tx: k, log: s.log, writer: w}
		err := run(t)
		recorded = t.recorded
		if newer := checkLayout(k); newer != nil { // after run, so that run's first request also reads the layout
			return newer
		}
		return err
	})
	if err == nil {
		w.Ack(recorded)
	}
	return err
}

// scanUndamaged iterates over the undamaged entries of ranges. It skips and logs a damaged
// entry, so that lists lose only this record.
func (t *tx) scanUndamaged(ranges ...kv.Range) iter.Seq2[kv.Entry, error] {
	return func(yield func(kv.Entry, error) bool) {
		for e, err := range t.Scan(ranges...) {
			if t.logIfDamaged(err) {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// logIfDamaged reports whether err means that one record is damaged, and logs such an err.
func (t *tx) logIfDamaged(err error) bool {
	if !errors.Is(err, store.ErrDamaged) {
		return false
	}
	t.log.Error("a stored record is damaged and was left out of a list; restore it from a backup", "err", err)
	return true
}
