package http

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/http/audit"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/nodes"
	"github.com/rowmill/rowmill/http/webhook"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// A cluster has three servers with the same records, objects and pipeline.
type cluster struct {
	*world
	all    []*world
	sender *fakeSender
}

func setupCluster(t *testing.T) cluster {
	t.Helper()
	sender := &fakeSender{}
	var w *world
	w = setup(t, func(c *Config) {
		c.Webhooks, c.MaxInlineBytes = sender, 10
		c.Service = pipeline{c.Service.(*fakeService), func(id string) {
			if w.record(id).Job.Function != nil {
				w.succeed(w.start(id, 1), answers("B+"))
			}
		}}
	})
	same := func(c *Config) { c.Bucket, c.Service, c.Webhooks, c.MaxInlineBytes = w.Bucket, w.Service, sender, 10 }
	return cluster{w, []*world{w, w.beside(same), w.beside(same)}, sender}
}

// sentAtOnce sends a request n times at once, spread over the servers.
func (w cluster) sentAtOnce(n int, method, path, body string, headers ...string) []*answered {
	w.Helper()
	start, came := make(chan struct{}), make(chan *answered, n)
	for i := range n {
		node := w.all[i%len(w.all)]
		r := node.request(method, path, body, headers...)
		go func() {
			<-start
			came <- node.send(r)
		}()
	}
	close(start)
	got := make([]*answered, n)
	for i := range got {
		got[i] = <-came
	}
	return got
}

// A repetition says how a request is sent and how its effects are counted.
type repetition struct {
	method, path, body string
	headers            []string
	names              string     // field of an answer that differs between two effects
	effects            func() int // counts the effects in the store
	refused            []int      // statuses of requests without an effect
}

// jobs counts the jobs.
func (w cluster) jobs() int {
	w.Helper()
	jobs, _, err := w.store.List(w.Context(), caller.DefaultAccount, 100, "")
	must.Succeed(w, err)
	return len(jobs)
}

// spooled counts the jobs. Each must have one object, its rows.
func (w cluster) spooled() int {
	w.Helper()
	n := w.jobs()
	if found := w.objects(layout.Jobs)(); found != n {
		w.Errorf("%d jobs have %d objects", n, found)
	}
	return n
}

// objects returns a function that counts the objects under a prefix.
func (w cluster) objects(prefix string) func() int {
	return func() int {
		w.Helper()
		found, err := w.bucket.List(w.Context(), prefix)
		must.Succeed(w, err)
		return len(found)
	}
}

// files counts the files. Each must have one object.
func (w cluster) files() int {
	w.Helper()
	files, _, err := w.store.ListFiles(w.Context(), caller.DefaultAccount, "", store.PageRequest{Limit: 100})
	must.Succeed(w, err)
	if n := w.objects(layout.Files)(); n != len(files) {
		w.Errorf("%d files have %d objects", len(files), n)
	}
	return len(files)
}

// audited returns a function that counts the actions in the audit record that did not fail.
func (w cluster) audited(action string) func() int {
	return func() int {
		w.Helper()
		entries, _, err := w.store.ListAudit(w.Context(), "", 1000, "")
		must.Succeed(w, err)
		n := 0
		for _, e := range entries {
			if e.Action == action {
				if n++; e.Failed != "" {
					n -= 2 // a failed request has two entries
				}
			}
		}
		return n
	}
}

// set returns a function that counts the actions in the audit record, and checks the present
// value of a member of a document.
func (w cluster) set(action, path, member string, value float64) func() int {
	count := w.audited(action)
	return func() int {
		w.Helper()
		if got := w.get(path).want(200).json()[member]; got != value {
			w.Errorf("%s of %s is %v", member, path, got)
		}
		return count()
	}
}

// hook creates a webhook and returns its path.
func (w cluster) hook() string {
	w.Helper()
	return "/v1/webhooks/" + w.do("POST", "/v1/webhooks", `{"url":"https://example.com/a"}`).want(200).json()["id"].(string)
}

// delivered returns the deliveries of a webhook.
func (w cluster) delivered(path string) []any {
	w.Helper()
	return w.get(path + "/deliveries").want(200).json()["deliveries"].([]any)
}

// TestRepeated sends each request that costs money or changes data 40 times at once, to
// three servers, and counts its effects. docs/api.md has the same list.
func TestRepeated(t *testing.T) {
	t.Parallel()
	const (
		times = 40
		some  = -1 // as many as the answers name
	)
	submission := func(headers ...string) func(w cluster) repetition {
		return func(w cluster) repetition {
			return repetition{path: "/v1/batch-inference", body: `{"inputs":["a"]}`, headers: headers, names: "results", effects: w.jobs}
		}
	}
	resume := func(body string, headers ...string) func(w cluster) repetition {
		return func(w cluster) repetition {
			id := w.ended(rowmill.StatusFailed)
			return repetition{path: "/v1/jobs/" + id + "/resume", body: body, headers: headers, names: "results", effects: func() int { return w.jobs() - 1 }}
		}
	}
	batch := func(headers ...string) func(w cluster) repetition {
		return func(w cluster) repetition {
			file := w.uploaded("a", requestLine("a", "llama-3.1-8b"))
			return repetition{path: "/v1/batches", body: batchOf(file), headers: headers, names: "id", effects: w.spooled}
		}
	}
	messages := func(headers ...string) func(w cluster) repetition {
		return func(w cluster) repetition {
			return repetition{path: "/v1/messages/batches", body: messagesOf("a"), headers: headers, names: "id", effects: w.spooled}
		}
	}
	cancel := func(method, path string) func(w cluster) repetition {
		return func(w cluster) repetition {
			id := w.submitted(`{"inputs":["a"]}`)
			return repetition{method: method, path: fmt.Sprintf(path, id), effects: func() int { return len(w.service.cancelled) }}
		}
	}
	for name, c := range map[string]struct {
		prepare func(w cluster) repetition
		want    int
	}{
		"Submission":          {submission(), times},
		"SubmissionWithKey":   {submission("Idempotency-Key", "k"), 1},
		"Resume":              {resume(`{}`), 1},
		"ResumeWithKey":       {resume(`{}`, "Idempotency-Key", "k"), 1},
		"ResumeAgain":         {resume(`{"again":true}`), times},
		"ResumeAgainWithKey":  {resume(`{"again":true}`, "Idempotency-Key", "k"), 1},
		"Batch":               {batch(), some},
		"BatchRetried":        {batch("X-Stainless-Retry-Count", "1"), 1},
		"MessageBatch":        {messages(), some},
		"MessageBatchRetried": {messages("X-Stainless-Retry-Count", "1"), 1},
		"Cancel":              {cancel("POST", "/v1/jobs/%s/cancel"), 1},
		"CancelByGet":         {cancel("GET", "/v1/job-cancel/%s"), 1},
		"FunctionRun": {func(w cluster) repetition {
			w.publish(grade)
			return repetition{path: "/v1/functions/grade/run", body: `{"input":{"essay":"E"}}`, names: "job_id", effects: w.jobs}
		}, times},
		"SpooledSubmissionWithKey": {func(w cluster) repetition {
			body := `{"inputs":["a row that is spooled"]}`
			return repetition{path: "/v1/batch-inference", body: body, headers: []string{"Idempotency-Key", "k"}, names: "results", effects: w.spooled}
		}, 1},
		"Release": {func(w cluster) repetition {
			f := w.running(`{"inputs":["a"]}`, 1)
			w.park(f)
			before := w.record(f.JobID).Version
			return repetition{path: "/v1/jobs/" + f.JobID + "/release", effects: func() int { return int(w.record(f.JobID).Version - before) }}
		}, 1},
		"Pause": {func(w cluster) repetition {
			id := w.submitted(`{"inputs":["a"]}`)
			before := w.record(id).Version
			return repetition{method: "PATCH", path: "/v1/jobs/" + id, body: `{"paused":true}`, effects: func() int { return int(w.record(id).Version - before) }}
		}, 1},
		"CancelMany": {func(w cluster) repetition {
			body := fmt.Sprintf(`{"job_ids":[%q,%q]}`, w.submitted(`{"inputs":["a"]}`), w.submitted(`{"inputs":["a"]}`))
			return repetition{path: "/v1/jobs/cancel", body: body, effects: func() int { return len(w.service.cancelled) }}
		}, 2},
		"CancelBatch": {func(w cluster) repetition {
			id := w.batched(w.uploaded("a", requestLine("a", "llama-3.1-8b")))
			return repetition{path: "/v1/batches/" + id + "/cancel", names: "id", effects: func() int { return len(w.service.cancelled) }}
		}, 1},
		"CancelMessageBatch": {func(w cluster) repetition {
			return repetition{path: "/v1/messages/batches/" + w.messaged("a") + "/cancel", names: "id", effects: func() int { return len(w.service.cancelled) }}
		}, 1},
		"RemoveData": {func(w cluster) repetition {
			id, hook := w.succeeded(`{"inputs":["a"]}`, answers("x")), w.hook()
			return repetition{method: "DELETE", path: "/v1/jobs/" + id + "/data", names: "data_removed", effects: func() int {
				if left := w.objectsOf(id); len(left) != 0 {
					w.Errorf("objects %v are left", left)
				}
				return len(w.delivered(hook))
			}}
		}, 1},
		"RemoveMessageBatch": {func(w cluster) repetition {
			id, hook := w.messaged("a"), w.hook()
			w.do("POST", "/v1/messages/batches/"+id+"/cancel", "").want(200)
			return repetition{method: "DELETE", path: "/v1/messages/batches/" + id, names: "id", refused: []int{404}, effects: func() int {
				if left := w.objectsOf(jobOf(id)); len(left) != 0 {
					w.Errorf("objects %v are left", left)
				}
				return len(w.delivered(hook))
			}}
		}, 1},
		"File": {func(w cluster) repetition {
			return repetition{path: "/v1/files", body: formOf("a", "x"), headers: []string{"Content-Type", formType}, names: "id", effects: w.files}
		}, times},
		"DeleteFile": {func(w cluster) repetition {
			w.uploaded("kept", "x")
			return repetition{method: "DELETE", path: "/v1/files/" + w.uploaded("a", "x"), names: "id", refused: []int{404}, effects: w.files}
		}, 1},
		"Upload": {func(w cluster) repetition {
			return repetition{path: "/v1/uploads", body: uploadOf("a", 1), names: "id", effects: w.objects(layout.Uploads)}
		}, times},
		"Part": {func(w cluster) repetition {
			id := w.begun("a", "")
			return repetition{
				path: "/v1/uploads/" + id + "/parts", body: fieldOf("data", "part", "x"), headers: []string{"Content-Type", formType}, names: "id",
				effects: w.objects(layout.UploadPartsPrefix(id)),
			}
		}, times},
		"Complete": {func(w cluster) repetition {
			id := w.begun("a", "")
			part, _ := w.sent(id, "x"), w.sent(id, "x")
			return repetition{path: "/v1/uploads/" + id + "/complete", body: fmt.Sprintf(`{"part_ids":[%q]}`, part), names: "file", effects: func() int {
				if n := w.objects(layout.UploadPartsPrefix(id))(); n != 0 {
					w.Errorf("%d parts are left", n)
				}
				return w.files()
			}}
		}, 1},
		"CancelUpload": {func(w cluster) repetition {
			id := w.begun("a", "x")
			return repetition{path: "/v1/uploads/" + id + "/cancel", effects: w.objects(layout.UploadPrefix(id))}
		}, 2}, // the upload's description and its mark
		"Key": {func(w cluster) repetition {
			return repetition{path: "/v1/keys", body: `{}`, names: "id", effects: func() int { return len(w.keyList("")) }}
		}, times},
		"RotateKey": {func(w cluster) repetition {
			id := w.newKey(`{}`).id
			return repetition{path: "/v1/keys/" + id + "/rotate", names: "key", refused: []int{409}, effects: w.audited(audit.KeyRotate)}
		}, some},
		"RevokeKey": {func(w cluster) repetition {
			w.newKey(`{}`)
			return repetition{method: "DELETE", path: "/v1/keys/" + w.newKey(`{}`).id, names: "id", refused: []int{404}, effects: func() int { return len(w.keyList("")) }}
		}, 1},
		"Webhook": {func(w cluster) repetition {
			return repetition{path: "/v1/webhooks", body: `{"url":"https://example.com/a"}`, names: "id", refused: []int{409}, effects: func() int {
				return len(w.get("/v1/webhooks").want(200).json()["webhooks"].([]any))
			}}
		}, some},
		"TestWebhook": {func(w cluster) repetition {
			return repetition{path: w.hook() + "/test", names: "id", effects: func() int { return len(w.sender.tried) }}
		}, times},
		"RotateWebhook": {func(w cluster) repetition {
			return repetition{path: w.hook() + "/rotate", names: "secret", refused: []int{409}, effects: w.audited(audit.WebhookRotate)}
		}, some},
		"DeleteWebhook": {func(w cluster) repetition {
			path := w.hook()
			return repetition{method: "DELETE", path: path, names: "id", refused: []int{404, 409}, effects: w.audited(audit.WebhookDelete)}
		}, 1},
		"Redeliver": {func(w cluster) repetition {
			hook, ended := w.hook(), time.Now().UTC()
			rec := store.Record{Job: rowmill.Job{ID: rowmill.NewJobID(), Status: rowmill.StatusFailed, JobTimes: rowmill.JobTimes{Completed: &ended}}, Spec: rowmill.Spec{Account: caller.DefaultAccount}}
			must.Get(webhook.CreateDeliveries(t.Context(), w.store, &rec))(t)
			id := w.delivered(hook)[0].(map[string]any)["id"].(string)
			return repetition{path: hook + "/deliveries/" + id + "/redeliver", names: "id", refused: []int{409}, effects: func() int { return len(w.delivered(hook)) }}
		}, 1},
		"Function": {func(w cluster) repetition {
			return repetition{path: "/v1/functions", body: grade, names: "revision", refused: []int{409}, effects: func() int {
				return len(w.get("/v1/functions/grade/revisions").want(200).json()["revisions"].([]any))
			}}
		}, some},
		"Rollback": {func(w cluster) repetition {
			w.publish(grade)
			w.publish(strings.Replace(grade, "B+", "C", 1))
			return repetition{path: "/v1/functions/grade/rollback", body: `{"revision":1}`, refused: []int{409}, effects: w.set(audit.FunctionRollback, "/v1/functions/grade", "revision", 1)}
		}, some},
		"Quotas": {func(w cluster) repetition {
			return repetition{method: "PUT", path: "/v1/quotas", body: `{"cost_quota_usd":5}`, refused: []int{409}, effects: w.set(audit.QuotasSet, "/v1/quotas", "cost_quota_usd", 5)}
		}, some},
		"Settings": {func(w cluster) repetition {
			return repetition{method: "PATCH", path: "/v1/settings", body: `{"retention_days":7}`, refused: []int{409}, effects: w.set(audit.SettingsSet, "/v1/settings", "retention_days", 7)}
		}, some},
		"Drain": {func(w cluster) repetition {
			return repetition{path: "/v1/nodes/n1/drain", effects: w.audited(audit.NodeDrain)}
		}, times},
		"Server": {func(w cluster) repetition {
			w.service.starting = []client.Server{w.stoppedServer("n1", "gpu")}
			return repetition{method: "PATCH", path: "/v1/servers/n1/gpu", body: `{"mode":"on"}`, effects: w.audited(audit.ServerSet)}
		}, times},
		"UnpublishFunction": {func(w cluster) repetition {
			w.publish(grade)
			return repetition{method: "DELETE", path: "/v1/functions/grade", names: "message", refused: []int{404, 409}, effects: w.audited(audit.FunctionUnpublish)}
		}, 1},
		"Backup": {func(w cluster) repetition {
			w.service.backup = func() (nodes.BackupSnapshot, error) { return heldText{text: "an archive", closed: new(int)}, nil }
			return repetition{path: "/v1/backup", effects: w.audited(audit.Backup)}
		}, times},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setupCluster(t)
			r := c.prepare(w)
			if r.method == "" {
				r.method = "POST"
			}
			named, accepted := map[string]bool{}, 0
			for _, a := range w.sentAtOnce(times, r.method, r.path, r.body, r.headers...) {
				switch {
				case a.status == 200:
					accepted++
				case !slices.Contains(r.refused, a.status):
					t.Errorf("status %d: %s", a.status, a.text)
				}
				if a.status == 200 && r.names != "" {
					named[fmt.Sprint(a.json()[r.names])] = true
				}
			}
			n := r.effects()
			if accepted == 0 || n < 1 || c.want != some && n != c.want || r.names != "" && n != len(named) {
				t.Errorf("%d of %d requests were accepted and had %d effects, want %d; the answers name %v", accepted, times, n, c.want, named)
			}
		})
	}
}
