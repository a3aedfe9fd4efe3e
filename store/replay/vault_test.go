package replay_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv/mem"
	"github.com/rowmill/rowmill/store/records"
	"github.com/rowmill/rowmill/store/replay"
	"github.com/rowmill/rowmill/store/storetest"
)

// A vault is a store that can be put back to an earlier state.
type vault struct {
	store.Store
	t                *testing.T
	engine           *mem.Backend
	ahead            atomic.Int64 // ns; how far the clock of the store is ahead
	kept             mem.TableSnapshot
	unreachable      bool   // the store is unreachable
	refuseChanges    bool   // the store refuses all changes of records
	forgetAgain      bool   // forget is called again after the next Update
	loseClaimAnswers bool   // answers to claims are lost
	loseAnswers      bool   // answers to submissions, cancels and finishes are lost
	afterMarks       func() // called once after marks are read and before they are returned
}

func newVault(t *testing.T) *vault {
	v := &vault{t: t}
	v.engine = mem.New(func() time.Time { return time.Now().Add(time.Duration(v.ahead.Load())) })
	v.open()
	t.Cleanup(func() { v.Store.Close() })
	return v
}

func (v *vault) open() {
	v.t.Helper()
	s := must.Get(records.Open(context.Background(), v.engine, nil))(v.t)
	v.Store = s
}

func (v *vault) Close() error { return nil } // called by each node; the vault serves several

// keep saves the state that a later forget restores.
func (v *vault) keep() {
	v.kept = v.engine.Snapshot()
}

func (v *vault) forget() {
	v.t.Helper()
	v.ahead.Add(int64(10 * time.Millisecond)) // a real server takes longer to return, so epochs of lost claims do not come back
	v.engine.Restore(v.kept)
	v.open()
}

func (v *vault) Revisions(ctx context.Context, ids []string, writer string) ([]store.Revision, error) {
	if v.unreachable {
		return nil, rowmill.ErrUnavailable
	}
	marks, err := v.Store.Revisions(ctx, ids, writer)
	if do := v.afterMarks; do != nil {
		v.afterMarks = nil
		do()
	}
	return marks, err
}

func (v *vault) Update(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	if v.refuseChanges {
		return store.Record{}, rowmill.ErrUnavailable
	}
	rec, err := v.Store.Update(ctx, f, change)
	if v.forgetAgain {
		v.forgetAgain = false
		v.forget()
	}
	return rec, err
}

func (v *vault) Claim(ctx context.Context, jobID, session string, by store.Claim) (store.Record, error) {
	rec, err := v.Store.Claim(ctx, jobID, session, by)
	if v.loseClaimAnswers && err == nil {
		return store.Record{}, store.ErrOutcomeUnknown
	}
	return rec, err
}

func (v *vault) Create(ctx context.Context, rec store.Record, idem *store.Idempotency) (store.Record, bool, error) {
	stored, existed, err := v.Store.Create(ctx, rec, idem)
	if v.loseAnswers && err == nil {
		return store.Record{}, false, store.ErrOutcomeUnknown
	}
	return stored, existed, err
}

func (v *vault) Cancel(ctx context.Context, jobID string, now time.Time, change func(*store.Record)) (store.Record, error) {
	rec, err := v.Store.Cancel(ctx, jobID, now, change)
	if v.loseAnswers && err == nil {
		return store.Record{}, store.ErrOutcomeUnknown
	}
	return rec, err
}

func (v *vault) Finish(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	rec, err := v.Store.Finish(ctx, f, change)
	if v.loseAnswers && err == nil {
		return store.Record{}, store.ErrOutcomeUnknown
	}
	return rec, err
}

// A node is a Store over a vault.
type node struct {
	*replay.Store
	t       *testing.T
	vault   *vault
	session string
}

func (v *vault) node() *node { v.t.Helper(); return v.nodeWith(replay.Config{}) }

func (v *vault) nodeWith(remembers replay.Config) *node {
	v.t.Helper()
	remembers.Store, remembers.CheckInterval = v, time.Hour
	if remembers.Log == nil {
		remembers.Log = slog.New(slog.DiscardHandler)
	}
	n := &node{t: v.t, vault: v, Store: replay.New(remembers)}
	v.t.Cleanup(func() { n.Close() })
	var err error
	if n.session, err = n.OpenSession(v.t.Context(), "node", time.Hour); err != nil {
		v.t.Fatal(err)
	}
	return n
}

func (n *node) must(err error) {
	n.t.Helper()
	must.Succeed(n.t, err)
}

func (n *node) check() { n.t.Helper(); n.must(n.CheckLostWrites(n.t.Context())) }

func (n *node) get() store.Record {
	n.t.Helper()
	rec, err := n.vault.Get(n.t.Context(), "job-1")
	n.must(err)
	return rec
}

var idem = &store.Idempotency{Key: "k", BodyHash: "h", TTL: time.Hour}

func (n *node) create() {
	n.t.Helper()
	_, _, err := n.Create(n.t.Context(), storetest.NewRecord("job-1", "a", "row"), idem)
	n.must(err)
}

func (n *node) claim() store.Fence {
	n.t.Helper()
	rec, err := n.Claim(n.t.Context(), "job-1", n.session, store.Claim{})
	n.must(err)
	return store.Fence{JobID: "job-1", Session: rec.Session, Epoch: rec.Epoch}
}

// run moves the job to running, with six rows.
func (n *node) run(f store.Fence) {
	n.t.Helper()
	_, err := n.Update(n.t.Context(), f, func(r *store.Record) error {
		rows := int64(6)
		r.Job.NumRows, r.Shards, r.Job.Message = &rows, 1, "Processing rows."
		for _, next := range []rowmill.Status{rowmill.StatusStarting, rowmill.StatusRunning} {
			if r.Job.Status != rowmill.StatusRunning {
				if err := r.Job.Become(next, time.Now()); err != nil {
					return err
				}
			}
		}
		return nil
	})
	n.must(err)
}

// begin creates a job and moves it to running.
func (n *node) begin() store.Fence {
	n.t.Helper()
	n.create()
	f := n.claim()
	n.run(f)
	return f
}

// wantSuccess checks that the job succeeded with six rows in one merged part.
func (n *node) wantSuccess() {
	n.t.Helper()
	n.is(rowmill.StatusSucceeded)
	n.wantParts(6, "m")
}

// of returns the totals of n rows.
func of(n int64) store.RowTotals {
	return store.RowTotals{Rows: n, InputTokens: 10 * n, OutputTokens: 3 * n}
}

func (n *node) commit(f store.Fence, key string, rows, all int64) {
	n.t.Helper()
	n.must(n.CommitParts(n.t.Context(), f, []store.Part{{Key: key, Rows: rows, Totals: of(rows)}}))
}

func (n *node) merge(f store.Fence, key string) {
	n.t.Helper()
	n.must(n.ReplaceParts(n.t.Context(), f, store.Part{Key: key, Rows: 6, Complete: true, Totals: of(6)}))
}

func (n *node) finish(f store.Fence) {
	n.t.Helper()
	_, err := n.Finish(n.t.Context(), f, func(r *store.Record) error {
		r.Artifacts = map[string]store.Artifact{"full": {Key: "full-key", Size: 1}}
		return r.Job.Become(rowmill.StatusSucceeded, time.Now())
	})
	n.must(err)
}

func (n *node) cancel() {
	n.t.Helper()
	_, err := n.Cancel(n.t.Context(), "job-1", time.Now(), nil)
	n.must(err)
}

// wantParts checks the parts of the job, and that record and ledger agree with them.
func (n *node) wantParts(rows int64, keys ...string) {
	n.t.Helper()
	parts, err := n.vault.ListParts(n.t.Context(), "job-1")
	n.must(err)
	found := map[string]bool{}
	for _, p := range parts {
		found[p.Key] = true
	}
	for _, key := range keys {
		if !found[key] {
			n.t.Errorf("part %s is not recorded", key)
		}
	}
	if len(found) != len(keys) {
		n.t.Errorf("the parts are %v, want %v", found, keys)
	}
	used, _ := storetest.SumUsage(n.t, n.vault, "a", time.Time{}, time.Now().AddDate(0, 0, 2))
	if done := n.get().Job.RowsDone; used != of(rows) || done != rows {
		n.t.Errorf("the ledger has %+v and the record %d rows, want %d rows", used, done, rows)
	}
}

func (n *node) is(status rowmill.Status) {
	n.t.Helper()
	if got := n.get().Job.Status; got != status {
		n.t.Errorf("the job is %s, want %s", got, status)
	}
}

func (n *node) continued(by string) {
	n.t.Helper()
	if got := n.get().Job.ContinuedBy; got == nil || *got != by {
		n.t.Errorf("the job is continued by %v, want %s", got, by)
	}
}
