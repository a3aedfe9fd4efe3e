package records_test

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
	"github.com/rowmill/rowmill/store/kv/mem"
	"github.com/rowmill/rowmill/store/records"
	"github.com/rowmill/rowmill/store/storetest"
)

// last is the offset of a checksum byte in a stored value.
const last = 11

// TestDamageCostsOneRecord damages one record after another. A read by name must report
// the damage, and lists must hold all other records.
func TestDamageCostsOneRecord(t *testing.T) {
	t.Parallel()
	ctx, backend, log := t.Context(), mem.New(time.Now), new(bytes.Buffer)
	s, err := records.Open(ctx, backend, slog.New(slog.NewTextHandler(log, nil)))
	must.Succeed(t, err)
	for i := range 3 {
		if _, _, err := s.Create(ctx, storetest.NewRecord(storetest.JobID(i), "a", "row"), nil); err != nil {
			t.Fatal(err)
		}
	}
	session, err := s.OpenSession(ctx, "node", time.Hour)
	must.Succeed(t, err)
	damaged := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, store.ErrDamaged) {
			t.Errorf("%s: %v, want ErrDamaged", what, err)
		}
	}

	// A damaged specification: the job is still listed.
	first := storetest.JobID(0)
	backend.DamageValue("specs", []byte(first), last)
	_, err = s.Get(ctx, first)
	damaged("get", err)
	if jobs, _, err := s.List(ctx, "a", 9, ""); err != nil || len(jobs) != 3 {
		t.Errorf("list: %d jobs, %v", len(jobs), err)
	}

	// A damaged header: lists hold the other jobs.
	second, third := storetest.JobID(1), storetest.JobID(2)
	backend.DamageValue("jobs", []byte(second), last)
	_, err = s.Head(ctx, second)
	damaged("head", err)
	jobs, next, err := s.List(ctx, "a", 1, "")
	if err != nil || len(jobs) != 1 || jobs[0].ID != third {
		t.Fatalf("first page: %v, %v", jobs, err)
	}
	if jobs, next, err = s.List(ctx, "a", 1, next); err != nil || len(jobs) != 1 || jobs[0].ID != first || next != "" {
		t.Errorf("second page: %v, %q, %v", jobs, next, err)
	}
	// The id of a record is damaged: lists hold the other jobs.
	must.Succeed(t, backend.Update(ctx, func(t kv.Tx) error { t.Delete("jobs", []byte(second)); return nil }))
	if jobs, _, err := s.List(ctx, "a", 9, ""); err != nil || len(jobs) != 2 {
		t.Errorf("list: %d jobs, %v", len(jobs), err)
	}
	orphans, err := s.Orphans(ctx, 9)
	if got := idsOf(orphans); err != nil || !slices.Equal(got, []string{first, third}) {
		t.Errorf("orphans %v, %v", got, err)
	}
	if marks, err := s.Revisions(ctx, []string{second, third}, ""); err != nil || marks[0] != (store.Revision{}) || marks[1].Version != 1 {
		t.Errorf("marks %+v, %v", marks, err)
	}

	// A damaged part: its job cannot succeed.
	claimed, err := s.Claim(ctx, third, session, store.Claim{})
	must.Succeed(t, err)
	f, totals := store.Fence{JobID: third, Session: session, Epoch: claimed.Epoch}, store.RowTotals{Rows: 1, InputTokens: 1}
	must.Succeed(t, s.CommitParts(ctx, f, []store.Part{{Key: "p", Rows: 1, Totals: totals}}))
	backend.DamageValue("parts", records.FirstKey(t, s, "parts"), last)
	_, err = s.ListParts(ctx, third)
	damaged("list parts", err)
	_, err = s.Finish(ctx, f, func(r *store.Record) error {
		r.Job.NumRows = &totals.Rows
		return errors.Join(r.Job.Become(rowmill.StatusStarting, time.Now()), r.Job.Become(rowmill.StatusRunning, time.Now()), r.Job.Become(rowmill.StatusSucceeded, time.Now()))
	})
	damaged("finish", err)

	// A damaged ledger entry: no sum is returned.
	backend.DamageValue("usage", records.FirstKey(t, s, "usage"), last)
	_, err = s.Usage(ctx, "a", time.Now().AddDate(0, 0, -1), time.Now())
	damaged("usage", err)

	// A damaged API key, file or audit entry: lists hold the others.
	for _, id := range []string{"k1", "k2"} {
		must.Succeed(t, s.PutKey(ctx, store.APIKey{ID: id, Account: "a"}))
	}
	backend.DamageValue("keys", []byte("k1"), last)
	if keys, err := s.ListKeys(ctx); err != nil || len(keys) != 1 || keys[0].ID != "k2" {
		t.Errorf("keys %v, %v", keys, err)
	}
	if err := s.DeleteKey(ctx, "k1"); err != nil {
		t.Errorf("delete a damaged key: %v", err)
	}
	if !strings.Contains(log.String(), "a stored record is damaged and was left out of a list") {
		t.Error("nothing was logged")
	}
}

// TestDamagedSpecificationEndsItsJob claims one job and cancels another whose
// specification or texts are damaged. Both must end, and can be read, listed, cleaned
// up and removed like other jobs.
func TestDamagedSpecificationEndsItsJob(t *testing.T) {
	t.Parallel()
	for _, table := range []kv.Table{"specs", "texts"} {
		ctx, backend := t.Context(), mem.New(time.Now)
		s, err := records.Open(ctx, backend, nil)
		must.Succeed(t, err)
		must := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("table %s: %s: %v", table, what, err)
			}
		}
		for i := range 2 {
			rec, text := storetest.NewRecord(storetest.JobID(i), "a", "row"), "system"
			rec.Job.System, rec.Spec.System = &text, text
			rec.Spec.Raw = &rowmill.RawBatch{Dialect: rowmill.DialectOpenAI, Path: "/v1/chat/completions"}
			_, _, err := s.Create(ctx, rec, nil)
			must("create", err)
			backend.DamageValue(table, []byte(rec.Job.ID), last)
		}
		session, err := s.OpenSession(ctx, "node", time.Hour)
		must("open a session", err)

		failed, cancelled := storetest.JobID(0), storetest.JobID(1)
		if _, err := s.Claim(ctx, failed, session, store.Claim{}); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("table %s: claim: %v, want ErrDamaged", table, err)
		}
		rec, err := s.Get(ctx, failed)
		must("get", err)
		reason := rec.Job.FailureReason
		if rec.Job.Status != rowmill.StatusFailed || reason == nil || reason.Code != rowmill.CodeInternalError || !strings.Contains(reason.Message, "specification of the job is damaged") {
			t.Errorf("table %s: a job with a damaged specification is %s for %+v", table, rec.Job.Status, reason)
		}
		_, err = s.Claim(ctx, failed, session, store.Claim{})
		if !errors.Is(err, rowmill.ErrTerminal) {
			t.Errorf("table %s: claim again: %v", table, err)
		}
		rec, err = s.Cancel(ctx, cancelled, time.Now(), func(r *store.Record) { r.Job.Message = "asked" })
		must("cancel", err)
		if rec.Job.Status != rowmill.StatusCancelled || rec.Job.Message != "asked" || !rec.SpecDamaged || rec.Spec.Account != "a" {
			t.Errorf("table %s: it was cancelled as %+v", table, rec)
		}
		batches, _, err := s.ListBatches(ctx, "a", rowmill.DialectOpenAI, store.PageRequest{Limit: 9})
		if err != nil || len(batches) != 2 || batches[0].Spec.Raw == nil {
			t.Errorf("table %s: batches %+v, %v", table, batches, err)
		}
		if orphans, err := s.Orphans(ctx, 9); err != nil || len(orphans) > 0 {
			t.Errorf("table %s: orphans %v, %v", table, orphans, err)
		}
		for _, id := range []string{failed, cancelled} {
			must("the input is gone", s.MarkInputRemoved(ctx, id, time.Now()))
			_, err := s.RemoveData(ctx, id, time.Now())
			must("remove data", err)
			must("data gone", s.MarkDataDeleted(ctx, id))
		}
		storetest.CheckConsistency(t, backend, s)
	}
}

// TestADamagedDeliveryExpires damages a delivery. It is dropped when it has expired, and
// later expired deliveries are dropped after it.
func TestADamagedDeliveryExpires(t *testing.T) {
	t.Parallel()
	ctx, backend, now := t.Context(), mem.New(time.Now), time.Now()
	s := must.Get(records.Open(ctx, backend, nil))(t)
	for i, id := range []string{"msg-1", "msg-2"} {
		d := store.WebhookDelivery{
			ID: id, Account: "a", Endpoint: "one", Event: "job.succeeded", Payload: "{}", Created: now,
			State: store.DeliveryDelivered, Expires: new(now.Add(time.Duration(i) * time.Hour)),
		}
		must.Succeed(t, s.CreateDelivery(ctx, d))
	}
	backend.DamageValue("deliveries", []byte("msg-1"), last)
	for hours := range 2 {
		if n, err := s.DropExpiredDeliveries(ctx, now.Add(time.Duration(hours)*time.Hour), 10); err != nil || n != 1 {
			t.Errorf("after %d h %d deliveries are dropped, %v; want 1", hours, n, err)
		}
	}
	if list, _, err := s.ListDeliveries(ctx, "one", store.PageRequest{Limit: 9}); err != nil || len(list) > 0 {
		t.Errorf("deliveries %v, %v; want none", list, err)
	}
}

// TestRepairIndexes damages one entry of each index. The job is then missing in a list, is
// not run, or does not expire, until the indexes are written again.
func TestRepairIndexes(t *testing.T) {
	t.Parallel()
	for _, table := range []kv.Table{"accounts", "waiting", "owned", "reserved", "held", "due"} {
		ctx, backend := t.Context(), mem.New(time.Now)
		s, err := records.Open(ctx, backend, nil)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("table %s: %v", table, err)
			}
		}
		must(err)
		session, err := s.OpenSession(ctx, "node", time.Hour)
		must(err)
		for i := range 4 {
			rec := storetest.NewRecord(storetest.JobID(i), "a", "row")
			rec.Reserved = 5
			_, _, err := s.Create(ctx, rec, nil)
			must(err)
		}
		_, err = s.Claim(ctx, storetest.JobID(1), session, store.Claim{})
		must(err)
		_, err = s.Cancel(ctx, storetest.JobID(2), time.Now(), func(*store.Record) {})
		must(err)
		entries := func() (keys []string) {
			must(backend.View(ctx, func(tx kv.Tx) error {
				for e, err := range tx.Scan(kv.Range{Table: table}) {
					if err == nil {
						keys = append(keys, string(e.Key))
					}
				}
				return nil
			}))
			return keys
		}
		before := entries()
		if len(before) == 0 {
			t.Fatalf("table %s is empty", table)
		}
		backend.DamageValue(table, []byte(before[0]), last)
		if len(entries()) != len(before)-1 {
			t.Fatalf("table %s is not damaged", table)
		}
		must(s.RepairIndexes(ctx))
		if after := entries(); !slices.Equal(after, before) {
			t.Errorf("table %s: %q, want %q", table, after, before)
		}
		storetest.CheckConsistency(t, backend, s)
	}
}

// TestRebuild loses the record of a part and the key of another. The figures of the job
// then agree with the part that is left.
func TestRebuild(t *testing.T) {
	t.Parallel()
	ctx, backend := t.Context(), mem.New(time.Now)
	s, err := records.Open(ctx, backend, nil)
	must := func(err error) {
		t.Helper()
		must.Succeed(t, err)
	}
	must(err)
	id := storetest.JobID(0)
	_, _, err = s.Create(ctx, storetest.NewRecord(id, "a", "row", "row", "row"), nil)
	must(err)
	session, err := s.OpenSession(ctx, "node", time.Hour)
	must(err)
	rec, err := s.Claim(ctx, id, session, store.Claim{})
	must(err)
	fence := store.Fence{JobID: id, Session: session, Epoch: rec.Epoch}
	for i, key := range []string{"p", "q"} {
		totals := store.RowTotals{Rows: int64(1 + i), InputTokens: 7}
		must(s.CommitParts(ctx, fence, []store.Part{{Key: key, Rows: totals.Rows, Shard: i, Totals: totals}}))
	}
	first := records.FirstKey(t, s, "parts")
	must(backend.Update(ctx, func(tx kv.Tx) error {
		tx.Delete("parts", first)
		tx.Delete("partkeys", []byte(id+"\x00q"))
		return nil
	}))
	must(s.RebuildAfterLoss(ctx))
	rec, err = s.Get(ctx, id)
	must(err)
	if rec.Job.RowsDone != 2 {
		t.Errorf("%d rows are done, want the 2 rows of the second part", rec.Job.RowsDone)
	}
	must(backend.View(ctx, func(tx kv.Tx) error {
		if place, err := tx.Get("partkeys", []byte(id+"\x00q")); err != nil || place == nil {
			t.Errorf("the part is not known by its key: %v", err)
		}
		return nil
	}))
	before := rec.Version
	must(s.RebuildAfterLoss(ctx))
	if rec, err = s.Get(ctx, id); err != nil || rec.Version != before {
		t.Errorf("a second time the record changed from version %d to %d: %v", before, rec.Version, err)
	}
}

func idsOf(orphans []store.OrphanJob) (ids []string) {
	for _, o := range orphans {
		ids = append(ids, o.JobID)
	}
	return ids
}
