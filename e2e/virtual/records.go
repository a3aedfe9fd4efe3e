package virtual

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv/mem"
	recordstore "github.com/rowmill/rowmill/store/records"
)

// A vault is the shared store of all nodes, which can return to an earlier state.
type vault struct {
	mu      sync.RWMutex // held for writing while an earlier state comes back
	engine  *mem.Backend
	base    *recordstore.Store
	leases  *leases
	forgets time.Duration // largest time to forget: earlier states are kept for this time
	states  []state
	split   atomic.Pointer[split] // nil: all nodes use this vault
}

// A split has some nodes use a copy of the vault, which is given up in the end.
type split struct {
	copy   *vault
	losers map[int]bool // nodes that use it
}

// A state is the content of the store at a time.
type state struct {
	at     time.Time
	tables mem.TableSnapshot
}

// stateEvery is the smallest time between two kept states.
const stateEvery = 50 * time.Millisecond

func newVault(engine *mem.Backend, leases *leases) *vault {
	v := &vault{engine: engine, leases: leases}
	v.open()
	return v
}

// open opens the store again, with an empty cache.
func (v *vault) open() {
	var err error
	if v.base, err = recordstore.Open(background, v.engine, nil); err != nil {
		panic(fmt.Sprintf("open the vault: %v", err))
	}
}

// keep saves the state before a write.
func (v *vault) keep() {
	if v.forgets == 0 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	if n := len(v.states); n > 0 && now.Sub(v.states[n-1].at) < stateEvery {
		return
	}
	v.states = slices.DeleteFunc(v.states, func(s state) bool { return now.Sub(s.at) > v.forgets })
	v.states = append(v.states, state{now, v.engine.Snapshot()})
}

// forget returns the store to its state d ago, or a little later: the state before the first
// write after that time.
func (v *vault) forget(d time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	then := time.Now().Add(-d)
	i := slices.IndexFunc(v.states, func(s state) bool { return !s.at.Before(then) })
	if i < 0 {
		return
	}
	v.engine.Restore(v.states[i].tables)
	v.states = v.states[:i]
	v.open()
}

// divide makes a copy, which some nodes use from now on.
func (v *vault) divide(losers map[int]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.split.Store(&split{newVault(v.engine.Fork(), v.leases.copied()), losers})
}

// unite gives the copy up.
func (v *vault) unite() { v.split.Store(nil) }

// records is the access of a process to the vault. It has the methods of store.Store that
// worlds call. Another method panics, because it would never meet a fault.
type records struct {
	store.Store // nil in a world
	*proc
	vault *vault
}

// get reads a record without faults.
func (v *vault) get(id string) (store.Record, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.base.Get(background, id)
}

// side returns the vault or, during a split, the copy that a node uses.
func (v *vault) side(node int) *vault {
	if s := v.split.Load(); s != nil && s.losers[node] {
		return s.copy
	}
	return v
}

// side returns the vault that this node uses.
func (r *records) side() *vault { return r.vault.side(r.node) }

func ask[T any](ctx context.Context, r *records, writes bool, kind, key string, do func(context.Context, *recordstore.Store) (T, error)) (T, error) {
	var out atomic.Pointer[T] // a late effect sets it after its caller has returned
	err := r.run(ctx, effect{kind: "store." + kind, key: short(key), writes: writes, do: func() error {
		v := r.side()
		if writes && !strings.HasSuffix(kind, "-session") { // sessions are not in the file
			v.keep()
		}
		v.mu.RLock()
		defer v.mu.RUnlock()
		got, err := do(context.WithoutCancel(ctx), v.base)
		out.Store(&got)
		return err
	}})
	if got := out.Load(); got != nil {
		return *got, err
	}
	return *new(T), err
}

func do(ctx context.Context, r *records, kind, key string, do func(context.Context, *recordstore.Store) error) error {
	_, err := ask(ctx, r, true, kind, key, func(ctx context.Context, s *recordstore.Store) (struct{}, error) { return struct{}{}, do(ctx, s) })
	return err
}

// A pair holds two results.
type pair[A, B any] struct {
	a A
	b B
}

func (r *records) OpenSession(ctx context.Context, node string, ttl time.Duration) (string, error) {
	return ask(ctx, r, true, "open-session", node, func(ctx context.Context, s *recordstore.Store) (string, error) {
		session, err := s.OpenSession(ctx, node, ttl)
		if err == nil {
			r.side().leases.opened(session, ttl)
		}
		return session, err
	})
}

func (r *records) RenewSession(ctx context.Context, session string) error {
	return do(ctx, r, "renew-session", "", func(ctx context.Context, s *recordstore.Store) error {
		err := s.RenewSession(ctx, session)
		if err == nil {
			r.side().leases.renewed(session)
		}
		return err
	})
}

func (r *records) CountLiveSessions(ctx context.Context) (int, error) {
	return ask(ctx, r, false, "live-sessions", "", func(ctx context.Context, s *recordstore.Store) (int, error) { return s.CountLiveSessions(ctx) })
}

func (r *records) CloseSession(ctx context.Context, session string) error {
	return do(ctx, r, "close-session", "", func(ctx context.Context, s *recordstore.Store) error {
		err := s.CloseSession(ctx, session)
		if err == nil {
			r.side().leases.closed(session)
		}
		return err
	})
}

func (r *records) Create(ctx context.Context, rec store.Record, idem *store.Idempotency) (store.Record, bool, error) {
	p, err := ask(ctx, r, true, "create", rec.Job.ID, func(ctx context.Context, s *recordstore.Store) (pair[store.Record, bool], error) {
		rec, existed, err := s.Create(ctx, rec, idem)
		return pair[store.Record, bool]{rec, existed}, err
	})
	return p.a, p.b, err
}

func (r *records) Lookup(ctx context.Context, account string, idem store.Idempotency) (store.Record, error) {
	return ask(ctx, r, false, "lookup", account, func(ctx context.Context, s *recordstore.Store) (store.Record, error) {
		return s.Lookup(ctx, account, idem)
	})
}

func (r *records) Get(ctx context.Context, jobID string) (store.Record, error) {
	return ask(ctx, r, false, "get", jobID, func(ctx context.Context, s *recordstore.Store) (store.Record, error) { return s.Get(ctx, jobID) })
}

func (r *records) Head(ctx context.Context, jobID string) (*store.JobHead, error) {
	return ask(ctx, r, false, "head", jobID, func(ctx context.Context, s *recordstore.Store) (*store.JobHead, error) { return s.Head(ctx, jobID) })
}

func (r *records) Revisions(ctx context.Context, jobIDs []string, writer string) ([]store.Revision, error) {
	return ask(ctx, r, false, "revisions", "", func(ctx context.Context, s *recordstore.Store) ([]store.Revision, error) {
		return s.Revisions(ctx, jobIDs, writer)
	})
}

func (r *records) ListActiveJobs(ctx context.Context, accounts []string, since time.Time, limit int) ([][]string, error) {
	return ask(ctx, r, false, "active", "", func(ctx context.Context, s *recordstore.Store) ([][]string, error) {
		return s.ListActiveJobs(ctx, accounts, since, limit)
	})
}

func (r *records) List(ctx context.Context, account string, limit int, cursor string) ([]*rowmill.Job, string, error) {
	p, err := ask(ctx, r, false, "list", account, func(ctx context.Context, s *recordstore.Store) (pair[[]*rowmill.Job, string], error) {
		jobs, next, err := s.List(ctx, account, limit, cursor)
		return pair[[]*rowmill.Job, string]{jobs, next}, err
	})
	return p.a, p.b, err
}

func (r *records) Orphans(ctx context.Context, limit int) ([]store.OrphanJob, error) {
	return ask(ctx, r, false, "orphans", "", func(ctx context.Context, s *recordstore.Store) ([]store.OrphanJob, error) {
		return s.Orphans(ctx, limit)
	})
}

func (r *records) Claim(ctx context.Context, jobID, session string, by store.Claim) (store.Record, error) {
	return ask(ctx, r, true, "claim", jobID, func(ctx context.Context, s *recordstore.Store) (store.Record, error) {
		rec, err := r.claimed(s, jobID, func() (store.Record, error) { return s.Claim(ctx, jobID, session, by) })
		if err == nil {
			r.takes(jobID)
		}
		return rec, err
	})
}

func (r *records) Release(ctx context.Context, f store.Fence) error {
	return do(ctx, r, "release", f.JobID, func(ctx context.Context, s *recordstore.Store) error {
		return r.fenced(s, f, "a release", func() error { return s.Release(ctx, f) })
	})
}

func (r *records) Park(ctx context.Context, f store.Fence, pause time.Duration, message string) error {
	return do(ctx, r, "park", f.JobID, func(ctx context.Context, s *recordstore.Store) error {
		return r.fenced(s, f, "a park", func() error { return s.Park(ctx, f, pause, message) })
	})
}

func (r *records) Unpark(ctx context.Context, jobID string) error {
	return do(ctx, r, "unpark", jobID, func(ctx context.Context, s *recordstore.Store) error { return s.Unpark(ctx, jobID) })
}

func (r *records) Reschedule(ctx context.Context, jobID string, change store.Schedule) (store.Record, error) {
	return ask(ctx, r, true, "reschedule", jobID, func(ctx context.Context, s *recordstore.Store) (store.Record, error) {
		return s.Reschedule(ctx, jobID, change)
	})
}

func (r *records) Update(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	return ask(ctx, r, true, "update", f.JobID, func(ctx context.Context, s *recordstore.Store) (rec store.Record, err error) {
		var taken bool
		err = r.fenced(s, f, "an update", func() error {
			rec, err = s.Update(ctx, f, func(rec *store.Record) error {
				before := rec.Job.RowsTakenOver
				err := change(rec)
				taken = rec.Job.RowsTakenOver > before
				return err
			})
			return err
		})
		if taken && err == nil {
			r.tookOver(f.JobID)
		}
		return rec, err
	})
}

func (r *records) Finish(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	return ask(ctx, r, true, "finish", f.JobID, func(ctx context.Context, s *recordstore.Store) (rec store.Record, err error) {
		err = r.fenced(s, f, "the end", func() error { rec, err = s.Finish(ctx, f, change); return err })
		return rec, err
	})
}

func (r *records) Cancel(ctx context.Context, jobID string, now time.Time, change func(*store.Record)) (store.Record, error) {
	return ask(ctx, r, true, "cancel", jobID, func(ctx context.Context, s *recordstore.Store) (store.Record, error) {
		return s.Cancel(ctx, jobID, now, change)
	})
}

func (r *records) AddArtifact(ctx context.Context, jobID, variant string, a store.Artifact) (store.Record, error) {
	return ask(ctx, r, true, "add-artifact", jobID, func(ctx context.Context, s *recordstore.Store) (store.Record, error) {
		return s.AddArtifact(ctx, jobID, variant, a)
	})
}

func (r *records) MarkShownRunning(ctx context.Context, jobID string) error {
	return do(ctx, r, "show-running", jobID, func(ctx context.Context, s *recordstore.Store) error { return s.MarkShownRunning(ctx, jobID) })
}

func (r *records) CommitParts(ctx context.Context, f store.Fence, parts []store.Part) error {
	return do(ctx, r, "commit-parts", f.JobID, func(ctx context.Context, s *recordstore.Store) error {
		err := r.fenced(s, f, "a part", func() error { return s.CommitParts(ctx, f, parts) })
		if a := r.world.account; a != nil && err == nil {
			a.acks.recorded(parts...)
		}
		return err
	})
}

func (r *records) ReplaceParts(ctx context.Context, f store.Fence, complete store.Part) error {
	return do(ctx, r, "replace-parts", f.JobID+" shard "+strconv.Itoa(complete.Shard), func(ctx context.Context, s *recordstore.Store) error {
		return r.fenced(s, f, "a merged part", func() error { return s.ReplaceParts(ctx, f, complete) })
	})
}

func (r *records) ListParts(ctx context.Context, jobID string) ([]store.Part, error) {
	return ask(ctx, r, false, "list-parts", jobID, func(ctx context.Context, s *recordstore.Store) ([]store.Part, error) { return s.ListParts(ctx, jobID) })
}

func (r *records) ReplaceArtifact(ctx context.Context, jobID, variant string, was, is store.Artifact) (store.Record, error) {
	return ask(ctx, r, true, "replace-artifact", jobID, func(ctx context.Context, s *recordstore.Store) (store.Record, error) {
		return s.ReplaceArtifact(ctx, jobID, variant, was, is)
	})
}

func (r *records) LostParts(ctx context.Context, jobID string) ([]store.Part, error) {
	return ask(ctx, r, false, "lost-parts", jobID, func(ctx context.Context, s *recordstore.Store) ([]store.Part, error) { return s.LostParts(ctx, jobID) })
}

func (r *records) MarkPartsLost(ctx context.Context, f store.Fence, keys []string, change func(*store.Record)) (store.RowTotals, error) {
	return ask(ctx, r, true, "lose-parts", f.JobID, func(ctx context.Context, s *recordstore.Store) (store.RowTotals, error) {
		return s.MarkPartsLost(ctx, f, keys, change)
	})
}

func (r *records) DropParts(ctx context.Context, jobID string) error {
	return do(ctx, r, "drop-parts", jobID, func(ctx context.Context, s *recordstore.Store) error { return s.DropParts(ctx, jobID) })
}

func (r *records) Reserve(ctx context.Context, f store.Fence, usd float64, limit *float64) (store.Record, error) {
	return ask(ctx, r, true, "reserve", f.JobID, func(ctx context.Context, s *recordstore.Store) (rec store.Record, err error) {
		if r.world.account == nil {
			return s.Reserve(ctx, f, usd, limit)
		}
		err = r.fenced(s, f, "a reservation", func() error { rec, err = r.world.account.reserve(s, f, usd, limit); return err })
		return rec, err
	})
}

func (r *records) ListKeys(ctx context.Context) ([]store.APIKey, error) {
	return ask(ctx, r, false, "list-keys", "", func(ctx context.Context, s *recordstore.Store) ([]store.APIKey, error) { return s.ListKeys(ctx) })
}

func (r *records) GetValue(ctx context.Context, name string) (json.RawMessage, int64, error) {
	p, err := ask(ctx, r, false, "get-value", name, func(ctx context.Context, s *recordstore.Store) (pair[json.RawMessage, int64], error) {
		doc, version, err := s.GetValue(ctx, name)
		return pair[json.RawMessage, int64]{doc, version}, err
	})
	return p.a, p.b, err
}

func (r *records) PutValue(ctx context.Context, name string, doc json.RawMessage, version int64) (int64, error) {
	return ask(ctx, r, true, "put-value", name, func(ctx context.Context, s *recordstore.Store) (int64, error) {
		return s.PutValue(ctx, name, doc, version)
	})
}

// ExpiredFiles is not an effect: no world has files, and another effect would change every
// seed.
func (r *records) ExpiredFiles(ctx context.Context, now time.Time, limit int) ([]store.File, error) {
	r.vault.mu.RLock()
	defer r.vault.mu.RUnlock()
	return r.vault.base.ExpiredFiles(ctx, now, limit)
}

func (r *records) AccountsWithData(ctx context.Context) ([]string, error) {
	return ask(ctx, r, false, "holders", "", func(ctx context.Context, s *recordstore.Store) ([]string, error) { return s.AccountsWithData(ctx) })
}

func (r *records) RetainedJobs(ctx context.Context, account string, ended time.Time, limit int) ([]string, error) {
	return ask(ctx, r, false, "held", account, func(ctx context.Context, s *recordstore.Store) ([]string, error) {
		return s.RetainedJobs(ctx, account, ended, limit)
	})
}

func (r *records) RemoveData(ctx context.Context, jobID string, now time.Time) (store.Record, error) {
	return ask(ctx, r, true, "remove-data", jobID, func(ctx context.Context, s *recordstore.Store) (store.Record, error) {
		return s.RemoveData(ctx, jobID, now)
	})
}

func (r *records) MarkDataDeleted(ctx context.Context, jobID string) error {
	return do(ctx, r, "data-gone", jobID, func(ctx context.Context, s *recordstore.Store) error { return s.MarkDataDeleted(ctx, jobID) })
}

func (r *records) ListDueRemovals(ctx context.Context, by time.Time, limit int) ([]string, error) {
	return ask(ctx, r, false, "due", "", func(ctx context.Context, s *recordstore.Store) ([]string, error) {
		return s.ListDueRemovals(ctx, by, limit)
	})
}

func (r *records) KeepInput(ctx context.Context, jobID string, until time.Time) error {
	return do(ctx, r, "keep-input", jobID, func(ctx context.Context, s *recordstore.Store) error { return s.KeepInput(ctx, jobID, until) })
}

func (r *records) MarkInputRemoved(ctx context.Context, jobID string, now time.Time) error {
	return do(ctx, r, "input-gone", jobID, func(ctx context.Context, s *recordstore.Store) error { return s.MarkInputRemoved(ctx, jobID, now) })
}

func (r *records) MarkContinued(ctx context.Context, jobID, by string) error {
	return do(ctx, r, "continued", jobID, func(ctx context.Context, s *recordstore.Store) error { return s.MarkContinued(ctx, jobID, by) })
}

func (r *records) Time(ctx context.Context) (time.Time, error) {
	return ask(ctx, r, false, "time", "", func(ctx context.Context, s *recordstore.Store) (time.Time, error) { return s.Time(ctx) })
}

func (r *records) ConfirmPrimary(ctx context.Context) error {
	return do(ctx, r, "confirm", "", func(ctx context.Context, s *recordstore.Store) error {
		if r.side() != r.vault {
			return fmt.Errorf("%w: the other side has the primary", rowmill.ErrUnavailable)
		}
		return s.ConfirmPrimary(ctx)
	})
}

func (r *records) Ping(ctx context.Context) error {
	return do(ctx, r, "ping", "", func(ctx context.Context, s *recordstore.Store) error { return s.Ping(ctx) })
}

// Close does nothing: other processes use the vault.
func (r *records) Close() error { return nil }
