// Package replay detects acknowledged writes that a store has lost, and writes them
// again. A server loses its last writes in a crash when it does not sync each write, or
// in a failover. The package wraps the store of a node. It keeps acknowledged writes
// for a while, checks regularly whether the store still has them, and repeats lost
// writes in their original order. All writes of the contract are safe to repeat, so the
// package need not know their meaning.
//
// It cannot repair three kinds of loss: writes of a node that crashed too; a claim,
// when another node has claimed the job meanwhile (the lost rows are then run again);
// and keys, values and audit entries, which are rarely written and not tracked. It
// writes nothing into a store that has lost everything.
package replay

import (
	"cmp"
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

// Config configures a Store.
type Config struct {
	Store store.Store
	Log   *slog.Logger
	// KeepFor is how long a write is kept. Default 30 s: many times the loss of appendfsync
	// everysec, and longer than a restart or a failover.
	KeepFor time.Duration
	// Patience is how much longer than KeepFor the writes of a job are kept while lost writes
	// cannot be repeated yet. Default ten times KeepFor.
	Patience time.Duration
	// CheckInterval is the time between two checks. Default 2 s.
	CheckInterval time.Duration
	// FailedAt returns the last time when the store did not answer. For three times CheckInterval
	// after that, the store may have lost a job that another node is about to write
	// again. So Get and Head return rowmill.ErrUnavailable for a missing job. Default:
	// the store never fails.
	FailedAt func() time.Time
}

// Store wraps a store and repeats acknowledged writes that it loses.
type Store struct {
	store.Store
	cfg  Config
	name string // name of this process as a writer
	life context.Context
	end  context.CancelFunc
	done chan struct{}

	lastCheck time.Time // start of the last successful check; used only by the goroutine that checks

	mu      sync.Mutex
	jobs    map[string]*jobLog
	session string // newest session of this process; empty at first
}

// New returns a Store that wraps cfg.Store, and starts its checks for lost writes.
// Store.Close also closes the wrapped store.
func New(cfg Config) *Store {
	cfg.KeepFor = cmp.Or(cfg.KeepFor, 30*time.Second)
	cfg.Patience = cmp.Or(cfg.Patience, 10*cfg.KeepFor)
	cfg.CheckInterval = cmp.Or(cfg.CheckInterval, 2*time.Second)
	if cfg.FailedAt == nil {
		cfg.FailedAt = func() time.Time { return time.Time{} }
	}
	s := &Store{Store: cfg.Store, cfg: cfg, name: newName(), jobs: make(map[string]*jobLog), done: make(chan struct{})}
	s.life, s.end = context.WithCancel(context.Background())
	go s.runLossChecks()
	return s
}

// newName returns a random name for this process as a writer. No other process has the
// same name.
func newName() string {
	id := uuid.New()
	return base64.RawURLEncoding.EncodeToString(id[:9])
}

// Close checks a last time, stops the checks and closes the wrapped store.
func (s *Store) Close() error {
	s.end()
	<-s.done
	ctx, cancel := context.WithTimeout(context.Background(), finalCheckTimeout)
	defer cancel()
	if err := s.CheckLostWrites(ctx); err != nil {
		s.cfg.Log.Warn("the final check for lost writes failed; writes that the store has lost will not be repeated", "err", err)
	}
	return s.Store.Close()
}

// finalCheckTimeout limits the last check of a node that stops. Lost writes that this
// check does not repeat stay lost.
const finalCheckTimeout = 2 * time.Second

func (s *Store) runLossChecks() {
	defer close(s.done)
	tick := time.NewTicker(s.cfg.CheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(s.life, s.cfg.KeepFor)
		if err := s.CheckLostWrites(ctx); err != nil && s.life.Err() == nil {
			s.cfg.Log.Warn("check for lost writes failed; the next check tries again", "err", err)
		}
		cancel()
	}
}

// CheckLostWrites compares the kept writes with the store, in one round trip, and repairs
// losses. A goroutine of the Store calls CheckLostWrites regularly; concurrent calls are
// not allowed.
func (s *Store) CheckLostWrites(ctx context.Context) error {
	began := time.Now()
	ids, jobs := s.trackedJobs()
	if len(ids) == 0 {
		return nil
	}
	least := make([]requiredState, len(jobs))
	for i, j := range jobs {
		least[i] = j.computeRequiredState()
	}
	marks, err := s.Revisions(ctx, ids, s.name)
	if err != nil {
		return err
	}
	var errs []error
	for i, j := range jobs {
		if least[i].isUnmetBy(marks[i]) {
			err := s.repair(ctx, j)
			j.setPostponed(err != nil)
			errs = append(errs, err)
		} else {
			j.applyRevision(marks[i])
		}
	}
	s.lastCheck = began
	return errors.Join(errs...)
}

// trackedJobs returns the jobs with kept writes, ordered by id. It first drops writes that
// were older than Config.KeepFor at the time of the last successful check. So time without an
// answer of the store does not count.
func (s *Store) trackedJobs() (ids []string, jobs []*jobLog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		j := s.jobs[id]
		if j.prune(s.lastCheck.Add(-s.cfg.KeepFor), s.cfg.Patience) {
			delete(s.jobs, id)
			continue
		}
		ids, jobs = append(ids, id), append(jobs, j)
	}
	return ids, jobs
}

// jobLogFor returns the state of a job. It creates the state if it is missing.
func (s *Store) jobLogFor(id string) *jobLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobLocked(id)
}

// existingJob returns the state of a job, nil when there is none.
func (s *Store) existingJob(id string) *jobLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[id]
}

func (s *Store) jobLocked(id string) *jobLog {
	if s.jobs[id] == nil {
		s.jobs[id] = &jobLog{id: id, writer: store.NewWriteCounter(s.name), repairing: make(chan struct{}, 1)}
	}
	return s.jobs[id]
}

// beginWrite adds a write to the log of a job before the write is sent. It returns the state
// of the job and the number of repairs so far.
func (s *Store) beginWrite(id string, w *loggedWrite) (j *jobLog, repairs int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j = s.jobLocked(id)
	return j, j.logWrite(w)
}

// recordSentClaim records that this process has sent a claim of a job for session. If the
// outcome is unknown, a later Get may show it.
func (s *Store) recordSentClaim(id, session string) *jobLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobLocked(id)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.claimSession, j.claimSent = session, time.Now()
	return j
}

// repair writes lost writes of a job again.
func (s *Store) repair(ctx context.Context, j *jobLog) error {
	done, err := j.lockRepair(ctx)
	if err != nil {
		return err
	}
	defer done()
	least := j.computeRequiredState()
	marks, err := s.Revisions(ctx, []string{j.id}, s.name)
	if err != nil || !least.isUnmetBy(marks[0]) {
		return err
	}
	m := marks[0]
	fence, final := j.currentFence()
	if !j.requireRepeat() {
		s.cfg.Log.Warn("the store has lost acknowledged writes of a job; they are written again",
			"job", j.id, "writes", m.Writes, "had", j.writer.AckedWrites(), "status", m.Status)
	}
	if j.hasGap(m.Writes) { // the job runs again from the recorded parts
		if fence.Session != "" && m.Session == fence.Session && m.Epoch == fence.Epoch && !m.Status.IsTerminal() {
			if err := s.Store.Release(ctx, fence); err != nil {
				return err
			}
		}
		j.setReopened()
		j.loseOwnership()
		fence, final = store.Fence{}, false
	}
	if m.Version == 0 {
		if err := s.recreateJob(ctx, j); err != nil {
			return err
		}
	}
	if released, ok := j.hasReleased(m); ok {
		fence = released
	}
	switch {
	case fence.Session == "", m.Session == fence.Session && m.Epoch == fence.Epoch:
	case final && m.Session == fence.Session && !m.Status.IsTerminal(): // an earlier check claimed the job and failed later
		fence.Epoch = m.Epoch
	case m.Epoch > fence.Epoch, m.Status.IsTerminal(): // another process owns the job, or the job has ended
		j.loseOwnership()
		fence = store.Fence{}
	case !final: // the owner in this process gets ErrLeaseLost and claims the job again
		fence = store.Fence{}
	default: // this process ended the job, so no owner in this process claims it again
		rec, err := s.Store.Claim(ctx, j.id, fence.Session, store.Claim{})
		switch {
		case errors.Is(err, rowmill.ErrLeaseLost): // the session has ended; the next owner continues
			j.loseOwnership()
			fence = store.Fence{}
		case err != nil:
			return err
		case !j.isUntouched(rec): // the job continues from the parts of the other owner
			j.loseOwnership()
			if err := s.Store.Release(ctx, store.Fence{JobID: j.id, Session: rec.Session, Epoch: rec.Epoch}); err != nil {
				return err
			}
			fence = store.Fence{}
		default:
			fence.Epoch = rec.Epoch
		}
	}
	err = s.repeatWrites(ctx, j, fence)
	if final && fence.Session != "" && j.countMissingEnd() > maxMissingEnds {
		err = errors.Join(err, s.reopen(ctx, j, fence))
	}
	return err
}

// maxMissingEnds is the number of checks that wait until another node repeats the lost
// end of a job. After that, the job is released and runs again.
const maxMissingEnds = 3

// reopen releases a job whose end was lost, and which this process no longer runs. If no
// other node repeats the end, the job runs again.
func (s *Store) reopen(ctx context.Context, j *jobLog, fence store.Fence) error {
	marks, err := s.Revisions(ctx, []string{j.id}, s.name)
	if err != nil {
		return err
	}
	if m := marks[0]; m.Version == 0 || m.Status.IsTerminal() || m.Session != fence.Session || m.Epoch != fence.Epoch {
		return nil
	}
	s.cfg.Log.Warn("the store has lost the end of a job, and no node has written it again; the job is released and runs again", "job", j.id)
	if err := s.Store.Release(ctx, fence); err != nil {
		return err
	}
	j.setReopened()
	return nil
}

// recreateJob stores a lost job again: with the record that this process submitted or, if that
// is unknown, with the record that it claimed.
func (s *Store) recreateJob(ctx context.Context, j *jobLog) error {
	base, created := j.recreateSources()
	ctx = store.WithWriteCounter(ctx, store.NewWriteCounter(s.name))
	var err error
	switch {
	case created != nil:
		if err = created.do(ctx, store.Fence{}); err == nil {
			j.restartAge(created)
		}
	case base != nil:
		again := &loggedWrite{create: true, acked: true, do: s.newRecreateFunc(resetToSubmitted(*base), nil)}
		if err = again.do(ctx, store.Fence{}); err == nil {
			j.confirmCreate(again) // the store may lose this write too
		}
	}
	if errors.Is(err, rowmill.ErrConflict) { // another node has stored it already
		return nil
	}
	return err
}

// errEndLost means that the store has lost the end of a job, and that a write after the
// end must wait until another node has repeated the end. Writes that do not need the end
// are repeated at once.
var errEndLost = fmt.Errorf("%w: the store has lost the end of the job; the write waits until its node repeats the end", rowmill.ErrUnavailable)

// repeatWrites repeats the kept writes of a job. It skips the owner's writes when fence is
// empty.
func (s *Store) repeatWrites(ctx context.Context, j *jobLog, fence store.Fence) error {
	w := store.NewWriteCounter(s.name) // a new writer, because writes of j.writer are refused until the repair is complete
	ctx = store.WithWriteCounter(ctx, w)
	var waiting error
	for _, again := range j.startRepair() {
		if again.needsFence && fence.Session == "" {
			continue
		}
		err := again.do(ctx, fence)
		if err == nil {
			j.restartAge(again)
		}
		var limit *store.CostLimitError
		switch {
		case err == nil, errors.Is(err, rowmill.ErrTerminal), errors.Is(err, rowmill.ErrConflict), errors.Is(err, rowmill.ErrExpired), errors.As(err, &limit):
			// The record has the write already, or later writes have replaced its
			// effect.
		case errors.Is(err, errEndLost):
			waiting = err
		case errors.Is(err, rowmill.ErrLeaseLost):
			j.loseOwnership()
			return err
		default:
			return err
		}
	}
	marks, err := s.Revisions(ctx, []string{j.id}, s.name)
	if err != nil {
		return err
	}
	if err := w.CheckLostWrites(j.id, marks[0].Writes); err != nil { // the store may have lost writes during the repair
		return err
	}
	j.writer.ResetAcked(marks[0].Writes)
	j.endRepair(fence)
	if waiting != nil {
		j.requireRepeat()
	}
	return waiting
}

// resetToSubmitted returns rec as it was at the submission of the job: pending, and without
// progress.
func resetToSubmitted(rec store.Record) store.Record {
	rec.Job.Status, rec.Job.Started, rec.Job.Message = rowmill.StatusPending, nil, ""
	if rec.Spec.URL != "" || rec.Spec.File != "" || rec.Spec.Source != "" || rec.Spec.Raw != nil || rec.Spec.Continue != nil { // for all other inputs, the number of rows is known at the submission
		rec.Job.NumRows, rec.Job.InputRows = nil, nil
	}
	rec.Job.RowCounts = rowmill.RowCounts{} // carried rows are not counted either, because their parts are not known here
	rec.Job.InputTokens, rec.Job.OutputTokens, rec.Reserved, rec.Shards, rec.Cut = nil, nil, 0, 0, ""
	return rec
}
