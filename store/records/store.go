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

// Store is a store.Store over an engine. All methods are safe for concurrent use.
type Store struct {
	store.Sessions // the engine's

	engine kv.Engine
	log    *slog.Logger
	seen   seen
}

// layout is the number of the tables that doc.go has. Records of another layout are refused.
const layout = 4

// Open returns the store over an engine, which Close closes. It refuses records of another
// layout. log gets what an operator should know; nil discards it.
func Open(ctx context.Context, engine kv.Engine, log *slog.Logger) (*Store, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	err := engine.Update(ctx, func(t kv.Tx) error {
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
	return &Store{Sessions: engine, engine: engine, log: log, seen: seen{Most: seenJobs}}, nil
}

// layoutOf is the layout of the records; 0 where there are none.
func layoutOf(t kv.Tx) (int64, error) {
	raw, err := t.Get(tableMeta, keyLayout)
	if err == nil && raw == nil {
		return 0, nil
	}
	found := int64(0)
	if err == nil {
		found, err = number(raw)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: read the layout of the records: %s", rowmill.ErrUnavailable, err.Error()) // no fault of one job
	}
	return found, nil
}

// checkLayout returns store.ErrNewer once a newer version of the program has changed the layout
// of the records, beside this one or since it stopped answering.
func checkLayout(t kv.Tx) error {
	found, err := layoutOf(t)
	if err == nil && found == 0 { // Open has written it
		err = fmt.Errorf("%w: all records are gone: the store was emptied, or another server answers in its place; restore the records, or restart the nodes to begin without them", rowmill.ErrUnavailable)
	}
	if err == nil && found > layout {
		err = fmt.Errorf("the records have layout %d now, this version of rowmill writes layout %d: %w", found, layout, store.ErrNewer)
	}
	return err
}

// OpenSession starts a session.
func (s *Store) OpenSession(ctx context.Context, node string, ttl time.Duration) (string, error) {
	if err := s.engine.View(ctx, checkLayout); err != nil {
		return "", err
	}
	return s.engine.OpenSession(ctx, node, ttl)
}

// RenewSession extends a session. The sessions of a program that may not write any more end.
func (s *Store) RenewSession(ctx context.Context, session string) error {
	if err := s.engine.View(ctx, checkLayout); err != nil {
		return err
	}
	return s.engine.RenewSession(ctx, session)
}

// Ping reports whether the records can be written.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.engine.Ping(ctx); err != nil {
		return err
	}
	return s.engine.View(ctx, checkLayout)
}

// Time is the time by the engine's clock.
func (s *Store) Time(ctx context.Context) (time.Time, error) { return s.engine.Time(ctx) }

// Confirm reports whether the engine writes to the server that all nodes write to.
func (s *Store) Confirm(ctx context.Context) error { return s.engine.Confirm(ctx) }

// Close closes the engine.
func (s *Store) Close() error { return s.engine.Close() }

// A tx is a transaction over the tables of the records.
type tx struct {
	kv.Tx
	log    *slog.Logger
	writer *store.Writer // nil where nobody minds
	holds  int64         // how many writes of writer's the record has
}

// view runs a read transaction.
func (s *Store) view(ctx context.Context, read func(*tx) error) error {
	return s.engine.View(ctx, func(t kv.Tx) error { return read(&tx{Tx: t, log: s.log}) })
}

// write runs a transaction and returns once it is durable. run may be repeated, so it must set
// its results only at its end.
func (s *Store) write(ctx context.Context, run func(*tx) error) error {
	w := store.WriterOf(ctx)
	var holds int64
	err := s.engine.Update(ctx, func(k kv.Tx) error {
		k.Want(tableMeta, keyLayout)
		t := &tx{Tx: k, log: s.log, writer: w}
		err := run(t)
		holds = t.holds
		if newer := checkLayout(k); newer != nil { // behind run, so that both read in one answer
			return newer
		}
		return err
	})
	if err == nil {
		w.Ack(holds)
	}
	return err
}

// intact goes over the entries of ranges that are not damaged. A damaged entry is left out of
// lists, so that it costs nobody but its own record, and is logged.
func (t *tx) intact(ranges ...kv.Range) iter.Seq2[kv.Entry, error] {
	return func(yield func(kv.Entry, error) bool) {
		for e, err := range t.Scan(ranges...) {
			if t.damaged(err) {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// damaged reports whether an error is that of one damaged record, and logs it.
func (t *tx) damaged(err error) bool {
	if !errors.Is(err, store.ErrDamaged) {
		return false
	}
	t.log.Error("left a damaged record out of a list", "err", err)
	return true
}
