package http

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/keys"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// entries returns a page of the audit record.
func (w *world) entries(query string, headers ...string) []map[string]any {
	w.Helper()
	var found []map[string]any
	for _, e := range w.get("/v1/audit"+query, headers...).want(200).json()["entries"].([]any) {
		found = append(found, e.(map[string]any))
	}
	return found
}

// entryText returns a short text of an entry.
func entryText(e map[string]any) string {
	return fmt.Sprint(e["action"], " ", e["account"], " ", e["target"], " ", e["details"], " ", e["failed"])
}

func TestAudit_EntryFields(t *testing.T) {
	t.Parallel()
	c := &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	w := setup(t, func(config *Config) { config.Now = c.now })
	tick := func() { c.pass(time.Second) }
	admin := w.newKey(`{"name":"ops","role":"admin"}`)
	tick()
	made := w.newKey(`{"account":"acme","expires_at":"2100-01-01T00:00:00Z"}`, admin.header()...)
	tick()
	rotated := w.do("POST", "/v1/keys/"+made.id+"/rotate", "", admin.header()...).key()
	tick()
	w.do("DELETE", "/v1/keys/"+made.id, "", append(admin.header(), "X-Request-Id", "mine")...).want(200)
	tick()
	w.do("PATCH", "/v1/settings", `{"retention_days":null,"account":"acme"}`, admin.header()...).want(200)
	tick()
	w.putQuotas("", `{"cost_quota_usd":2}`, admin.header()...).want(200)
	tick()
	w.do("POST", "/v1/nodes/n1/drain", "").want(200)

	entries := w.entries("", admin.header()...)
	want := []string{
		"node.drain default n1 <nil> <nil>",
		"quotas.set default <nil> map[cost_quota_usd:2 quotas:<nil>] <nil>",
		"settings.set acme <nil> map[retention_days:<nil>] <nil>",
		"key.revoke acme " + made.id,
		"key.rotate acme " + made.id,
		"key.create acme " + made.id,
		"key.create default " + admin.id,
	}
	if len(entries) != len(want) {
		t.Fatalf("%d entries, want %d", len(entries), len(want))
	}
	for i, e := range entries {
		if !strings.HasPrefix(entryText(e), want[i]) {
			t.Errorf("entry %d: %s, want %s", i, entryText(e), want[i])
		}
		by := fmt.Sprint(e["by"])
		wantBy := fmt.Sprintf("map[account:default key_id:%s key_name:ops]", admin.id)
		if i == 0 || i == 6 {
			wantBy = "map[account:default key_id:<nil> key_name:configuration]"
		}
		if by != wantBy {
			t.Errorf("entry %d is by %s, want %s", i, by, wantBy)
		}
		at := time.Date(2026, 3, 1, 12, 0, 6-i, 0, time.UTC).Format(time.RFC3339)
		if e["at"] != at {
			t.Errorf("entry %d is of %v, want %s", i, e["at"], at)
		}
	}
	if entries[3]["request_id"] != "mine" {
		t.Errorf("the request was %v", entries[3]["request_id"])
	}
	details := entries[5]["details"].(map[string]any)
	if details["expires_at"] != "2100-01-01T00:00:00Z" || details["role"] != "user" {
		t.Errorf("details %v", details)
	}
	whole := string(w.get("/v1/audit").want(200).text)
	for _, k := range []madeKey{admin, made, rotated} {
		if secret := secretOf(k.text); strings.Contains(whole, secret) {
			t.Error("a secret is in the record")
		}
	}
	if strings.Contains(whole, adminKey) || strings.Contains(whole, `"hash"`) {
		t.Errorf("a secret is in the record: %s", whole)
	}
}

func TestAudit_CursorNewestFirst(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var want []string
	for range 7 {
		want = append([]string{w.newKey(`{}`).id}, want...)
	}
	var got []string
	for cursor, pages := "", 0; ; {
		body := w.get("/v1/audit?limit=3&cursor=" + cursor).want(200).json()
		for _, e := range body["entries"].([]any) {
			got = append(got, e.(map[string]any)["target"].(string))
		}
		pages++
		if body["next_cursor"] == nil {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		cursor = body["next_cursor"].(string)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	w.get("/v1/audit?cursor=x").wantField("cursor", "not one this service gave out")
	for _, limit := range []string{"0", "101", "", "x"} {
		w.get("/v1/audit?limit="+limit).wantField("limit", "from 1 to 100")
	}
}

func TestAudit_OwnAccountOnly(t *testing.T) {
	t.Parallel()
	w := setup(t)
	ops := w.newKey(`{"name":"ops laptop","role":"admin"}`)
	acme := w.newKey(`{"account":"acme","role":"admin","name":"acme's"}`, ops.header()...)
	w.newKey(`{"account":"other"}`)
	w.newKey(`{}`, acme.header()...)
	entries := w.entries("", acme.header()...)
	if len(entries) != 2 || entries[0]["account"] != "acme" || entries[1]["account"] != "acme" {
		t.Fatalf("entries %v", entries)
	}
	if by := fmt.Sprint(entries[0]["by"]); by != "map[account:acme key_id:"+acme.id+" key_name:acme's]" {
		t.Errorf("its own act is by %s", by)
	}
	// The name of the operator's key is not shown to other accounts.
	if by := fmt.Sprint(entries[1]["by"]); by != "map[account:default key_id:<nil> key_name:<nil>]" {
		t.Errorf("the operator's act is by %s", by)
	}
	if entries := w.entries("?account=other"); len(entries) != 1 {
		t.Errorf("entries of one account: %v", entries)
	}
}

// faultyKeys is a store in which some writes fail.
type faultyKeys struct {
	store.Store
	put, audit error
}

func (f *faultyKeys) PutKey(ctx context.Context, k store.APIKey) error {
	if f.put != nil {
		return f.put
	}
	return f.Store.PutKey(ctx, k)
}

func (f *faultyKeys) AppendAudit(ctx context.Context, e store.AuditEntry) error {
	if f.audit != nil {
		return f.audit
	}
	return f.Store.AppendAudit(ctx, e)
}

func TestAudit_NoActionWithoutEntry(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w2 := w.beside(func(c *Config) { c.Store = &faultyKeys{Store: w.store, audit: rowmill.ErrUnavailable} })
	w2.do("POST", "/v1/keys", `{}`).wantError(503, "unavailable", "")
	w2.do("PATCH", "/v1/settings", `{"retention_days":1}`).wantError(503, "unavailable", "")
	w2.putQuotas("", `{"cost_quota_usd":2}`).wantError(503, "unavailable", "")
	w2.do("POST", "/v1/nodes/n1/drain", "").wantError(503, "unavailable", "")
	if ids := w.keyList(""); len(ids) != 0 || len(w2.service.drained) != 0 {
		t.Errorf("keys %v, drained %v", ids, w2.service.drained)
	}
	if names, err := w.store.ListValues(t.Context(), ""); err != nil || len(names) != 0 {
		t.Errorf("values %v, %v", names, err)
	}
}

func TestAudit_FailedActionIsRecorded(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w2 := w.beside(func(c *Config) {
		c.Store = &faultyKeys{Store: w.store, put: errors.Join(store.ErrOutcomeUnknown, rowmill.ErrUnavailable)}
	})
	w2.do("POST", "/v1/keys", `{}`, "X-Request-Id", "r").wantError(503, "outcome_unknown", "")
	entries := w.entries("")
	if len(entries) != 2 || entries[0]["failed"] != "outcome_unknown" || entries[1]["failed"] != nil ||
		entries[0]["request_id"] != "r" || entries[1]["request_id"] != "r" || entries[0]["target"] != entries[1]["target"] ||
		entries[0]["id"] == entries[1]["id"] {
		t.Errorf("entries %v", entries)
	}
}

func TestAudit_FirstKeyOfTheService(t *testing.T) {
	t.Parallel()
	w := setup(t)
	must.Get(keys.EnsureFirstKey(t.Context(), w.store, time.Now()))(t)
	entries := w.entries("")
	if len(entries) != 1 || entries[0]["action"] != "key.create" || fmt.Sprint(entries[0]["by"]) != "map[account:<nil> key_id:<nil> key_name:first start]" {
		t.Errorf("entries %v", entries)
	}
}
