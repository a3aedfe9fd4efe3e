// Package recall finds and mends what a store has forgotten after it had
// acknowledged it: the last writes before a crash of a server that does not
// flush each, or before a failover. It stands between a node and its store,
// remembers what was acknowledged for a while, looks from time to time whether
// the store still has it, and writes it again where it has not, in the order in
// which it was written. All writes of the contract are safe to repeat, so it
// needs to know none of what they mean.
//
// What it cannot mend: writes of a node that died too, a claim that another
// node has taken meanwhile (rows are then run again from what is recorded), and
// keys, values and the audit, which are rarely written and not looked after.
// Nothing is written into a store that has lost everything.
package recall

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// Config says what is remembered.
type Config struct {
	Store store.Store
	Log   *slog.Logger
	// For is how long a write is remembered. Default 30 s: many times what
	// appendfsync everysec loses, and longer than a restart or a failover
	// takes.
	For time.Duration
	// Patience is for how much longer one is remembered of a job of which writes
	// are to be made again, and cannot be yet. Default ten times For.
	Patience time.Duration
	// Every is the time between looks. Default 2 s.
	Every time.Duration
}

// Store is a store that remembers what the one below it has acknowledged.
type Store struct {
	store.Store
	cfg  Config
	name string // of the process as a writer
	life context.Context
	end  context.CancelFunc
	done chan struct{}

	looked time.Time // when the last look began that succeeded; for watch alone

	mu   sync.Mutex
	jobs map[string]*job
}

// New begins to look after a store. Closing it closes that too.
func New(cfg Config) *Store {
	if cfg.For == 0 {
		cfg.For = 30 * time.Second
	}
	if cfg.Patience == 0 {
		cfg.Patience = 10 * cfg.For
	}
	if cfg.Every == 0 {
		cfg.Every = 2 * time.Second
	}
	s := &Store{Store: cfg.Store, cfg: cfg, name: newName(), jobs: make(map[string]*job), done: make(chan struct{})}
	s.life, s.end = context.WithCancel(context.Background())
	go s.watch()
	return s
}

// newName is a name that no other process has.
func newName() string {
	id := uuid.New()
	return base64.RawURLEncoding.EncodeToString(id[:9])
}

// Close looks a last time, stops looking and closes the store below.
func (s *Store) Close() error {
	s.end()
	<-s.done
	ctx, cancel := context.WithTimeout(context.Background(), lastLook)
	defer cancel()
	if err := s.Look(ctx); err != nil {
		s.cfg.Log.Warn("looking a last time whether the store has forgotten anything failed", "err", err)
	}
	return s.Store.Close()
}

// lastLook bounds the look of a node that stops: what it leaves forgotten stays so.
const lastLook = 2 * time.Second

func (s *Store) watch() {
	defer close(s.done)
	tick := time.NewTicker(s.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(s.life, s.cfg.For)
		if err := s.Look(ctx); err != nil && s.life.Err() == nil {
			s.cfg.Log.Warn("looking whether the store has forgotten anything failed", "err", err)
		}
		cancel()
	}
}

// Look compares what is remembered with the store, in one round trip, and mends
// what that has forgotten. The Store does so by itself, and nobody may beside it.
func (s *Store) Look(ctx context.Context) error {
	began := time.Now()
	ids, jobs := s.remembered()
	if len(ids) == 0 {
		return nil
	}
	stand := make([]standing, len(jobs))
	for i, j := range jobs {
		stand[i] = j.stands()
	}
	marks, err := s.Marks(ctx, ids, s.name)
	if err != nil {
		return err
	}
	var errs []error
	for i, j := range jobs {
		if stand[i].forgotten(marks[i]) {
			err := s.mend(ctx, j)
			j.postpone(err != nil)
			errs = append(errs, err)
		} else {
			j.follow(marks[i])
		}
	}
	s.looked = began
	return errors.Join(errs...)
}

// remembered returns the jobs with remembered writes, in order. A write is old
// enough to be forgotten if the last look has found it so: the time in which no
// store answers does not count.
func (s *Store) remembered() (ids []string, jobs []*job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		j := s.jobs[id]
		if j.prune(s.looked.Add(-s.cfg.For), s.cfg.Patience) {
			delete(s.jobs, id)
			continue
		}
		ids, jobs = append(ids, id), append(jobs, j)
	}
	return ids, jobs
}

// of is what is remembered of a job.
func (s *Store) of(id string) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.locked(id)
}

// known is what is remembered of a job, nil if that is nothing.
func (s *Store) known(id string) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[id]
}

func (s *Store) locked(id string) *job {
	if s.jobs[id] == nil {
		s.jobs[id] = &job{id: id, writer: store.NewWriter(s.name), mending: make(chan struct{}, 1)}
	}
	return s.jobs[id]
}

// begins remembers a write of a job that is asked for.
func (s *Store) begins(id string, w *write) (j *job, mends int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j = s.locked(id)
	return j, j.begin(w)
}

// asks notes a claim, of which a caller may learn by a Get.
func (s *Store) asks(id, session string) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.locked(id)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked, j.since = session, time.Now()
	return j
}

// mend writes again what the store has forgotten of a job.
func (s *Store) mend(ctx context.Context, j *job) error {
	done, err := j.repeats(ctx)
	if err != nil {
		return err
	}
	defer done()
	stand := j.stands()
	marks, err := s.Marks(ctx, []string{j.id}, s.name)
	if err != nil || !stand.forgotten(marks[0]) {
		return err
	}
	m := marks[0]
	fence, final := j.state()
	if !j.fallBehind() {
		s.cfg.Log.Warn("the store has forgotten what it had acknowledged, which is written again",
			"job", j.id, "writes", m.Writes, "had", j.writer.Acked(), "status", m.Status)
	}
	if m.Version == 0 {
		if err := s.create(ctx, j); err != nil {
			return err
		}
	}
	switch {
	case fence.Session == "", m.Session == fence.Session && m.Epoch == fence.Epoch:
	case final && m.Session == fence.Session && !m.Status.Terminal(): // claimed by a look that came no further
		fence.Epoch = m.Epoch
	case m.Epoch > fence.Epoch, m.Status.Terminal(): // another's, or over all the same
		j.lose()
		fence = store.Fence{}
	case !final: // its owner here learns it, and claims it again
		fence = store.Fence{}
	default: // it ended here: nobody is left who would claim it
		rec, err := s.Store.Claim(ctx, j.id, fence.Session, store.Adopter{})
		switch {
		case errors.Is(err, rowmill.ErrLeaseLost): // of a session before: whoever claims it goes on
			j.lose()
			fence = store.Fence{}
		case err != nil:
			return err
		default:
			fence.Epoch = rec.Epoch
		}
	}
	err = s.repeat(ctx, j, fence)
	if final && fence.Session != "" && j.misses() > endPatience {
		err = errors.Join(err, s.reopen(ctx, j, fence))
	}
	return err
}

// endPatience is how many looks an end that is forgotten is waited for, of which
// others were told.
const endPatience = 3

// reopen gives back a job whose end is forgotten and that nobody here runs any
// more: where nobody is left who was told of the end, it goes on.
func (s *Store) reopen(ctx context.Context, j *job, fence store.Fence) error {
	marks, err := s.Marks(ctx, []string{j.id}, s.name)
	if err != nil {
		return err
	}
	if m := marks[0]; m.Version == 0 || m.Status.Terminal() || m.Session != fence.Session || m.Epoch != fence.Epoch {
		return nil
	}
	s.cfg.Log.Warn("the store has forgotten the end of a job, and nobody writes it again: the job goes on", "job", j.id)
	if err := s.Store.Release(ctx, fence); err != nil {
		return err
	}
	j.reopened()
	return nil
}

// create stores a job again: as it was submitted here, or else as it was claimed.
func (s *Store) create(ctx context.Context, j *job) error {
	base, created := j.origin()
	ctx = store.As(ctx, store.NewWriter(s.name))
	var err error
	switch {
	case created != nil:
		if err = created.do(ctx, store.Fence{}); err == nil {
			j.remade(created)
		}
	case base != nil:
		_, _, err = s.Store.Create(ctx, fresh(*base), nil)
	}
	if errors.Is(err, rowmill.ErrConflict) { // another node was faster
		return nil
	}
	return err
}

// errNotOver says that a write is due once a job is over: the store has forgotten its
// end. It holds up no other.
var errNotOver = fmt.Errorf("%w: the store has forgotten the end of a job", rowmill.ErrUnavailable)

// repeat makes the remembered writes of a job again, those of its owner only
// with a fence.
func (s *Store) repeat(ctx context.Context, j *job, fence store.Fence) error {
	w := store.NewWriter(s.name) // that of j is refused until all is there
	ctx = store.As(ctx, w)
	var due error
	for _, again := range j.writes() {
		if again.owners && fence.Session == "" {
			continue
		}
		err := again.do(ctx, fence)
		if err == nil {
			j.remade(again)
		}
		var limit *store.LimitError
		switch {
		case err == nil, errors.Is(err, rowmill.ErrTerminal), errors.Is(err, rowmill.ErrConflict), errors.Is(err, rowmill.ErrExpired), errors.As(err, &limit):
			// it is there, or what came later stands in its place
		case errors.Is(err, errNotOver):
			due = err
		case errors.Is(err, rowmill.ErrLeaseLost):
			j.lose()
			return err
		default:
			return err
		}
	}
	marks, err := s.Marks(ctx, []string{j.id}, s.name)
	if err != nil {
		return err
	}
	if err := w.Check(j.id, marks[0].Writes); err != nil { // meanwhile too
		return err
	}
	j.writer.Reset(marks[0].Writes)
	j.mended(fence)
	if due != nil {
		j.fallBehind()
	}
	return due
}

// fresh is the record that a job was created with, from a later one.
func fresh(rec store.Record) store.Record {
	rec.Job.Status, rec.Job.Started, rec.Job.Message = rowmill.StatusPending, nil, ""
	if rec.Spec.URL != "" || rec.Spec.File != "" || rec.Spec.Raw != nil || rec.Spec.Continue != nil { // of others it was known at once
		rec.Job.NumRows = nil
	}
	rec.Job.RowCounts = rowmill.RowCounts{} // those taken over too: nobody here remembers their parts
	rec.Job.InputTokens, rec.Job.OutputTokens, rec.Reserved, rec.Shards, rec.Cut = nil, nil, 0, 0, ""
	return rec
}
