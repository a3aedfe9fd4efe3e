package records

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

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
const layout = 3

// Open returns the store over an engine, which Close closes. It refuses records of another
// layout. log gets what an operator should know; nil discards it.
func Open(ctx context.Context, engine kv.Engine, log *slog.Logger) (*Store, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Store{Sessions: engine, engine: engine, log: log, seen: seen{Most: seenJobs}}
	err := engine.Update(ctx, func(t kv.Tx) error {
		raw, err := t.Get(tableMeta, keyLayout)
		switch {
		case err != nil:
			return fmt.Errorf("read the layout of the records: %w", err)
		case raw == nil:
			t.Put(tableMeta, keyLayout, binary.BigEndian.AppendUint64(nil, layout))
			return nil
		}
		found, err := number(raw)
		if err == nil && found != layout {
			err = fmt.Errorf("the records have layout %d, this version of rowmill reads layout %d: start the version that wrote them", found, layout)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Time is the time by the engine's clock.
func (s *Store) Time(ctx context.Context) (time.Time, error) { return s.engine.Time(ctx) }

// Ping reports whether the engine can be written to.
func (s *Store) Ping(ctx context.Context) error { return s.engine.Ping(ctx) }

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
		t := &tx{Tx: k, log: s.log, writer: w}
		err := run(t)
		holds = t.holds
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
