// Package storetest is the conformance suite of store.Store: it tests every rule of the
// contract. Every implementation must pass Run. The package knows no implementation.
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// A Harness gives the suite new, empty storage for records, and control of the clock.
type Harness struct {
	// Open opens a store on the storage. The suite closes the store, and may then open
	// another one to check stored data.
	Open func(t testing.TB) store.Store
	// Advance moves the clock that decides when sessions and idempotency keys expire.
	// With a server's clock, Advance sleeps.
	Advance func(d time.Duration)
	// Now reads the clock that Advance moves.
	Now func() time.Time
	// Edit replaces each JSON document of an open store with the result of edit. Tests
	// use it to add members, as a newer version of Rowmill would. kind is one of the
	// constants Doc…. id is the id of the job, the key or the entry; for a part it is the
	// job id followed by the part's key. Edit is nil for a store that keeps its documents
	// in another store.
	Edit func(t testing.TB, s store.Store, edit func(kind, id string, doc []byte) []byte)
	// Sleeps means that Advance really waits. Tests that need days are then skipped.
	Sleeps bool
	// TTL is the ttl of sessions in tests that let sessions expire. It must be short if
	// Advance sleeps, but much longer than a few operations. Zero means one minute.
	TTL time.Duration
}

// long is a ttl that is longer than any test.
const long = 24 * time.Hour

// Run runs the suite. It calls fresh once for each test.
func Run(t *testing.T, fresh func(t *testing.T) Harness) {
	tests := []struct {
		name string
		run  func(*suite)
	}{
		{"Operations", testOperations},
		{"CreateAndGet", testCreateAndGet},
		{"CreateTwice", testCreateTwice},
		{"CreateRefuses", testCreateRefuses},
		{"RecordSurvivesWhole", testRecordSurvivesWhole},
		{"Idempotency", testIdempotency},
		{"IdempotencyExpires", testIdempotencyExpires},
		{"IdempotencyRace", testIdempotencyRace},
		{"ContinuedOnce", testContinuedOnce},
		{"ListNewestFirst", testListNewestFirst},
		{"ListAll", testListAll},
		{"ListUnderInserts", testListUnderInserts},
		{"ListCursor", testListCursor},
		{"Sessions", testSessions},
		{"SessionExpires", testSessionExpires},
		{"Claim", testClaim},
		{"ClaimRefuses", testClaimRefuses},
		{"ClaimRace", testClaimRace},
		{"Release", testRelease},
		{"Fencing", testFencing},
		{"OrphansFair", testOrphansFair},
		{"OrphansPriority", testOrphansPriority},
		{"OrphansTakeTurns", testOrphansTakeTurns},
		{"OrphansOfTheDead", testOrphansOfTheDead},
		{"OneOwner", testOneOwner},
		{"Claims", testClaims},
		{"ClaimsCleared", testClaimsCleared},
		{"ClaimsBounded", testClaimsBounded},
		{"Park", testPark},
		{"Reschedule", testReschedule},
		{"Events", testEvents},
		{"EventsBounded", testEventsBounded},
		{"Revisions", testRevisions},
		{"Active", testActive},
		{"Writers", testWriters},
		{"Update", testUpdate},
		{"UpdateTransitions", testUpdateTransitions},
		{"UpdateRefuses", testUpdateRefuses},
		{"UpdatePanics", testUpdatePanics},
		{"UpdateRace", testUpdateRace},
		{"Finish", testFinish},
		{"FinishRecounts", testFinishRecounts},
		{"Terminal", testTerminal},
		{"Cancel", testCancel},
		{"CancelRace", testCancelRace},
		{"AddArtifact", testAddArtifact},
		{"ReplaceArtifact", testReplaceArtifact},
		{"AddArtifactRace", testAddArtifactRace},
		{"ArtifactCrowd", testArtifactCrowd},
		{"CommitParts", testCommitParts},
		{"CommitPartsRepeated", testCommitPartsRepeated},
		{"CommitPartsRace", testCommitPartsRace},
		{"ReplaceParts", testReplaceParts},
		{"LoseParts", testLoseParts},
		{"ListParts", testListParts},
		{"DropParts", testDropParts},
		{"Usage", testUsage},
		{"UsageRepeated", testUsageRepeated},
		{"UsageRace", testUsageRace},
		{"UsageOfCarriedRows", testUsageOfCarriedRows},
		{"UsageOutlivesJobs", testUsageOutlivesJobs},
		{"UsageOfEstimates", testUsageOfEstimates},
		{"UsageByDay", testUsageByDay},
		{"UsageByKey", testUsageByKey},
		{"UsageIsTheSumOverParts", testUsageIsTheSumOverParts},
		{"Reserve", testReserve},
		{"ReserveRefuses", testReserveRefuses},
		{"ReserveAgain", testReserveAgain},
		{"ReserveEndsWithTheJob", testReserveEndsWithTheJob},
		{"ReserveCountsNothingTwice", testReserveCountsNothingTwice},
		{"ReserveRace", testReserveRace},
		{"ReserveCrowd", testReserveCrowd},
		{"ReserveByMonth", testReserveByMonth},
		{"FinishEstimate", testFinishEstimate},
		{"NamesApart", testNamesApart},
		{"TotalsGrowByDigits", testTotalsGrowByDigits},
		{"LargeSums", testLargeSums},
		{"ReplaceManyParts", testReplaceManyParts},
		{"RetainedJobs", testRetainedJobs},
		{"Time", testTime},
		{"EndIsTheStores", testEndIsTheStores},
		{"RemoveData", testRemoveData},
		{"DueJobs", testDueJobs},
		{"Input", testInput},
		{"ShowRunning", testShowRunning},
		{"Keys", testKeys},
		{"ReplaceKey", testReplaceKey},
		{"ReplaceKeyRace", testReplaceKeyRace},
		{"Files", testFiles},
		{"Batches", testBatches},
		{"Deliveries", testDeliveries},
		{"DeliveriesDue", testDeliveriesDue},
		{"DeliveriesRace", testDeliveriesRace},
		{"DeliveriesTakenOnce", testDeliveriesTakenOnce},
		{"Audit", testAudit},
		{"AuditUnderInserts", testAuditUnderInserts},
		{"AuditAfter", testAuditAfter},
		{"AuditRefuses", testAuditRefuses},
		{"Values", testValues},
		{"ValuesRace", testValuesRace},
		{"ListValues", testListValues},
		{"UnknownMembers", testUnknownMembers},
		{"NewerRecords", testNewerRecords},
		{"Reopen", testReopen},
		{"Context", testContext},
		{"PingAndClose", testPingAndClose},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := fresh(t)
			if h.TTL == 0 {
				h.TTL = time.Minute
			}
			s := &suite{T: t, Harness: h, start: time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.UTC)}
			s.Store = h.Open(t)
			t.Cleanup(func() {
				if err := s.Store.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			tt.run(s)
		})
	}
}

// A suite holds the state of one test: the test, its storage and the open store.
type suite struct {
	*testing.T
	Harness
	store.Store
	start time.Time // creation time of the first job
	made  int       // number of jobs so far

	sessions []string // ids of all sessions that the test has opened
}

// must ends the test if a call has failed. results are all results of the call; the last
// is the error.
func (s *suite) must(results ...any) {
	s.Helper()
	must.Succeed(s, lastError(s, results))
}

// errAny stands for any error, where the contract names no specific error.
var errAny = errors.New("an error")

// wantError returns a function that takes all results of a call: the call must fail with want.
func (s *suite) wantError(what string, want error) func(results ...any) {
	return func(results ...any) {
		s.Helper()
		if err := lastError(s, results); err == nil || !errors.Is(want, errAny) && !errors.Is(err, want) {
			s.Errorf("%s: error %v, want %v", what, err, want)
		}
	}
}

// lastError returns the error of a call: its last result.
func lastError(t testing.TB, results []any) error {
	t.Helper()
	last := results[len(results)-1]
	err, ok := last.(error)
	if !ok && last != nil {
		t.Fatalf("the last result of the call is a %T, want an error", last)
	}
	return err
}

// wantEqual compares two values, with their Go types.
func (s *suite) wantEqual(what string, want, got any) {
	s.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// reopen closes the store and opens it again.
func (s *suite) reopen() {
	s.Helper()
	s.must(s.Close())
	s.Store = s.Open(s)
}

// newRecord returns a pending job that was created one second after the last one.
func (s *suite) newRecord(account string) store.Record {
	s.made++
	return store.Record{
		Job: rowmill.Job{
			ID:           fmt.Sprintf("job-%04d", s.made),
			Status:       rowmill.StatusPending,
			RunType:      rowmill.RunFull,
			Model:        "m",
			Instructions: rowmill.Instructions{Sampling: map[string]any{}},
			JobTimes:     rowmill.JobTimes{Created: s.start.Add(time.Duration(s.made) * time.Second)},
		},
		Spec: rowmill.Spec{
			Account:  account,
			Model:    rowmill.Model{ID: "m", Kind: rowmill.KindGeneration, ContextLength: 4096},
			Inline:   []string{"row"},
			Sampling: map[string]any{},
		},
	}
}

// create stores a new job of an account and returns its id.
func (s *suite) create(account string) string {
	s.Helper()
	rec, existed, err := s.Create(s.Context(), s.newRecord(account), nil)
	if err != nil || existed {
		s.Fatalf("create: existed %v, %v", existed, err)
	}
	return rec.Job.ID
}

// session opens a session that lives longer than the test.
func (s *suite) session() string {
	s.Helper()
	id := must.Get(s.OpenSession(s.Context(), "node", long))(s)
	s.sessions = append(s.sessions, id)
	return id
}

// claim makes session the owner of a job and returns the fence.
func (s *suite) claim(id, session string) store.Fence {
	s.Helper()
	rec := must.Get(s.Claim(s.Context(), id, session, store.Claim{}))(s)
	return store.Fence{JobID: id, Session: session, Epoch: rec.Epoch}
}

// createClaimed creates and claims a job of an account.
func (s *suite) createClaimed(account string) store.Fence {
	s.Helper()
	return s.claim(s.create(account), s.session())
}

// createRunning creates a claimed and running job with this number of rows.
func (s *suite) createRunning(rows int64) store.Fence {
	s.Helper()
	f := s.createClaimed("a")
	s.update(f, func(r *store.Record) error {
		r.Job.NumRows = &rows
		return moveThrough(r, rowmill.StatusStarting, rowmill.StatusRunning)
	})
	return f
}

// update changes a record under a fence. It must succeed.
func (s *suite) update(f store.Fence, change func(*store.Record) error) store.Record {
	s.Helper()
	return must.Get(s.Update(s.Context(), f, change))(s)
}

// finish ends a running job, with parts for all its rows when it succeeds.
func (s *suite) finish(f store.Fence, status rowmill.Status) store.Record {
	s.Helper()
	if rows := s.get(f.JobID).Job.NumRows; rows != nil && status == rowmill.StatusSucceeded {
		s.commit(f, store.Part{Key: "all", Rows: *rows, Complete: true})
	}
	return must.Get(s.Finish(s.Context(), f, func(r *store.Record) error { return moveThrough(r, status) }))(s)
}

// end ends a job with a status, and commits no parts.
func (s *suite) end(f store.Fence, status rowmill.Status) {
	s.Helper()
	if status == rowmill.StatusCancelled {
		s.must(s.Cancel(s.Context(), f.JobID, s.start, nil))
		return
	}
	s.must(s.Finish(s.Context(), f, func(r *store.Record) error { return moveThrough(r, status) }))
}

// commit stores the parts of a job. It sets the total rows of each part to Part.Rows.
func (s *suite) commit(f store.Fence, parts ...store.Part) {
	s.Helper()
	for i := range parts {
		parts[i].Totals.Rows = parts[i].Rows
	}
	s.must(s.CommitParts(s.Context(), f, parts))
}

// get reads a job, which must exist.
func (s *suite) get(id string) store.Record {
	s.Helper()
	rec, err := s.Get(s.Context(), id)
	if err != nil {
		s.Fatalf("get %s: %v", id, err)
	}
	head, err := s.Head(s.Context(), id)
	if err != nil {
		s.Fatalf("head of %s: %v", id, err)
	}
	s.wantSame("head", rec.Head(), head)
	return rec
}

// wantUnchanged checks that a job equals before.
func (s *suite) wantUnchanged(before store.Record) {
	s.Helper()
	s.wantSame("record", before, s.get(before.Job.ID))
}

// wantSame compares two values as JSON: a store may return a number of a free-form map as
// another Go type, but not as another number.
func (s *suite) wantSame(what string, want, got any) {
	s.Helper()
	s.wantEqual(what, asJSON(s, want), asJSON(s, got))
}

// callAtOnce makes n calls at the same time and reports their errors.
func (s *suite) callAtOnce(n int, call func(i int) error) {
	s.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := call(i); err != nil {
				s.Errorf("call %d of %d at the same time: %v", i, n, err)
			}
		})
	}
	wg.Wait()
}

// countWinners makes n calls at the same time and returns how many succeed. The others must
// return the error refused.
func (s *suite) countWinners(n int, refused error, call func(i int) error) int {
	s.Helper()
	var won atomic.Int32
	s.callAtOnce(n, func(i int) error {
		err := call(i)
		if err == nil {
			won.Add(1)
		}
		if errors.Is(err, refused) {
			return nil
		}
		return err
	})
	return int(won.Load())
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatalf("encode %T: %v", v, err)
	}
	return string(raw)
}

// moveThrough moves a job through the given states, one after the other.
func moveThrough(r *store.Record, states ...rowmill.Status) error {
	for _, next := range states {
		if err := r.Job.Become(next, time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)); err != nil {
			return err
		}
	}
	return nil
}

// ids returns the ids of jobs in order.
func ids(jobs []*rowmill.Job) []string {
	out := []string{}
	for _, j := range jobs {
		out = append(out, j.ID)
	}
	return out
}

// endedContext returns a cancelled context.
func endedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
