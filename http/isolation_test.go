package http

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	nethttp "net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/http/webhook"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/seed"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv/mem"
	"github.com/rowmill/rowmill/store/records"
)

// A visit describes how the isolation test calls a route.
type visit struct {
	operators bool // only for administrators of the account default
	open      bool // needs no key
	shows     bool // the owner's answer contains texts of the account
	admin     bool // needs an administrator
	audited   bool // a call of the owner adds an entry to the audit record
	status    int  // expected status for the owner; 0 means 200

	// path fills in the parameters of the route. Default: the owner's own ids.
	path  func(by, of *tenant) string
	query func(of *tenant) string
	body  func(of *tenant) string
	form  bool // the body is a form
	flows bool // the answer is a stream: read it up to EventReady
}

// visits has an entry for every route; a route without an entry fails the test. The entry
// must say how one account would try to reach the data of another.
var visits = map[string]visit{
	"GET /livez":              {open: true},
	"HEAD /livez":             {open: true},
	"HEAD /readyz":            {open: true},
	"GET /readyz":             {open: true, query: all("verbose")},
	"GET /version":            {open: true},
	"GET /metrics":            {open: true},
	"GET /openapi.json":       {open: true},
	"GET /":                   {open: true, status: 404},
	"GET /console":            {open: true, status: 404},
	"GET /console/*path":      {open: true, status: 404, path: func(_, of *tenant) string { return "/console/" + of.jobs["done"] }},
	"POST /console/session":   {open: true, status: 401, body: func(of *tenant) string { return `{"key":"rk_` + of.user.id + `_x"}` }},
	"DELETE /console/session": {open: true},
	// The signature is for an object of the caller's own account.
	"GET /objects/*key":  {open: true, status: 403, path: signedPath("get")},
	"HEAD /objects/*key": {open: true, status: 403, path: signedPath("head")},

	"GET /v1/events":             {shows: true, flows: true, query: func(of *tenant) string { return "topics=jobs,job:" + of.jobs["done"] }},
	"GET /v1/nodes":              {operators: true},
	"POST /v1/nodes/:node/drain": {operators: true},
	"GET /v1/engines":            {operators: true},
	"GET /v1/gpus":               {operators: true},
	"GET /v1/servers":            {operators: true},
	"PATCH /v1/servers/:node/:name": {
		operators: true, path: func(*tenant, *tenant) string { return "/v1/servers/n1/gpu" },
		body: func(*tenant) string { return `{"mode":"off"}` },
	},
	"GET /v1/servers/:node/:name/log": {operators: true, path: func(*tenant, *tenant) string { return "/v1/servers/n1/gpu/log" }},
	"GET /v1/stats":                   {},
	"GET /v1/diagnosis":               {operators: true},
	"GET /v1/storage":                 {operators: true},
	"POST /v1/backup":                 {operators: true},
	"GET /v1/actors":                  {operators: true, query: func(of *tenant) string { return "job_id=" + of.jobs["done"] }},
	"GET /v1/models":                  {}, // the same answer for all accounts
	"GET /v1/models/*model":           {path: func(*tenant, *tenant) string { return "/v1/models/llama-3.1-8b" }},
	"GET /v1/me":                      {shows: true},
	"GET /v1/auth/check":              {},
	"GET /v1/try-authentication":      {},
	"GET /v1/jobs/:job_id":            {shows: true},
	"GET /v1/job-status/:job_id":      {},
	"GET /v1/get-quotas":              {shows: true},
	"GET /v1/usage":                   {shows: true, query: func(of *tenant) string { return account(of) + "&group_by=day,key" }},
	"GET /v1/job-cancel/:job_id":      {path: fresh("/v1/job-cancel/")},
	"POST /v1/jobs/:job_id/cancel": {path: func(_, of *tenant) string {
		return "/v1/jobs/" + of.as(of.user).submitted(`{"inputs":["a"]}`) + "/cancel"
	}},
	"PATCH /v1/jobs/:job_id": {shows: true, path: fresh("/v1/jobs/"), body: func(*tenant) string { return `{"paused":true}` }},
	"POST /v1/jobs/:job_id/release": {path: func(_, of *tenant) string {
		user := of.as(of.user)
		f := user.running(`{"inputs":["a"]}`, 1)
		user.park(f)
		return "/v1/jobs/" + f.JobID + "/release"
	}},
	"GET /v1/jobs/:job_id/progress":      {shows: true},
	"GET /v1/jobs/:job_id/timeline":      {},
	"GET /v1/jobs/:job_id/errors/counts": {shows: true},
	"GET /v1/jobs/counts":                {},
	"POST /v1/jobs/cancel": {shows: true, audited: true, body: func(of *tenant) string {
		return `{"job_ids":["` + of.as(of.user).submitted(`{"inputs":["a"]}`) + `"]}`
	}},
	"GET /v1/list-jobs":           {shows: true, query: cursorOf("/v1/list-jobs")},
	"GET /v1/jobs/:job_id/errors": {shows: true},
	"GET /v1/jobs/:job_id/rows/:row": {
		shows: true,
	},
	"GET /v1/jobs/:job_id/results":        {shows: true, query: all("include_inputs=true&include_cumulative_logprobs=true")},
	"GET /v1/jobs/:job_id/results-url":    {shows: true, query: all("include_inputs=true")},
	"GET /v1/jobs/:job_id/preview":        {shows: true},
	"GET /v1/jobs/:job_id/preview/counts": {shows: true},
	"GET /v1/jobs/compare":                {shows: true, path: compared("")},
	"GET /v1/jobs/compare/summary":        {shows: true, path: compared("/summary")},
	"GET /v1/jobs/compare/results":        {shows: true, path: compared("/results"), status: 409},
	"DELETE /v1/jobs/:job_id/data": {path: func(_, of *tenant) string {
		user := of.as(of.user)
		id := user.submitted(`{"inputs":["a"]}`)
		user.get("/v1/job-cancel/" + id).want(200)
		return "/v1/jobs/" + id + "/data"
	}},
	"POST /v1/jobs/:job_id/resume": {path: func(_, of *tenant) string {
		user := of.as(of.user)
		id := user.submitted(`{"inputs":["a"]}`)
		user.get("/v1/job-cancel/" + id).want(200)
		return "/v1/jobs/" + id + "/resume"
	}},
	"POST /v1/job-results": {shows: true, body: func(of *tenant) string {
		return `{"job_id":"` + of.jobs["done"] + `","include_inputs":true}`
	}},
	"GET /v1/stream-job-progress/:job_id": {path: func(_, of *tenant) string { return "/v1/stream-job-progress/" + of.jobs["done"] }},
	"POST /v1/batch-inference": {
		body: func(of *tenant) string { return `{"inputs":"file:` + of.file + `","model":"` + of.function() + `"}` },
	},
	"POST /v1/sets": {
		body: func(of *tenant) string {
			return `{"inputs":"file:` + of.file + `","model":"` + of.function() + `","variants":[{},{}]}`
		},
	},
	"POST /v1/files":                 {form: true, body: func(*tenant) string { return formOf("mine.jsonl", "x") }},
	"GET /v1/files":                  {shows: true, query: func(of *tenant) string { return "after=" + of.as(of.user).uploaded(of.account+" spare", "x") }},
	"GET /v1/files/:file_id":         {shows: true},
	"GET /v1/files/:file_id/content": {shows: true},
	"DELETE /v1/files/:file_id": {path: func(_, of *tenant) string {
		return "/v1/files/" + of.as(of.user).uploaded(of.account+" spare", "x")
	}},
	"POST /v1/uploads":                  {body: func(*tenant) string { return uploadOf("mine", 5) }},
	"GET /v1/uploads/:upload_id":        {shows: true},
	"POST /v1/uploads/:upload_id/parts": {form: true, body: func(*tenant) string { return fieldOf("data", "part", "x") }},
	"POST /v1/uploads/:upload_id/complete": {path: func(_, of *tenant) string {
		return "/v1/uploads/" + of.as(of.user).begun(of.account, "") + "/complete"
	}, status: 400, body: func(*tenant) string { return `{"part_ids":[]}` }},
	"POST /v1/uploads/:upload_id/cancel": {path: func(_, of *tenant) string {
		return "/v1/uploads/" + of.as(of.user).begun(of.account, "") + "/cancel"
	}},
	"POST /v1/batches":          {body: func(of *tenant) string { return batchOf(of.file) }},
	"GET /v1/batches":           {shows: true, query: func(of *tenant) string { return "after=" + of.as(of.user).batched(of.file) }},
	"GET /v1/batches/:batch_id": {shows: true},
	"POST /v1/batches/:batch_id/cancel": {path: func(_, of *tenant) string {
		return "/v1/batches/" + of.as(of.user).batched(of.file) + "/cancel"
	}},
	"POST /v1/messages/batches":                  {body: func(*tenant) string { return messagesOf("a") }},
	"GET /v1/messages/batches":                   {shows: true, query: func(of *tenant) string { return "after_id=" + of.as(of.user).messaged(of.account) }},
	"GET /v1/messages/batches/:message_batch_id": {shows: true},
	"POST /v1/messages/batches/:message_batch_id/cancel": {path: func(_, of *tenant) string {
		return "/v1/messages/batches/" + of.as(of.user).messaged(of.account) + "/cancel"
	}},
	"DELETE /v1/messages/batches/:message_batch_id":      {path: func(_, of *tenant) string { return "/v1/messages/batches/" + of.endedMessages() }},
	"GET /v1/messages/batches/:message_batch_id/results": {shows: true, path: func(_, of *tenant) string { return "/v1/messages/batches/" + of.endedMessages() + "/results" }},

	"GET /v1/quotas": {admin: true, shows: true, query: account},
	"PUT /v1/quotas": {admin: true, shows: true, audited: true, body: func(of *tenant) string {
		return fmt.Sprintf(`{"account":%q,"quotas":[{"priority":1,"row_quota":%d}]}`, of.account, of.number)
	}},

	"GET /v1/accounts": {operators: true},
	"GET /v1/keys":     {admin: true, shows: true, query: account},
	"POST /v1/keys": {admin: true, shows: true, audited: true, body: func(of *tenant) string {
		return fmt.Sprintf(`{"account":%q,"name":"%s's"}`, of.account, of.account)
	}},
	"POST /v1/keys/:key_id/rotate": {admin: true, shows: true, audited: true},
	"DELETE /v1/keys/:key_id":      {admin: true, shows: true, audited: true, path: func(_, of *tenant) string { return "/v1/keys/" + of.spare() }},
	"GET /v1/audit":                {admin: true, shows: true, query: cursorOf("/v1/audit")},
	"GET /v1/settings":             {shows: true, query: account},
	"GET /v1/settings/preview":     {shows: true, query: account},
	"PATCH /v1/settings": {admin: true, shows: true, audited: true, query: account, body: func(*tenant) string {
		return `{"retention_days":7}`
	}},

	"GET /v1/webhooks": {admin: true, shows: true, query: account},
	"POST /v1/webhooks": {admin: true, shows: true, audited: true, body: func(of *tenant) string {
		return fmt.Sprintf(`{"account":%q,"url":"https://example.com/%s"}`, of.account, of.account)
	}},
	"GET /v1/webhooks/:webhook_id": {admin: true, shows: true},
	"PATCH /v1/webhooks/:webhook_id": {admin: true, shows: true, audited: true, body: func(of *tenant) string {
		return fmt.Sprintf(`{"description":"%s's"}`, of.account)
	}},
	"DELETE /v1/webhooks/:webhook_id": {admin: true, shows: true, audited: true, path: func(_, of *tenant) string {
		of.webhooks = append(of.webhooks, of.newWebhook())
		return "/v1/webhooks/" + of.webhooks[len(of.webhooks)-1]
	}},
	"POST /v1/webhooks/:webhook_id/rotate":                            {admin: true, shows: true, audited: true},
	"POST /v1/webhooks/:webhook_id/test":                              {admin: true},
	"GET /v1/webhooks/:webhook_id/deliveries":                         {admin: true, shows: true, query: all("limit=1")},
	"POST /v1/webhooks/:webhook_id/deliveries/:delivery_id/redeliver": {admin: true, shows: true},

	"GET /v1/functions": {shows: true, query: account},
	"POST /v1/functions": {admin: true, shows: true, audited: true, query: account, body: func(of *tenant) string {
		return of.definition("another")
	}},
	"GET /v1/functions/:function":           {shows: true},
	"GET /v1/functions/:function/revisions": {shows: true},
	"POST /v1/functions/:function/rollback": {admin: true, shows: true, audited: true, body: func(*tenant) string { return `{"revision":1}` }},
	"DELETE /v1/functions/:function": {admin: true, audited: true, path: func(_, of *tenant) string {
		name := of.function() + "-gone"
		of.as(of.admin).do("POST", "/v1/functions", of.definition(name)).want(200)
		return "/v1/functions/" + name
	}},
	// No pipeline runs the job, so the deadline passes at once.
	"POST /v1/functions/:function/run": {status: 504, shows: true, body: func(*tenant) string { return `{"input":{"text":"a"}}` }},
}

func all(query string) func(*tenant) string { return func(*tenant) string { return query } }

func account(of *tenant) string { return "account=" + url.QueryEscape(of.account) }

// cursorOf returns a query for the second page of the account's own list.
func cursorOf(path string) func(*tenant) string {
	return func(of *tenant) string {
		next := of.as(of.admin).get(path + "?limit=1").want(200).json()["next_cursor"]
		return "limit=100&cursor=" + next.(string)
	}
}

// fresh returns the path of a new job.
func fresh(prefix string) func(by, of *tenant) string {
	return func(_, of *tenant) string { return prefix + of.as(of.user).submitted(`{"inputs":["a"]}`) }
}

// compared returns a path that compares a job of the caller with a job of an account.
func compared(end string) func(by, of *tenant) string {
	return func(by, of *tenant) string {
		return "/v1/jobs/compare" + end + "?jobs=" + by.jobs["done"] + "," + of.jobs["running"]
	}
}

// signedPath returns an account's object with the signature for an object of another
// account, or the own object without a signature.
func signedPath(name string) func(by, of *tenant) string {
	return func(by, of *tenant) string {
		address := func(t *tenant) *url.URL {
			urls := t.as(t.user).get("/v1/jobs/" + t.jobs["done"] + "/results-url").want(200).json()["urls"].(map[string]any)
			u, err := url.Parse(urls[name].(string))
			must.Succeed(t, err)
			return u
		}
		theirs := address(of)
		if by == of {
			return theirs.Path
		}
		return theirs.Path + "?" + address(by).RawQuery
	}
}

// A tenant is an account with data of every kind. All its texts contain its name, and its
// counts contain its number.
type tenant struct {
	*world
	account     string
	number      int
	admin, user madeKey
	keys        []string          // ids
	jobs        map[string]string // ids, by the state of the job
	file, batch string            // ids
	messages    string            // id of a Message Batch
	upload      string            // id
	webhooks    []string          // ids
	delivery    string            // id, of the first webhook
}

// as returns the world with a key of the tenant.
func (t *tenant) as(k madeKey) *world {
	w := *t.world
	w.key = k.text
	return &w
}

// spare creates a key that a test may delete, and returns its id.
func (t *tenant) spare() string {
	t.Helper()
	k := t.as(t.admin).newKey(`{"name":"` + t.account + ` spare"}`)
	t.keys = append(t.keys, k.id)
	return k.id
}

// newWebhook creates an endpoint and returns its id.
func (t *tenant) newWebhook() string {
	t.Helper()
	return t.as(t.admin).do("POST", "/v1/webhooks", `{"url":"https://example.com/`+t.account+`"}`).want(200).json()["id"].(string)
}

// endedMessages creates a Message Batch, ends it and returns its id.
func (t *tenant) endedMessages() string {
	user := t.as(t.user)
	id := user.messaged(t.account)
	user.do("POST", "/v1/messages/batches/"+id+"/cancel", "").want(200)
	return id
}

// function returns the name of a Function that only this account has. Other accounts may
// request it, and their audit records contain the name then, so the name is not a mark.
func (t *tenant) function() string { return fmt.Sprintf("only-%x", t.number) }

func (t *tenant) definition(name string) string {
	return fmt.Sprintf(`{"name":%q,"description":"%s's","inputs":[{"name":"text"}],"prompt":"%s: {{text}}","model":"llama-3.1-8b"}`, name, t.account, t.account)
}

func newTenant(w *world, name string, number int) *tenant {
	w.Helper()
	t := &tenant{world: w, account: name, number: number, jobs: map[string]string{}}
	t.admin = w.newKey(fmt.Sprintf(`{"account":%q,"role":"admin","name":"%s admin"}`, name, name))
	t.user = w.newKey(fmt.Sprintf(`{"account":%q,"name":"%s user"}`, name, name))
	t.keys = []string{t.admin.id, t.user.id}
	t.spare()
	admin, user := t.as(t.admin), t.as(t.user)
	for _, function := range []string{"summary", t.function()} { // both accounts have a summary
		admin.do("POST", "/v1/functions", t.definition(function)).want(200)
	}
	admin.do("PUT", "/v1/quotas", fmt.Sprintf(`{"quotas":[{"priority":1,"row_quota":%d}]}`, number)).want(200)
	body := fmt.Sprintf(`{"inputs":["%s input","b"],"name":"%s job","description":"%s's","system_prompt":"You work for %s.","model":"llama-3.1-8b"}`, name, name, name, name)
	t.webhooks = []string{t.newWebhook()}
	rows := answers(name+" output", "")
	rows[1].out.Err.Message, rows[1].out.Err.Raw = name+" is no object", name
	t.jobs["done"] = user.succeeded(body, rows)
	ended := user.record(t.jobs["done"])
	must.Get(webhook.CreateDeliveries(t.Context(), t.store, &ended))(t)
	t.delivery = t.deliveries()[0].ID
	going := user.running(body, 2)
	t.jobs["running"] = going.JobID
	part := user.part(going, schemaOf(user.record(going.JobID), rowmill.IDNull), 0, 0, rows, "0.parquet")
	part.Totals.InputTokens = int64(number)
	user.commit(going, part)
	t.jobs["pending"] = user.submitted(body)
	t.file = user.uploaded(name+".jsonl", requestLine(name, "llama-3.1-8b"))
	t.batch = user.batched(t.file)
	t.messages = user.messaged(name)
	t.upload = user.begun(name+".csv", "a part")
	return t
}

// deliveries returns the deliveries to the tenant's first webhook.
func (t *tenant) deliveries() []store.WebhookDelivery {
	t.Helper()
	return t.deliveriesIn(t.store)
}

func (t *tenant) deliveriesIn(records *records.Store) []store.WebhookDelivery {
	t.Helper()
	found, _, err := records.ListDeliveries(t.Context(), t.webhooks[0], store.PageRequest{Limit: 10_000})
	if err != nil || len(found) == 0 {
		t.Fatalf("%d deliveries, %v", len(found), err)
	}
	return found
}

// marks returns texts that no answer to another account may contain.
func (t *tenant) marks() []string {
	marks := append([]string{t.account, fmt.Sprint(t.number), t.file, t.batch, t.messages, t.upload, t.delivery}, append(t.webhooks, t.keys...)...)
	jobs, _, err := t.store.List(t.Context(), t.account, 10_000, "")
	must.Succeed(t, err)
	for _, job := range jobs {
		marks = append(marks, job.ID)
	}
	return marks
}

// holds reports whether a text contains a mark. A numeric mark must be a whole number in
// the text, because measured times may contain the same digits.
func holds(text, mark string) bool {
	if !strings.Contains(text, mark) {
		return false
	}
	return strings.Trim(mark, "0123456789") != "" || regexp.MustCompile(`(^|[^0-9A-Za-z.])`+mark+`($|[^0-9A-Za-z])`).MatchString(text)
}

// A moment holds the stored data of all accounts at one moment.
type moment struct {
	records *mem.Backend // a copy
	objects []blob.ObjectInfo
}

// now returns the present moment.
func (w *world) now() moment {
	w.Helper()
	objects, err := w.bucket.List(w.Context(), "jobs/")
	must.Succeed(w, err)
	return moment{w.backend.Fork(), objects}
}

// equals reports whether nothing was written between two moments.
func (m moment) equals(other moment) bool {
	return m.records.Snapshot().LastID() == other.records.Snapshot().LastID() && slices.Equal(m.objects, other.objects)
}

// everything returns all data of an account that was stored at a moment, except the times
// at which keys were used.
func (t *tenant) everything(at moment) string {
	t.Helper()
	var all strings.Builder
	note := func(v any, err error) {
		t.Helper()
		must.Succeed(t, err)
		text, err := json.Marshal(v)
		must.Succeed(t, err)
		all.Write(append(text, '\n'))
	}
	opened := must.Get(records.Open(t.Context(), at.records, nil))(t)
	jobs, _, err := opened.List(t.Context(), t.account, 10_000, "")
	note(len(jobs), err)
	objects := map[string][]blob.ObjectInfo{} // by job
	for _, object := range at.objects {
		id := strings.Split(object.Key, "/")[1]
		objects[id] = append(objects[id], object)
	}
	for _, job := range jobs {
		note(opened.Get(t.Context(), job.ID))
		note(opened.ListParts(t.Context(), job.ID))
		note(objects[job.ID], nil)
	}
	files, _, err := opened.ListFiles(t.Context(), t.account, "", store.PageRequest{Limit: 10_000})
	note(files, err)
	note(t.deliveriesIn(opened), nil)
	keys, err := opened.ListKeys(t.Context())
	note(slices.DeleteFunc(keys, func(k store.APIKey) bool { return k.Account != t.account }), err)
	entries, _, err := opened.ListAudit(t.Context(), t.account, 10_000, "")
	note(entries, err)
	names, err := opened.ListValues(t.Context(), "")
	note(nil, err)
	for _, name := range names {
		doc, version, err := opened.GetValue(t.Context(), name)
		if strings.Contains(name, t.account) || strings.Contains(string(doc), t.account) {
			note([]any{name, string(doc), version}, err)
		}
	}
	return all.String()
}

// An attempt is a call of a route by one account for the data of an account.
type attempt struct {
	route  string
	visit  visit
	by, of *tenant
	admin  bool // with the administrator's key
}

// fill returns the path of the attempt. If unknown is true, it contains ids that do not
// exist.
func (a attempt) fill(rng *rand.Rand, unknown bool) string {
	path := a.route[strings.IndexByte(a.route, ' ')+1:]
	job, key, function, file, batch, messages, upload := a.of.jobs["done"], a.of.keys[2], a.of.function(), a.of.file, a.of.batch, a.of.messages, a.of.upload
	hook, delivery := a.of.webhooks[0], a.of.delivery
	if a.by != a.of {
		job = a.of.jobs[[]string{"done", "running", "pending"}[rng.IntN(3)]]
		key = a.of.keys[rng.IntN(len(a.of.keys))]
	}
	if unknown {
		job, key, function = unknownIDs[0], "000000000000", "of-nobody"
		nobody := strings.Repeat("0", 32)
		file, batch, messages, upload = "file-"+nobody, "batch_"+nobody, "msgbatch_"+nobody, "upload_"+nobody
		hook, delivery = "we_"+nobody, "msg_"+nobody
	}
	return strings.NewReplacer(":job_id", job, ":key_id", key, ":function", function, ":file_id", file, ":batch_id", batch, ":message_batch_id", messages, ":upload_id", upload, ":webhook_id", hook, ":delivery_id", delivery, ":row", "0", ":node", "n1").Replace(path)
}

// TestIsolation_TwoAccountsThroughEveryRoute lets two accounts call every route for each
// other's data, with every kind of key and in random order. No answer to an account may
// contain data of the other account, and no call may change data of the other account.
func TestIsolation_TwoAccountsThroughEveryRoute(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.JobWait = time.Nanosecond })
	var routes []string
	for _, r := range w.engine.Routes() {
		routes = append(routes, r.Method+" "+r.Path)
	}
	slices.Sort(routes)
	if known := slices.Sorted(maps.Keys(visits)); !slices.Equal(known, routes) {
		t.Fatalf("visits must have an entry for each route\nentries %v\nroutes  %v", known, routes)
	}
	red, blue := newTenant(w, "crimson", 715_517), newTenant(w, "cobalt", 924_429)
	var attempts []attempt
	for _, route := range routes {
		for _, by := range []*tenant{red, blue} {
			for _, of := range []*tenant{red, blue} {
				for _, admin := range []bool{true, false} {
					attempts = append(attempts, attempt{route, visits[route], by, of, admin})
				}
			}
		}
	}
	rng := rand.New(rand.NewPCG(seed.ForTest(t), 0))
	rng.Shuffle(len(attempts), func(i, j int) { attempts[i], attempts[j] = attempts[j], attempts[i] })
	for _, a := range attempts {
		a.check(rng)
	}
	attempt{"GET /metrics", visits["GET /metrics"], red, blue, true}.check(rng) // after all other routes
	for _, pair := range [][2]*tenant{{red, blue}, {blue, red}} {
		stored := pair[0].everything(w.now())
		for _, mark := range pair[1].marks() {
			if holds(stored, mark) {
				t.Errorf("the stored data of %s contains %q", pair[0].account, mark)
			}
		}
	}
}

// check runs an attempt.
func (a attempt) check(rng *rand.Rand) {
	a.by.Helper()
	k := a.by.user
	if a.admin {
		k = a.by.admin
	}
	path := a.fill(rng, false)
	if a.visit.path != nil {
		path = a.visit.path(a.by, a.of)
	}
	var query, body string
	if a.visit.query != nil {
		query = a.visit.query(a.of)
		path += "?" + query
	}
	if a.visit.body != nil {
		body = a.visit.body(a.of)
	}
	headers := []string{"Idempotency-Key", "of " + a.of.account + " " + path} // the same key and body for both
	if a.visit.open {
		headers = append(headers, "Authorization", "")
	}
	if a.visit.form {
		headers = append(headers, "Content-Type", formType)
	}
	other := a.of
	if a.by == a.of {
		other = nil
	}
	var marks []string
	entries := 0
	if other != nil {
		marks = other.marks()
	}
	if other == nil || a.visit.open {
		entries = len(a.of.auditTrail())
	}
	before := a.by.now()
	method := a.route[:strings.IndexByte(a.route, ' ')]
	ask := a.by.as(k).do
	if a.visit.flows {
		ask = a.by.as(k).upToReady
	}
	got := ask(method, path, body, headers...)
	what := fmt.Sprintf("%s %s %s by %s (admin %v)", method, path, body, a.by.account, a.admin)
	if got.status >= 500 && got.status != a.visit.status {
		a.by.Errorf("%s: status %d: %s", what, got.status, got.text)
	}
	if a.visit.open { // the answer may contain no account's data
		marks = append(a.by.marks(), a.of.marks()...)
	}
	for _, mark := range marks {
		if holds(string(got.text)+fmt.Sprint(got.header), mark) && !strings.Contains(path+body, mark) {
			a.by.Errorf("%s: the answer %d holds %q:\n%s", what, got.status, mark, got.text)
		}
	}
	want := a.visit.status
	if want == 0 {
		want = 200
	}
	switch {
	case a.visit.operators || a.visit.admin && !a.admin:
		if got.status != 403 {
			a.by.Errorf("%s: status %d, want 403: %s", what, got.status, got.text)
		}
	case other == nil || a.visit.open:
		if got.status != want {
			a.by.Errorf("%s: status %d, want %d: %s", what, got.status, want, got.text)
		}
		if a.visit.shows && other == nil && !slices.ContainsFunc(a.by.marks(), func(mark string) bool { return holds(string(got.text), mark) }) {
			a.by.Errorf("%s: nothing of the account's own is in the answer: %s", what, got.text)
		}
		if grown := len(a.of.auditTrail()) - entries; a.visit.audited && grown != 1 || !a.visit.audited && grown != 0 {
			a.by.Errorf("%s: the audit record has grown by %d entries", what, grown)
		}
	case strings.Contains(a.route, "_id") || strings.Contains(a.route, ":function"):
		a.likeUnknown(rng, k, got, method, path, query, body, what)
	case slices.ContainsFunc(append(marks, a.of.function()), func(mark string) bool { return strings.Contains(query+body, mark) }):
		if !slices.Contains([]int{400, 403, 404}, got.status) {
			a.by.Errorf("%s: status %d, want 403, or 400 or 404 for what the account lacks: %s", what, got.status, got.text)
		}
	}
	if after := a.by.now(); other != nil && !a.visit.open && !after.equals(before) && other.everything(after) != other.everything(before) {
		a.by.Errorf("%s: changed the stored data of %s", what, other.account)
	}
}

// auditTrail returns the audit record of the account.
func (t *tenant) auditTrail() []store.AuditEntry {
	t.Helper()
	entries, _, err := t.store.ListAudit(t.Context(), t.account, 10_000, "")
	must.Succeed(t, err)
	return entries
}

// likeUnknown checks that the answer for an id of another account is the same as for an
// id that does not exist.
func (a attempt) likeUnknown(rng *rand.Rand, k madeKey, got *answered, method, path, query, body, what string) {
	a.by.Helper()
	unknown := a.fill(rng, true)
	if query != "" {
		unknown += "?" + query
	}
	like := a.by.as(k).do(method, unknown, body)
	ids := func(path string) []string { return strings.Split(strings.SplitN(path, "?", 2)[0], "/") }
	text, likeText := string(got.text), string(like.text)
	for i, id := range ids(path) {
		if id != ids(unknown)[i] {
			text, likeText = strings.ReplaceAll(text, id, "ID"), strings.ReplaceAll(likeText, ids(unknown)[i], "ID")
		}
	}
	text = strings.ReplaceAll(text, got.header.Get(headerRequestID), "REQUEST")
	likeText = strings.ReplaceAll(likeText, like.header.Get(headerRequestID), "REQUEST")
	if got.status != nethttp.StatusNotFound || like.status != got.status || text != likeText {
		a.by.Errorf("%s: %d %s\nunknown id: %d %s", what, got.status, text, like.status, likeText)
	}
}

// TestIsolation_Streams lets two accounts listen while jobs of both start and end. Each
// account receives all its own events and no other events.
func TestIsolation_Streams(t *testing.T) {
	t.Parallel()
	w := setup(t)
	red, blue := newTenant(w, "crimson", 715_517), newTenant(w, "cobalt", 924_429)
	streams := map[*tenant][]*listener{}
	for _, one := range []*tenant{red, blue} {
		for _, key := range []madeKey{one.admin, one.user} {
			l := one.as(key).listening("/v1/events?topics=jobs,job:" + one.jobs["running"])
			l.ready()
			streams[one] = append(streams[one], l)
		}
	}
	last := map[*tenant]string{}
	for range 3 {
		for _, one := range []*tenant{red, blue} {
			last[one] = one.as(one.user).submitted(fmt.Sprintf(`{"inputs":["a"],"name":"%s's"}`, one.account))
			one.as(one.user).get("/v1/job-cancel/" + last[one]).want(200)
		}
	}
	for one, other := range map[*tenant]*tenant{red: blue, blue: red} {
		marks := other.marks()
		for _, l := range streams[one] {
			for heard := ""; heard != last[one]; {
				e, more := l.next()
				if !more {
					t.Fatalf("%s received no event of %s: %v", one.account, last[one], l.lines.Err())
				}
				for _, mark := range marks {
					if holds(e.data, mark) {
						t.Errorf("%s hears of %s: %s", one.account, other.account, e.data)
					}
				}
				heard = jobsOf(t, []streamEvent{e})[0]
			}
		}
	}
}
