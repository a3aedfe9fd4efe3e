package http

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/http/audit"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/webhook"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// A fakeSender records the events that it should send.
type fakeSender struct {
	mu    sync.Mutex
	tried []string // bodies
	woken int
	gets  store.DeliveryAttempt
}

func (f *fakeSender) SendOnce(_ context.Context, e *webhook.Endpoint, id, body string) store.DeliveryAttempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tried = append(f.tried, e.URL+" "+id+" "+body)
	return f.gets
}

func (f *fakeSender) Wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.woken++
}

func TestWebhooks_Life(t *testing.T) {
	t.Parallel()
	sender := &fakeSender{gets: store.DeliveryAttempt{At: time.Now().UTC(), Status: 201, Millis: 250, Answer: "ok"}}
	w := setup(t, func(c *Config) { c.Webhooks = sender })
	made := w.do("POST", "/v1/webhooks", `{"url":"https://example.com/a?token=hidden","events":["batch.completed","job.failed"],"description":"mine"}`).want(200).json()
	id, secret := made["id"].(string), made["secret"].(string)
	if !strings.HasPrefix(secret, "whsec_") || made["disabled"] != false || fmt.Sprint(made["events"]) != "[batch.completed job.failed]" || made["account"] != caller.DefaultAccount {
		t.Fatalf("%v", made)
	}
	path := "/v1/webhooks/" + id
	for _, answer := range []*answered{w.get("/v1/webhooks"), w.get(path)} {
		if text := string(answer.want(200).text); strings.Contains(text, secret) || !strings.Contains(text, secret[:10]) {
			t.Errorf("%s", text)
		}
	}
	changed := w.do("PATCH", path, `{"events":null,"disabled":true,"url":"http://10.0.0.1/b"}`).want(200).json()
	if changed["disabled"] != true || changed["disabled_at"] == nil || changed["url"] != "http://10.0.0.1/b" || len(changed["events"].([]any)) != 0 || changed["description"] != "mine" {
		t.Errorf("%v", changed)
	}
	if again := w.do("PATCH", path, `{"disabled":false,"description":null}`).want(200).json(); again["disabled"] != false || again["disabled_reason"] != nil || again["description"] != "" {
		t.Errorf("%v", again)
	}
	rotated := w.do("POST", path+"/rotate", "").want(200).json()
	if rotated["secret"] == secret || rotated["old_secret_until"] == nil || rotated["rotated_at"] == nil {
		t.Errorf("%v", rotated)
	}
	tested := w.do("POST", path+"/test?event=batch.expired", "").want(200).json()
	if attempt := tested["attempt"].(map[string]any); tested["delivered"] != true || attempt["status"] != 201.0 || attempt["duration_seconds"] != 0.25 || attempt["answer"] != "ok" {
		t.Errorf("%v", tested)
	}
	if len(sender.tried) != 1 || !strings.Contains(sender.tried[0], `"type":"batch.expired"`) || !strings.Contains(sender.tried[0], "http://10.0.0.1/b "+tested["id"].(string)) {
		t.Errorf("%v", sender.tried)
	}
	w.do("POST", path+"/test?event=x", "").wantField("event", "job.succeeded")
	w.do("DELETE", path, "").want(200)
	for _, gone := range []*answered{w.get(path), w.do("DELETE", path, ""), w.do("PATCH", path, `{}`), w.do("POST", path+"/rotate", ""), w.do("POST", path+"/test", ""), w.get(path + "/deliveries")} {
		gone.wantError(404, "webhook_not_found", id)
	}
	entries, _, err := w.store.ListAudit(t.Context(), caller.DefaultAccount, 100, "")
	must.Succeed(t, err)
	audited, err := json.Marshal(entries)
	must.Succeed(t, err)
	for _, action := range []string{audit.WebhookCreate, audit.WebhookChange, audit.WebhookRotate, audit.WebhookDelete} {
		if !strings.Contains(string(audited), action) {
			t.Errorf("no entry says %s: %s", action, audited)
		}
	}
	for _, hidden := range []string{secret, rotated["secret"].(string), "token=hidden"} {
		if strings.Contains(string(audited)+w.logs.String(), hidden) {
			t.Errorf("%s is in the audit record or the log", hidden)
		}
	}
}

func TestWebhooks_Refuses(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for body, want := range map[string][2]string{
		`{}`:                                     {"url", "is missing"},
		`{"url":"ftp://example.com"}`:            {"url", "https://"},
		`{"url":"https://"}`:                     {"url", "name a host"},
		`{"url":"https://a:b@example.com"}`:      {"url", "password"},
		`{"url":"https://example.com/a b"}`:      {"url", "cannot be parsed"},
		`{"url":"https://example.com/#a"}`:       {"url", "fragment"},
		`{"url":"https://e.com","events":["x"]}`: {"events", "job.succeeded"},
		`{"url":"https://e.com","events":["job.failed","job.failed"]}`: {"events", "twice"},
		`{"url":"https://e.com","event":["job.failed"]}`:               {"event", "unknown"},
	} {
		w.do("POST", "/v1/webhooks", body).wantField(want[0], want[1])
	}
	for range webhook.MaxEndpoints {
		w.do("POST", "/v1/webhooks", `{"url":"https://example.com"}`).want(200)
	}
	w.do("POST", "/v1/webhooks", `{"url":"https://example.com"}`).wantError(409, "too_many_webhooks", "10")
	user := *w
	user.key = w.newKey(`{"name":"user"}`).text
	user.get("/v1/webhooks").wantError(403, "forbidden", "administrator")
	user.do("POST", "/v1/webhooks", `{"url":"https://example.com"}`).wantError(403, "forbidden", "administrator")
}

func TestWebhooks_Deliveries(t *testing.T) {
	t.Parallel()
	sender := &fakeSender{}
	w := setup(t, func(c *Config) { c.Webhooks = sender })
	id := w.do("POST", "/v1/webhooks", `{"url":"https://example.com/a"}`).want(200).json()["id"].(string)
	path := "/v1/webhooks/" + id + "/deliveries"
	var jobs []string
	for n := range 5 {
		ended := time.Now().UTC().Add(time.Duration(n) * time.Second)
		rec := store.Record{Job: rowmill.Job{ID: rowmill.NewJobID(), Status: rowmill.StatusFailed, JobTimes: rowmill.JobTimes{Completed: &ended}}, Spec: rowmill.Spec{Account: caller.DefaultAccount}}
		if made, err := webhook.CreateDeliveries(t.Context(), w.store, &rec); err != nil || !made {
			t.Fatal(made, err)
		}
		jobs = append(jobs, rec.Job.ID)
	}
	var got []map[string]any
	for cursor := ""; ; {
		page := w.get(path + "?limit=2&cursor=" + cursor).want(200).json()
		for _, one := range page["deliveries"].([]any) {
			got = append(got, one.(map[string]any))
		}
		next, more := page["next_cursor"].(string)
		if !more {
			break
		}
		cursor = next
	}
	if len(got) != 5 || got[0]["job_id"] != jobs[4] || got[4]["job_id"] != jobs[0] || got[0]["state"] != "pending" || got[0]["event"] != "job.failed" || got[0]["next_attempt_at"] == nil {
		t.Fatalf("%v", got)
	}
	w.get(path+"?cursor=x").wantField("cursor", "next_cursor")
	d, err := w.store.GetDelivery(t.Context(), got[0]["id"].(string))
	must.Succeed(t, err)
	if d, err = w.store.PutDelivery(t.Context(), webhook.RetrySchedule(nil).ApplyAttempt(d, store.DeliveryAttempt{At: time.Now().UTC(), Status: 500, Error: "e", Answer: "a", Millis: 5}, time.Now(), 0)); err != nil {
		t.Fatal(err)
	}
	failed := w.get(path + "?limit=1").want(200).json()["deliveries"].([]any)[0].(map[string]any)
	if attempt := failed["attempts"].([]any)[0].(map[string]any); failed["state"] != "failed" || failed["next_attempt_at"] != nil || attempt["status"] != 500.0 || attempt["error"] != "e" || attempt["answer"] != "a" {
		t.Errorf("%v", failed)
	}
	if again := w.do("POST", path+"/"+d.ID+"/redeliver", "").want(200).json(); again["state"] != "pending" || len(again["attempts"].([]any)) != 1 || sender.woken != 1 {
		t.Errorf("%v, woken %d times", again, sender.woken)
	}
	for _, bad := range []string{"x", "msg_" + strings.Repeat("0", 32)} {
		w.do("POST", path+"/"+bad+"/redeliver", "").wantError(404, "delivery_not_found", bad)
	}
	w.do("PATCH", "/v1/webhooks/"+id, `{"disabled":true}`).want(200)
	w.do("POST", path+"/"+d.ID+"/redeliver", "").wantError(409, "webhook_disabled", "enable")
}

// TestWebhooks_RecentDeliveries checks what a webhook says about its newest deliveries, and
// that a delivery between two attempts is sent at once on request.
func TestWebhooks_RecentDeliveries(t *testing.T) {
	t.Parallel()
	sender := &fakeSender{}
	w := setup(t, func(c *Config) { c.Webhooks = sender })
	id := w.do("POST", "/v1/webhooks", `{"url":"https://example.com/a"}`).want(200).json()["id"].(string)
	refused := store.DeliveryAttempt{At: time.Now().UTC(), Status: 500, Answer: "out of order"}
	attempt := func(n int, a store.DeliveryAttempt) store.WebhookDelivery {
		ended := time.Now().UTC().Add(time.Duration(n) * time.Second)
		rec := store.Record{Job: rowmill.Job{ID: rowmill.NewJobID(), Status: rowmill.StatusFailed, JobTimes: rowmill.JobTimes{Completed: &ended}}, Spec: rowmill.Spec{Account: caller.DefaultAccount}}
		must.Get(webhook.CreateDeliveries(t.Context(), w.store, &rec))(t)
		newest, _, err := w.store.ListDeliveries(t.Context(), id, store.PageRequest{Limit: 1})
		must.Succeed(t, err)
		return must.Get(w.store.PutDelivery(t.Context(), webhook.RetrySchedule{time.Hour}.ApplyAttempt(newest[0], a, time.Now(), 0)))(t)
	}
	recent := func(want string) map[string]any {
		t.Helper()
		shown := w.get("/v1/webhooks/" + id).want(200).json()["recent_deliveries"].(map[string]any)
		listed := w.get("/v1/webhooks").want(200).json()["webhooks"].([]any)[0].(map[string]any)["recent_deliveries"]
		if got := fmt.Sprint(shown["failed"], " of ", shown["attempted"], ", failing ", shown["failing"]); got != want || fmt.Sprint(listed) != fmt.Sprint(shown) {
			t.Errorf("%s, and in the list %v; want %s", got, listed, want)
		}
		return shown
	}
	if none := recent("0 of 0, failing false"); none["last_failure"] != nil {
		t.Errorf("%v", none)
	}
	attempt(0, refused)
	recent("1 of 1, failing true")
	attempt(1, store.DeliveryAttempt{At: time.Now().UTC(), Status: 200})
	attempt(2, refused)
	attempt(3, refused)
	recent("3 of 4, failing false")
	waits := attempt(4, refused)
	if last := recent("4 of 5, failing true")["last_failure"].(map[string]any); last["status"] != 500.0 || last["answer"] != "out of order" {
		t.Errorf("%v", last)
	}
	again := w.do("POST", "/v1/webhooks/"+id+"/deliveries/"+waits.ID+"/redeliver", "").want(200).json()
	due := must.Get(time.Parse(time.RFC3339, again["next_attempt_at"].(string)))(t)
	if again["id"] != waits.ID || due.After(time.Now()) || sender.woken != 1 {
		t.Errorf("%v, woken %d times", again, sender.woken)
	}
	recent("4 of 5, failing true")
}

// TestWebhooks_DataDeletedBeforeTheAnnouncement deletes the data of a job before its end
// was announced.
func TestWebhooks_DataDeletedBeforeTheAnnouncement(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.do("POST", "/v1/webhooks", `{"url":"https://example.com/a"}`).want(200).json()["id"].(string)
	job := w.submitted(`{"inputs":["a"]}`)
	w.get("/v1/job-cancel/" + job).want(200)
	for range 2 {
		w.do("DELETE", "/v1/jobs/"+job+"/data", "").want(200)
	}
	found := w.get("/v1/webhooks/" + id + "/deliveries").want(200).json()["deliveries"].([]any)
	if len(found) != 1 || found[0].(map[string]any)["event"] != "job.cancelled" || found[0].(map[string]any)["job_id"] != job {
		t.Errorf("%v", found)
	}
}

// The Go client decodes the webhooks that the service sends.
func TestWebhooks_Client(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Webhooks = &fakeSender{gets: store.DeliveryAttempt{Error: "e"}} })
	c, err := client.New(client.Config{Server: w.http.URL, Key: w.keyOf("default", "admin")})
	must.Succeed(t, err)
	defer c.Close()
	ctx := t.Context()
	made, _, err := c.CreateWebhook(ctx, "acme", client.NewWebhook{URL: "https://example.com", Events: []string{webhook.JobFailed}})
	if err != nil || made.Secret == "" || made.Account != "acme" {
		t.Fatalf("%+v, %v", made, err)
	}
	ended := time.Now().UTC()
	rec := store.Record{Job: rowmill.Job{ID: rowmill.NewJobID(), Status: rowmill.StatusFailed, JobTimes: rowmill.JobTimes{Completed: &ended}}, Spec: rowmill.Spec{Account: "acme"}}
	must.Get(webhook.CreateDeliveries(ctx, w.store, &rec))(t)
	page, _, err := c.ListDeliveries(ctx, made.ID, client.ListDeliveriesParams{Account: "acme", Limit: 1})
	if err != nil || len(page.Deliveries) != 1 || *page.Deliveries[0].JobID != rec.Job.ID || page.NextCursor != "" {
		t.Fatalf("%+v, %v", page, err)
	}
	if again, _, err := c.Redeliver(ctx, made.ID, page.Deliveries[0].ID, "acme"); err != nil || again.State != store.DeliveryPending {
		t.Errorf("%+v, %v", again, err)
	}
	if test, _, err := c.TestWebhook(ctx, made.ID, client.TestWebhookParams{Account: "acme"}); err != nil || test.Delivered || *test.Attempt.Error != "e" || test.Event != webhook.JobFailed {
		t.Errorf("%+v, %v", test, err)
	}
	disabled := true
	if changed, _, err := c.PatchWebhook(ctx, made.ID, "acme", client.WebhookChange{Disabled: &disabled, Events: &[]string{}}); err != nil || !changed.Disabled || len(changed.Events) > 0 {
		t.Errorf("%+v, %v", changed, err)
	}
	if rotated, _, err := c.RotateWebhook(ctx, made.ID, "acme"); err != nil || rotated.Secret == made.Secret || rotated.OldSecretUntil == nil {
		t.Errorf("%+v, %v", rotated, err)
	}
	if got, _, err := c.GetWebhook(ctx, made.ID, "acme"); err != nil || got.Secret != "" || got.ID != made.ID {
		t.Errorf("%+v, %v", got, err)
	}
	if _, _, err := c.DeleteWebhook(ctx, made.ID, "acme"); err != nil {
		t.Error(err)
	}
	if all, _, err := c.ListWebhooks(ctx, "acme"); err != nil || len(all.Webhooks) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}
