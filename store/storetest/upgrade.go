package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// The kinds of documents that Harness.Edit visits.
const (
	DocJob    = "job"    // a job's record in the stored form
	DocStatus = "status" // the status of a job, a JSON string
	DocSpec   = "spec"   // the specification without prompt, schema and rows, which are stored separately
	DocPart   = "part"
	DocKey    = "key"
	DocUsage  = "usage" // the usage of an account; only for a store that keeps usage as documents
	DocAudit  = "audit"

	DocDelivery = "delivery"
)

// unknown is the value of an unknown member, as a newer version may write it. A decoder
// that is not exact would change the number, the list or the text.
const unknown = `{"digits":12345678901234567890.10,"list":[],"null":null,"object":{},"text":"\u003c"}`

// A memberCheck adds unknown members to every stored document, at every level, and checks
// after each operation that they are still there.
type memberCheck struct {
	*suite
	// added has the unknown members before the operation, and now those at the last call of
	// readMembers. The key is the kind and id of the document and the path in it.
	added, now map[string]json.RawMessage
}

// freeForm lists members whose content is free-form data of users. A name in this content
// is data and not an unknown member, so addMembers adds none there.
var freeForm = []string{"artifacts", "sampling", "sampling_params", "request_extras", "json_schema", "details"}

// addMembers calls visit with the path of each unknown member in a document. If add is
// true, it first adds an unknown member to each object of the document.
func addMembers(doc any, path string, add bool, visit func(path string, member any)) {
	switch value := doc.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			switch {
			case name == "from_the_future":
			case !slices.Contains(freeForm, name):
				addMembers(value[name], path+"/"+name, add, visit)
			case name == "artifacts":
				entries, _ := value[name].(map[string]any)
				for variant, entry := range entries {
					addMembers(entry, path+"/artifacts/"+variant, add, visit)
				}
			}
		}
		if add {
			value["from_the_future"] = json.RawMessage(unknown)
		}
		if member, exists := value["from_the_future"]; exists {
			visit(path, member)
		}
	case []any:
		for i, element := range value {
			addMembers(element, fmt.Sprintf("%s/%d", path, i), add, visit)
		}
	}
}

func (g *memberCheck) decode(doc []byte) any {
	g.Helper()
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		g.Fatalf("a document is not JSON: %v: %s", err, doc)
	}
	return value
}

// readMembers reads the unknown members of all documents into g.now. If add is true, it
// first adds an unknown member to each object.
func (g *memberCheck) readMembers(add bool) {
	g.Helper()
	g.now = map[string]json.RawMessage{}
	g.Edit(g, g.Store, func(kind, id string, doc []byte) []byte {
		if kind == DocStatus {
			return doc
		}
		value := g.decode(doc)
		addMembers(value, kind+" "+id+":", add && kind != DocAudit, func(path string, member any) {
			raw := must.Get(json.Marshal(member))(g)
			g.now[path] = raw
		})
		if !add || kind == DocAudit {
			return doc
		}
		return must.Get(json.Marshal(value))(g)
	})
	if add {
		g.added = maps.Clone(g.now)
	}
}

// keepsMembers adds unknown members to all documents, runs an operation, and checks that
// the documents still have these members. removes lists the beginnings of paths that the
// operation removes.
func (g *memberCheck) keepsMembers(operation string, run func() error, removes ...string) {
	g.Helper()
	g.readMembers(true)
	if err := run(); err != nil {
		g.Fatalf("%s: %v", operation, err)
	}
	g.readMembers(false)
	for path, was := range g.added {
		if strings.Contains(path, ":/claims/") { // the operation removes the claims with their unknown members
			continue
		}
		if slices.ContainsFunc(removes, func(gone string) bool { return bytes.HasPrefix([]byte(path), []byte(gone)) }) {
			continue
		}
		if diff := cmp.Diff(string(was), string(g.now[path])); diff != "" {
			g.Errorf("%s: a member of %s that this version does not know differs (-want +got):\n%s", operation, path, diff)
		}
	}
}

// testUnknownMembers checks that all operations on jobs and keys keep the members that
// a newer version has written.
func testUnknownMembers(s *suite) {
	s.needsEdit()
	g, ctx := &memberCheck{suite: s}, s.Context()
	text, money := "text", 0.5
	rec := s.newRecord("a")
	rec.Job.KeyID = new(KeyID)
	rec.Job.Name, rec.Job.System, rec.Job.Prompt, rec.Job.Schema = &text, &text, &text, json.RawMessage(`{"type":"object"}`)
	rec.Job.Function = &rowmill.FunctionRef{Name: "f", Revision: 1, Model: "m"}
	rec.Job.Estimate = &rowmill.Estimate{Method: rowmill.EstimateUnsampled}
	rec.Job.FailureReason = &rowmill.Failure{Message: "none yet"}
	rec.Spec.Function = &rowmill.FunctionPrompt{Inputs: []rowmill.FunctionInput{{Name: "b"}, {Name: "a"}}, Prompt: "{{a}}"}
	rec.Spec.Model.InputPrice, rec.Spec.URL, rec.Spec.CostQuota = 2, "https://h/p", &money
	for i, end := range []string{"Finish", "Cancel"} {
		rec.Job.ID = fmt.Sprint("job-", i)
		c := &Caller{Store: s.Store, Fence: store.Fence{JobID: rec.Job.ID}, Ctx: ctx}
		part := "part " + c.JobID
		removes := map[string][]string{"ReplaceParts": {part + " a", part + " d"}, "DropParts": {part}, "DeleteKey": {"key "}, "DropExpiredDeliveries": {"delivery "}}
		for _, o := range Operations(end) {
			if o.Kind == CreatesJob {
				s.must(s.Create(ctx, rec, &store.Idempotency{Key: c.JobID, BodyHash: "h", TTL: long}))
				continue
			}
			call := func() error { return o.Call(c) }
			g.keepsMembers(o.Method, call, removes[o.Method]...)
			switch o.Method {
			case "CommitParts", "ReplaceParts":
				g.keepsMembers(o.Method+" repeated", call)
			case "Update":
				g.keepsMembers("Update of many members", func() error { return last(s.Update(ctx, c.Fence, changeManyMembers)) })
			}
		}
		if left := g.added["job "+c.JobID+":/job"]; left == nil {
			s.Errorf("the test did not add an unknown member to the job's record, only to %v", slices.Sorted(maps.Keys(g.added)))
		}
	}
	g.keysAndAudit()
	g.deliveries()
}

// changeManyMembers changes members at several levels of a record.
func changeManyMembers(r *store.Record) error {
	r.Job.Message, r.Job.Estimate.Low, r.Job.FailureReason.Message = "on", 1, "more"
	r.Job.Function.Revision, r.Job.Name = 2, nil
	r.DownloadStarted = new(r.Job.Created)
	return nil
}

func (g *memberCheck) deliveries() {
	g.Helper()
	d := g.delivery("one", 1, 5)
	g.createDelivery(d)
	d.Version, d.Tries = 1, 1
	for _, at := range []int{1, 2} {
		d.Attempts = append(d.Attempts, store.DeliveryAttempt{At: *g.timeAt(at), Status: 500})
		g.keepsMembers("PutDelivery", func() (err error) {
			d, err = g.PutDelivery(g.Context(), d)
			return err
		})
	}
	d = g.endDelivery(d, store.DeliveryFailed, 9)
	g.keepsMembers("PutDelivery of an ended delivery", func() error { _, err := g.PutDelivery(g.Context(), d); return err })
	g.keepsMembers("CreateDelivery once more", func() error { return g.CreateDelivery(g.Context(), g.delivery("one", 1, 5)) })
	if g.added["delivery msg-0001:/attempts/0"] == nil {
		g.Error("the test did not add an unknown member to the delivery")
	}
}

func (g *memberCheck) keysAndAudit() {
	g.Helper()
	ctx := g.Context()
	key := store.APIKey{ID: "k", Hash: []byte("one"), Account: "a", Role: "user", Created: g.start}
	must.Succeed(g, g.PutKey(ctx, key))
	key.Name, key.LastUsed = "renamed", &g.start
	g.keepsMembers("PutKey over an existing key", func() error { return g.PutKey(ctx, key) })
	key.Hash = []byte("two")
	g.keepsMembers("ReplaceKey", func() error { return g.ReplaceKey(ctx, key, []byte("one")) })
	g.keepsMembers("ReplaceKey repeated", func() error { return g.ReplaceKey(ctx, key, []byte("one")) })
	if g.added["key k:"] == nil {
		g.Error("the test did not add an unknown member to the key")
	}
	keys, err := g.ListKeys(ctx)
	if err != nil || len(keys) != 1 {
		g.Fatalf("list keys: %v, %v", keys, err)
	}
	g.wantSame("key", key, keys[0])
	entry := store.AuditEntry{ID: "e", At: g.start, Account: "a", Action: "act", Details: json.RawMessage(`{}`)}
	for range 2 {
		g.keepsMembers("AppendAudit", func() error { return g.AppendAudit(ctx, entry) })
	}
}

// testNewerRecords checks that a job of a newer version can be read, that no write
// changes it, and that it does not block other jobs.
func testNewerRecords(s *suite) {
	s.needsEdit()
	ctx := s.Context()
	for _, tt := range []struct {
		name, kind string
		newer      func(doc []byte) []byte
	}{
		{"schema", DocJob, func(doc []byte) []byte {
			return bytes.Replace(doc, fmt.Appendf(nil, `"schema_version":%d`, store.SchemaVersion), fmt.Appendf(nil, `"schema_version":%d`, store.SchemaVersion+1), 1)
		}},
		{"status", DocStatus, func([]byte) []byte { return []byte(`"paused"`) }},
	} {
		account := "of " + tt.name
		newer := s.create(account)
		endedID := s.finish(s.createClaimed(account), rowmill.StatusFailed).Job.ID
		older := s.create(account)
		s.Edit(s, s.Store, func(kind, id string, doc []byte) []byte {
			if kind != tt.kind || id != newer && id != endedID {
				return doc
			}
			edited := tt.newer(doc)
			if bytes.Equal(edited, doc) {
				s.Fatalf("%s: the edit changed nothing of %s", tt.name, doc)
			}
			return edited
		})
		before, ended := s.get(newer), s.get(endedID)
		session := s.session()
		orphans, err := s.Orphans(ctx, 1)
		if err != nil || len(orphans) != 1 || orphans[0].JobID != older {
			s.Errorf("%s: the orphans are %v, %v; want %s alone", tt.name, orphans, err, older)
		}
		for _, o := range Operations("Cancel") {
			if id, concerned := map[OperationKind]string{WritesJob: newer, WritesEnded: endedID}[o.Kind]; concerned {
				f := store.Fence{JobID: id, Session: session}
				s.wantError(tt.name+": "+o.Method, store.ErrNewer)(o.Call(&Caller{Store: s.Store, Fence: f, Ctx: ctx}))
			}
		}
		s.wantUnchanged(before)
		s.wantUnchanged(ended)
		if jobs, _, err := s.List(ctx, account, 9, ""); err != nil || len(jobs) != 3 {
			s.Errorf("%s: the account has the jobs %v, %v; want all three", tt.name, ids(jobs), err)
		}
		if _, err := s.Claim(ctx, older, session, store.Claim{}); err != nil {
			s.Errorf("%s: claim the other job: %v", tt.name, err)
		}
	}
}

// claimed creates and claims a job of an account.
// needsEdit skips the test when the documents cannot be edited.
func (s *suite) needsEdit() {
	s.Helper()
	if s.Edit == nil {
		s.Skip("another store keeps its documents and runs this test")
	}
}
