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
	"github.com/rowmill/rowmill/internal/contain"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/store/kv"
)

// What the engine remembers of values that it has read or written in transactions, so that the
// owner of a job need not read before it writes again.
const (
	knownValues = 2048
	knownBytes  = 8 << 10 // of a value, at most
)

// A staleError says that what a transaction rests on has changed since it was read.
type staleError struct{ place }

func (e *staleError) Error() string { return "others changed it at the same time" }

// queues is how many keys transactions can queue up for.
const queues = 64

// queue is where the transactions of this process queue up that have met at a key: one after
// the other they meet only those of other processes.
func (e *Engine) queue(at place) *sync.Mutex {
	return &e.queues[maphash.Comparable(e.seed, at)%queues]
}

// View runs a read transaction.
func (e *Engine) View(ctx context.Context, read func(kv.Tx) error) error {
	return e.until(ctx, false, func(t *tx) error {
		err := read(t)
		if err == nil && t.wrote() {
			err = kv.ErrViewWrites
		}
		return err
	})
}

// Update runs a transaction.
func (e *Engine) Update(ctx context.Context, run func(kv.Tx) error) error {
	return e.until(ctx, true, func(t *tx) error { return contain.Run(func() error { return run(t) }) })
}

// until runs a transaction for as long as it conflicts, and pauses longer each time: of those
// that meet one succeeds each time, and the others must not keep the server from it.
func (e *Engine) until(ctx context.Context, update bool, run func(*tx) error) error {
	var stale *staleError
	err := retry.Contention.Do(ctx, func() error {
		if stale != nil {
			queue := e.queue(stale.place)
			queue.Lock()
			defer queue.Unlock()
		}
		return e.once(ctx, update && stale == nil, update, run)
	}, func(err error) bool { return errors.As(err, &stale) }, nil)
	if errors.As(err, &stale) {
		err = fmt.Errorf("%w: %w: try again", rowmill.ErrUnavailable, err)
	}
	return err
}

// once runs a transaction once and commits it. It is a *staleError where others have written what it
// has read, also where it has failed by itself.
func (e *Engine) once(ctx context.Context, believes, update bool, run func(*tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := &tx{ctx: ctx, engine: e, now: e.now(), believes: believes, read: map[place][]byte{}, guessed: map[place]bool{}}
	own := run(t)
	list, err := t.writes.All()
	if own == nil {
		own = err
	}
	writes := update && own == nil && t.wrote()
	if !writes && t.trips < 2 && (!believes || len(t.alive) == 0) {
		return own // one answer is of one moment
	}
	r := request{read: t.read, alive: t.alive}
	if !writes {
		_, err := e.run(ctx, r)
		if err != nil {
			e.forget(t, err)
			return err
		}
		return own
	}
	r.token, r.writes, r.adds = uuid.NewString(), list, t.adds
	done, err := e.run(ctx, r)
	if err != nil {
		e.forget(t, err)
		return err
	}
	e.learn(t, list, done.id)
	return nil
}

// learn remembers what a transaction has read and written.
func (e *Engine) learn(t *tx, list []kv.Write, id string) {
	for at, stored := range t.read {
		if !t.guessed[at] && len(stored) <= knownBytes {
			e.known.Put(at, stored)
		}
	}
	for _, w := range list {
		at := place{w.Table, string(w.Key)}
		switch {
		case w.Value == nil:
			e.known.Put(at, nil)
		case len(w.Value) <= knownBytes:
			stored := kv.Seal(w.Table, w.Key, 0, w.Value)
			copy(stored, id)
			e.known.Put(at, stored)
		default:
			e.known.Drop(at)
		}
	}
	for _, a := range t.adds {
		e.known.Drop(a.place)
	}
}

// forget forgets what a transaction has rested on in vain, or may have written.
func (e *Engine) forget(t *tx, err error) {
	if stale := (*staleError)(nil); errors.As(err, &stale) {
		e.conflicts.Inc()
	}
	for at := range t.read {
		e.known.Drop(at)
	}
	list, _ := t.writes.All()
	for _, w := range list {
		e.known.Drop(place{w.Table, string(w.Key)})
	}
}

// A request is what the script is asked for.
type request struct {
	token  string
	read   map[place][]byte
	alive  []string
	adds   []add
	writes []kv.Write
	gets   []place
	scans  []kv.Range
}

// An answer is what the script returned.
type answer struct {
	id          string
	gets, scans []any
}

// run runs the script.
func (e *Engine) run(ctx context.Context, r request) (answer, error) {
	args := e.args(r)
	var list []any
	_, err := e.try(ctx, r.token != "", func(ctx context.Context) (err error) {
		list, err = script.Run(ctx, e.client, nil, args...).Slice()
		return err
	})
	if err != nil {
		return answer{}, err
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
		return answer{}, &staleError{place{kv.Table(text(1)), text(2)}}
	case "damaged":
		table := strings.TrimPrefix(text(1), e.name(""))
		return answer{}, &kv.DamagedError{Table: kv.Table(table), Key: []byte(text(2))}
	}
	micros, err := strconv.ParseInt(text(1), 10, 64)
	if err != nil || len(list) != 5 {
		return answer{}, fmt.Errorf("the Redis script answered %q", list)
	}
	e.heard(time.UnixMicro(micros))
	a := answer{id: text(2)}
	a.gets, _ = list[3].([]any)
	a.scans, _ = list[4].([]any)
	return a, nil
}

// args are the arguments of the script.
func (e *Engine) args(r request) []any {
	var args []any
	list := func(n int, of ...any) { args = append(append(args, n), of...) }
	args = append(args, e.config.Prefix, r.token)
	var checks, sessions, adds, puts, deletes, gets, scans []any
	for at, stored := range r.read {
		checks = append(checks, e.name(at.table), at.key, stored[:min(8, len(stored))])
	}
	for _, session := range r.alive {
		sessions = append(sessions, e.session(session))
	}
	for _, a := range r.adds {
		adds = append(adds, e.name(a.table), a.key, kv.Head(a.table, []byte(a.key)), growth(a.more))
	}
	for _, w := range r.writes {
		if w.Value == nil {
			deletes = append(deletes, e.name(w.Table), w.Key)
			continue
		}
		puts = append(puts, e.name(w.Table), w.Key, kv.Seal(w.Table, w.Key, 0, w.Value)[8:])
	}
	for _, at := range r.gets {
		gets = append(gets, e.name(at.table), at.key)
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
		scans = append(scans, e.name(s.Table), reverse, from, to, cmp.Or(s.Limit, -1))
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

// name is what the server calls a table.
func (e *Engine) name(t kv.Table) string { return e.config.Prefix + "t:" + string(t) }

// growth is what counters grow by, as the script takes it. The last one is always there, so that
// all counters are made.
func growth(more []int64) []byte {
	var raw []byte
	for i, n := range more {
		if n != 0 || i == len(more)-1 {
			raw = binary.BigEndian.AppendUint64(append(raw, byte(i)), uint64(n))
		}
	}
	return raw
}
