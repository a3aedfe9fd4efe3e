package storetest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// An OperationKind says which records an Operation changes.
type OperationKind int

// The kinds of operations. The kinds from WritesJob on change the record of a job.
const (
	Reads         OperationKind = iota
	Writes                      // changes a session, a key, a value, a file, a delivery or the audit record
	CreatesJob                  // creates the record of a job
	WritesJob                   // changes the record without a fence
	WritesEnded                 // changes the record of a job that has ended
	WritesAsOwner               // changes the record under a fence
)

// A Caller has the arguments and results of calls of a store. JobID is the id of the job,
// and also of the key, the value, the file and the delivery that the calls change.
type Caller struct {
	store.Store
	store.Fence
	Ctx context.Context

	Returned store.Record // record that the last call returned; empty if the method returns none
	version  int64        // version of the value
}

// record notes the record that a call returned.
func (c *Caller) record(rec store.Record, err error) error {
	c.Returned = rec
	return err
}

// An Operation is a call of a method of store.Store. It succeeds after the earlier calls
// of Operations, and then changes something.
type Operation struct {
	Method string
	Kind   OperationKind
	Call   func(c *Caller) error
	Check  func(r *store.Record) bool // reports whether the job's record shows the change; nil if Version alone shows it
}

// Operations returns calls of all methods of store.Store in the order of a job's life. end
// is the method that ends the job: "Finish" or "Cancel".
func Operations(end string) []Operation {
	return slices.DeleteFunc(slices.Concat(jobOperations, otherOperations), func(o Operation) bool {
		return o.Method != end && (o.Method == "Finish" || o.Method == "Cancel")
	})
}

// RunAll makes the calls of Operations(end) with call. Each call must change the record of
// the job once, and return the record as it then is.
func (c *Caller) RunAll(t testing.TB, end string, call func(o Operation) error) {
	t.Helper()
	version := int64(0)
	for _, o := range Operations(end) {
		c.Returned = store.Record{}
		if err := call(o); err != nil {
			t.Fatalf("%s: %v", o.Method, err)
		}
		if o.Kind >= CreatesJob {
			version++
		}
		rec, err := c.Get(c.Ctx, c.JobID)
		switch {
		case version == 0:
		case err != nil || rec.Version != version || o.Check != nil && !o.Check(&rec):
			t.Errorf("after %s the record is %s, %v; want version %d", o.Method, asJSON(t, rec), err, version)
		case c.Returned.Version > 0 && asJSON(t, c.Returned) != asJSON(t, rec):
			t.Errorf("%s returned %s, but the record is %s", o.Method, asJSON(t, c.Returned), asJSON(t, rec))
		}
	}
}

// testOperations checks all operations, and that no method of store.Store is missing.
func testOperations(s *suite) {
	called := map[string]bool{"Close": true, "ConfirmPrimary": true} // the tests of the backends call these
	for _, end := range []string{"Finish", "Cancel"} {
		c := &Caller{Store: s.Store, Fence: store.Fence{JobID: "job-" + end}, Ctx: s.Context()}
		c.RunAll(s, end, func(o Operation) error { called[o.Method] = true; return o.Call(c) })
	}
	for m := range reflect.TypeFor[store.Store]().Methods() {
		if !called[m.Name] {
			s.Errorf("Operations has no call of %s", m.Name)
		}
	}
}

// last returns the error of a call: its last result.
func last(results ...any) error {
	err, _ := results[len(results)-1].(error)
	return err
}

var (
	claimOperation = Operation{"Claim", WritesJob, func(c *Caller) error {
		err := c.record(c.Claim(c.Ctx, c.JobID, c.Session, store.Claim{}))
		c.Epoch = cmp.Or(c.Returned.Epoch, c.Epoch)
		return err
	}, func(r *store.Record) bool { return r.Session != "" && r.Epoch > 0 }}

	putValue = Operation{"PutValue", Writes, func(c *Caller) (err error) {
		c.version, err = c.PutValue(c.Ctx, c.JobID, json.RawMessage(`1`), c.version)
		return err
	}, nil}

	isReleased = func(r *store.Record) bool { return r.Session == "" }
	isWhole    = func(r *store.Record) bool { return r.Job.RowsDone == 10 }
	hasEnded   = func(r *store.Record) bool { return r.Job.Status.IsTerminal() && r.Reserved == 0 }
	partOf     = func(key string, shard int, rows int64) store.Part {
		return store.Part{Key: key, Shard: shard, Rows: rows, Accepted: []byte("set"), Totals: store.RowTotals{Rows: rows, InputTokens: 3 * rows, OutputTokens: 5 * rows}}
	}
)

// jobOperations has the operations on the record of a job.
var jobOperations = []Operation{
	{"OpenSession", Writes, func(c *Caller) error {
		session, err := c.OpenSession(c.Ctx, "node", long)
		c.Session = cmp.Or(session, c.Session)
		return err
	}, nil},
	{"Create", CreatesJob, func(c *Caller) error {
		rec, existed, err := c.Create(c.Ctx, NewRecord(c.JobID, "a", "row"), &store.Idempotency{Key: c.JobID, BodyHash: "h", TTL: long})
		if existed {
			return errors.New("the job existed")
		}
		return c.record(rec, err)
	}, isReleased},
	claimOperation,
	{"Release", WritesAsOwner, func(c *Caller) error { return c.Release(c.Ctx, c.Fence) }, isReleased},
	claimOperation,
	{"Park", WritesAsOwner, func(c *Caller) error { return c.Park(c.Ctx, c.Fence, long, "parked") }, isReleased},
	{"Unpark", WritesJob, func(c *Caller) error { return c.Unpark(c.Ctx, c.JobID) }, isReleased},
	claimOperation,
	{"Reschedule", WritesJob, func(c *Caller) error {
		return c.record(c.Reschedule(c.Ctx, c.JobID, store.Schedule{Priority: &store.Reprioritize{Priority: rowmill.Production}}))
	}, func(r *store.Record) bool {
		return r.Job.Priority == rowmill.Production && r.Spec.Priority == rowmill.Production
	}},
	{"MarkShownRunning", WritesJob, func(c *Caller) error { return c.MarkShownRunning(c.Ctx, c.JobID) }, func(r *store.Record) bool { return r.ShownRunning }},
	{"Update", WritesAsOwner, func(c *Caller) error {
		return c.record(c.Update(c.Ctx, c.Fence, func(r *store.Record) error {
			r.Job.NumRows, r.Shards = new(int64(10)), 1
			if r.Job.Status == rowmill.StatusRunning { // a repeat
				return nil
			}
			return moveThrough(r, rowmill.StatusStarting, rowmill.StatusRunning)
		}))
	}, func(r *store.Record) bool { return r.Job.Status == rowmill.StatusRunning && r.Shards == 1 }},
	{"Reserve", WritesAsOwner, func(c *Caller) error { return c.record(c.Reserve(c.Ctx, c.Fence, 1, new(100.0))) }, func(r *store.Record) bool { return r.Reserved == rowmill.MoneyFromUSD(1) }},
	{"CommitParts", WritesAsOwner, func(c *Caller) error {
		return c.CommitParts(c.Ctx, c.Fence, []store.Part{partOf("a", 0, 4), partOf("b", 1, 6)})
	}, isWhole},
	{"MarkPartsLost", WritesAsOwner, func(c *Caller) error { return last(c.MarkPartsLost(c.Ctx, c.Fence, []string{"a"}, nil)) }, func(r *store.Record) bool { return r.Job.RowsDone == 6 }},
	{"CommitParts", WritesAsOwner, func(c *Caller) error {
		return c.CommitParts(c.Ctx, c.Fence, []store.Part{partOf("d", 0, 4)})
	}, isWhole},
	{"ReplaceParts", WritesAsOwner, func(c *Caller) error {
		whole := partOf("c", 0, 4)
		whole.Accepted, whole.Complete = nil, true
		return c.ReplaceParts(c.Ctx, c.Fence, whole)
	}, isWhole},
	{"Finish", WritesAsOwner, func(c *Caller) error {
		return c.record(c.Finish(c.Ctx, c.Fence, func(r *store.Record) error {
			r.Artifacts = map[string]store.Artifact{"full": {Key: "f", Size: 1}}
			return moveThrough(r, rowmill.StatusSucceeded)
		}))
	}, hasEnded},
	{"Cancel", WritesJob, func(c *Caller) error { return c.record(c.Cancel(c.Ctx, c.JobID, time.Now(), nil)) }, hasEnded},
	{"AddArtifact", WritesEnded, func(c *Caller) error { return c.record(c.AddArtifact(c.Ctx, c.JobID, "v", store.Artifact{Key: "k"})) }, func(r *store.Record) bool { return r.Artifacts["v"].Key == "k" }},
	{"ReplaceArtifact", WritesEnded, func(c *Caller) error {
		return c.record(c.ReplaceArtifact(c.Ctx, c.JobID, "v", store.Artifact{Key: "k"}, store.Artifact{Key: "l"}))
	}, func(r *store.Record) bool { return r.Artifacts["v"].Key == "l" }},
	{"MarkContinued", WritesEnded, func(c *Caller) error { return c.MarkContinued(c.Ctx, c.JobID, "next") }, func(r *store.Record) bool { return *r.Job.ContinuedBy == "next" }},
	{"KeepInput", WritesEnded, func(c *Caller) error { return c.KeepInput(c.Ctx, c.JobID, time.Now().Add(time.Hour)) }, func(r *store.Record) bool { return r.InputUntil != nil }},
	{"DropParts", WritesEnded, func(c *Caller) error { return c.DropParts(c.Ctx, c.JobID) }, nil},
	{"MarkInputRemoved", WritesEnded, func(c *Caller) error { return c.MarkInputRemoved(c.Ctx, c.JobID, time.Now()) }, func(r *store.Record) bool { return r.InputRemoved != nil }},
	{"RemoveData", WritesEnded, func(c *Caller) error { return c.record(c.RemoveData(c.Ctx, c.JobID, time.Now())) }, func(r *store.Record) bool { return r.DataRemoved != nil }},
	{"MarkDataDeleted", WritesEnded, func(c *Caller) error { return c.MarkDataDeleted(c.Ctx, c.JobID) }, func(r *store.Record) bool { return r.DataGone }},
}

// deliveryOf returns a pending delivery.
func deliveryOf(id string) store.WebhookDelivery {
	now := time.Now().UTC()
	return store.WebhookDelivery{ID: id, Account: "a", Endpoint: "e", Event: "job.succeeded", Created: now, State: store.DeliveryPending, Due: &now}
}

// otherOperations has the operations on other records, and the reads.
var otherOperations = []Operation{
	{"PutKey", Writes, func(c *Caller) error { return c.PutKey(c.Ctx, store.APIKey{ID: c.JobID}) }, nil},
	{"ReplaceKey", Writes, func(c *Caller) error { return c.ReplaceKey(c.Ctx, store.APIKey{ID: c.JobID, Hash: []byte{1}}, nil) }, nil},
	{"DeleteKey", Writes, func(c *Caller) error { return c.DeleteKey(c.Ctx, c.JobID) }, nil},
	putValue, putValue, // the second needs the version that the first returned
	{"AppendAudit", Writes, func(c *Caller) error {
		return c.AppendAudit(c.Ctx, store.AuditEntry{ID: c.JobID, At: time.Now(), Account: c.JobID, Action: "act", Details: json.RawMessage(`{}`)})
	}, nil},
	{"CreateFile", Writes, func(c *Caller) error {
		return c.CreateFile(c.Ctx, store.File{ID: c.JobID, Account: "a", Purpose: "p", Key: "k", Created: time.Now()})
	}, nil},
	{"GetFile", Reads, func(c *Caller) error { return last(c.GetFile(c.Ctx, c.JobID)) }, nil},
	{"DeleteFile", Writes, func(c *Caller) error { return c.DeleteFile(c.Ctx, c.JobID) }, nil},
	{"CreateDelivery", Writes, func(c *Caller) error { return c.CreateDelivery(c.Ctx, deliveryOf(c.JobID)) }, nil},
	{"GetDelivery", Reads, func(c *Caller) error { return last(c.GetDelivery(c.Ctx, c.JobID)) }, nil},
	{"PutDelivery", Writes, func(c *Caller) error {
		d := deliveryOf(c.JobID)
		d.Version, d.State, d.Due, d.Expires = 1, store.DeliveryFailed, nil, &d.Created
		return last(c.PutDelivery(c.Ctx, d))
	}, nil},
	{"DropExpiredDeliveries", Writes, func(c *Caller) error { return last(c.DropExpiredDeliveries(c.Ctx, time.Now(), 1)) }, nil},
	{"RenewSession", Writes, func(c *Caller) error { return c.RenewSession(c.Ctx, c.Session) }, nil},
	{"CloseSession", Writes, func(c *Caller) error { return c.CloseSession(c.Ctx, c.Session) }, nil},
	{"CountLiveSessions", Reads, func(c *Caller) error { return last(c.CountLiveSessions(c.Ctx)) }, nil},
	{"Lookup", Reads, func(c *Caller) error {
		return c.record(c.Lookup(c.Ctx, "a", store.Idempotency{Key: c.JobID, BodyHash: "h"}))
	}, nil},
	{"Get", Reads, func(c *Caller) error { return c.record(c.Get(c.Ctx, c.JobID)) }, nil},
	{"Head", Reads, func(c *Caller) error { return last(c.Head(c.Ctx, c.JobID)) }, nil},
	{"Revisions", Reads, func(c *Caller) error { return last(c.Revisions(c.Ctx, []string{c.JobID}, "w")) }, nil},
	{"List", Reads, func(c *Caller) error { return last(c.List(c.Ctx, "a", 1, "")) }, nil},
	{"ListAll", Reads, func(c *Caller) error { return last(c.ListAll(c.Ctx, 1, "")) }, nil},
	{"Accounts", Reads, func(c *Caller) error { return last(c.Accounts(c.Ctx)) }, nil},
	{"ListActiveJobs", Reads, func(c *Caller) error { return last(c.ListActiveJobs(c.Ctx, []string{"a"}, time.Now(), 1)) }, nil},
	{"ListBatches", Reads, func(c *Caller) error { return last(c.ListBatches(c.Ctx, "a", "d", store.PageRequest{Limit: 1})) }, nil},
	{"Orphans", Reads, func(c *Caller) error { return last(c.Orphans(c.Ctx, 1)) }, nil},
	{"ListParts", Reads, func(c *Caller) error { return last(c.ListParts(c.Ctx, c.JobID)) }, nil},
	{"LostParts", Reads, func(c *Caller) error { return last(c.LostParts(c.Ctx, c.JobID)) }, nil},
	{"Usage", Reads, func(c *Caller) error { return last(c.Usage(c.Ctx, "a", time.Now(), time.Now())) }, nil},
	{"UsageByKey", Reads, func(c *Caller) error { return last(c.UsageByKey(c.Ctx, "a", time.Now(), time.Now())) }, nil},
	{"ListKeys", Reads, func(c *Caller) error { return last(c.ListKeys(c.Ctx)) }, nil},
	{"GetValue", Reads, func(c *Caller) error { return last(c.GetValue(c.Ctx, c.JobID)) }, nil},
	{"ListValues", Reads, func(c *Caller) error { return last(c.ListValues(c.Ctx, "")) }, nil},
	{"ListAudit", Reads, func(c *Caller) error { return last(c.ListAudit(c.Ctx, "a", 1, "")) }, nil},
	{"AuditAfter", Reads, func(c *Caller) error { return last(c.AuditAfter(c.Ctx, time.Now(), "", 1, nil)) }, nil},
	{"AccountsWithData", Reads, func(c *Caller) error { return last(c.AccountsWithData(c.Ctx)) }, nil},
	{"RetainedJobs", Reads, func(c *Caller) error { return last(c.RetainedJobs(c.Ctx, "a", time.Now(), 1)) }, nil},
	{"ListDueRemovals", Reads, func(c *Caller) error { return last(c.ListDueRemovals(c.Ctx, time.Now(), 1)) }, nil},
	{"ListFiles", Reads, func(c *Caller) error { return last(c.ListFiles(c.Ctx, "a", "p", store.PageRequest{Limit: 1})) }, nil},
	{"ExpiredFiles", Reads, func(c *Caller) error { return last(c.ExpiredFiles(c.Ctx, time.Now(), 1)) }, nil},
	{"ListDeliveries", Reads, func(c *Caller) error { return last(c.ListDeliveries(c.Ctx, "e", store.PageRequest{Limit: 1})) }, nil},
	{"DueDeliveries", Reads, func(c *Caller) error { return last(c.DueDeliveries(c.Ctx, time.Now(), 1)) }, nil},
	{"Time", Reads, func(c *Caller) error { return last(c.Time(c.Ctx)) }, nil},
	{"Ping", Reads, func(c *Caller) error { return c.Ping(c.Ctx) }, nil},
}
