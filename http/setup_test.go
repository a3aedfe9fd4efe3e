package http

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	nethttp "net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.uber.org/goleak"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/engine/placement"
	"github.com/rowmill/rowmill/engine/served"
	"github.com/rowmill/rowmill/http/access"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/jobs"
	"github.com/rowmill/rowmill/http/nodes"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/deployment"
	"github.com/rowmill/rowmill/store/kv/mem"
	"github.com/rowmill/rowmill/store/records"
)

func TestMain(m *testing.M) {
	for _, file := range []string{"application/zip", layout.Parquet, "text/html", "text/javascript", "image/svg+xml"} {
		openapi3filter.RegisterBodyDecoder(file, openapi3filter.FileBodyDecoder)
	}
	for _, stream := range []string{"application/x-ndjson", "text/event-stream", "application/openmetrics-text"} {
		openapi3filter.RegisterBodyDecoder(stream, openapi3filter.PlainBodyDecoder)
	}
	goleak.VerifyTestMain(m)
}

const adminKey = "the-administrator's key"

// fakeService records the hints that it gets.
type fakeService struct {
	mu          sync.Mutex
	submitted   []string
	cancelled   []string
	rescheduled []string
	checks      []ReadinessCheck
	draining    bool
	waiting     string
	nodes       []client.Node
	servers     []served.Server
	counting    map[string]TokenCounting
	actors      []nodes.ActorStatus
	answered    []nodes.ActorQueryStatus
	asked       nodes.ActorFilter // filter of the last call of Actors
	actorsErr   error
	drained     []string
	drainErr    error
	engines     []client.Engine
	points      func() []nodes.NodeStats
	gpus        []nodes.NodeGPUs
	starting    []client.Server // ServerList
	serverErr   error           // of SetServerMode and ServerLog
	log         func(nodeID, name string, part nodes.LogPart) client.ServerLog
	missing     []string
	where       *jobs.RowDistribution
	backup      func() (nodes.BackupSnapshot, error) // nil: ErrNoBackup
}

func (f *fakeService) EngineList(context.Context) (all []client.Engine, missing []string, err error) {
	return f.engines, f.missing, nil
}

func (f *fakeService) Points(context.Context) ([]nodes.NodeStats, error) {
	if f.points == nil {
		return nil, nil
	}
	return f.points(), nil
}

func (f *fakeService) GPUs(context.Context) ([]nodes.NodeGPUs, error) { return f.gpus, nil }

func (f *fakeService) ServerList(context.Context) ([]client.Server, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.starting), nil
}

func (f *fakeService) SetServerMode(_ context.Context, node, name string, mode placement.Mode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, s := range f.starting {
		if s.Node == node && s.Name == name && f.serverErr == nil {
			f.starting[i].Mode = string(mode)
		}
	}
	return f.serverErr
}

func (f *fakeService) ServerLog(_ context.Context, nodeID, name string, part nodes.LogPart) (client.ServerLog, error) {
	if f.serverErr != nil {
		return client.ServerLog{}, f.serverErr
	}
	return f.log(nodeID, name, part), nil
}

func (f *fakeService) NotifySubmitted(record store.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.submitted = append(f.submitted, record.Job.ID)
}

func (f *fakeService) NotifyRescheduled(record store.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rescheduled = append(f.rescheduled, record.Job.ID)
}

func (f *fakeService) NotifyCancelled(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancelled = append(f.cancelled, id)
}

func (f *fakeService) RowDistribution(context.Context, *store.Record) *jobs.RowDistribution {
	return f.where
}

func (f *fakeService) Checks(context.Context) []ReadinessCheck { return f.checks }
func (f *fakeService) WaitReason(*rowmill.Job, string) string  { return f.waiting }
func (f *fakeService) Draining() bool                          { return f.draining }
func (f *fakeService) Nodes(context.Context) []client.Node     { return f.nodes }
func (f *fakeService) Counting(m rowmill.Model) TokenCounting  { return f.counting[m.ID] }
func (f *fakeService) Servers() []served.Server                { return f.servers }

func (f *fakeService) Actors(_ context.Context, filter nodes.ActorFilter) ([]nodes.ActorStatus, []nodes.ActorQueryStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = filter
	return f.actors, f.answered, f.actorsErr
}

func (f *fakeService) Diagnose(context.Context) ([]nodes.Diagnosis, error) {
	away := "no answer in time"
	return []nodes.Diagnosis{
		{ID: "gpu1-a", Name: "gpu1", Facts: &client.Facts{Members: []string{"gpu1-a"}, Settings: map[string]string{"jobs.max_active": "64"}, Findings: []client.Finding{{Check: "bucket", Level: "fail", Text: "cannot be written", Remedy: "allow s3:PutObject"}}, Storage: client.StorageTimes{CommitSeconds: []float64{0.002}, SyncSeconds: []float64{}, PutSeconds: []float64{0.01}, GetSeconds: []float64{}, ObjectBytes: 1024}}},
		{ID: "gpu2-b", Name: "gpu2", Error: &away},
	}, nil
}

func (f *fakeService) CheckStorage(_ context.Context, read bool) (deployment.NodeReport, error) {
	checked := deployment.NodeReport{RecordsAt: "/data/rowmill.db", ObjectsAt: "/data/objects", SkewSeconds: 1, CheckReport: deployment.CheckReport{
		Known: 7, Unknown: []deployment.QuarantineNote{}, Missing: []deployment.MissingFile{{JobID: "job-1", Key: "k"}}, Damaged: []deployment.DamagedItem{},
	}}
	if read {
		checked.Damaged = append(checked.Damaged, deployment.DamagedItem{JobID: "job-2", Key: "p", Reason: "the page's checksum is wrong"})
	}
	return checked, nil
}

func (f *fakeService) Backup(context.Context) (nodes.BackupSnapshot, error) {
	if f.backup == nil {
		return nil, nodes.ErrNoBackup
	}
	return f.backup()
}

func (f *fakeService) DrainNode(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drained = append(f.drained, id)
	return f.drainErr
}

// world is a server on a real store and bucket. Its client checks all requests and
// answers against the OpenAPI document.
type world struct {
	testing.TB
	*Server
	service *fakeService
	store   *records.Store
	backend *mem.Backend // of store
	bucket  *testBucket
	metrics *prometheus.Registry
	logs    *syncBuffer
	http    *httptest.Server
	client  *nethttp.Client
	key     string // key of the requests
}

// syncBuffer is a buffer that a server may write while a test reads it.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// setup starts a world. change may alter the configuration.
func setup(t testing.TB, change ...func(*Config)) *world {
	t.Helper()
	return setupStore(t, time.Now, change...)
}

// setupStore starts a world on a store in memory with a clock.
func setupStore(t testing.TB, clock func() time.Time, change ...func(*Config)) *world {
	t.Helper()
	w := &world{TB: t, service: &fakeService{}, metrics: prometheus.NewRegistry(), logs: &syncBuffer{}, key: adminKey, backend: mem.New(clock)}
	opened, err := records.Open(t.Context(), w.backend, nil)
	must.Succeed(t, err)
	t.Cleanup(func() { opened.Close() })
	w.store, w.bucket = opened, newTestBucket(t)
	config := Config{
		Store: w.store, Bucket: w.bucket, Catalog: catalog.Default(), Service: w.service,
		Logger:   slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Gatherer: w.metrics, Registerer: w.metrics, AdminKeys: []string{adminKey},
		Objects: w.bucket.Handler(),
		Version: BuildInfo{Version: "1.2.3", Commit: "abc", Built: "2026-11-21", Go: "go1.26"},
	}
	for _, f := range change {
		f(&config)
	}
	if w.Server, err = New(config); err != nil {
		t.Fatal(err)
	}
	w.http = httptest.NewServer(w.Handler())
	t.Cleanup(w.http.Close)
	must.Succeed(t, w.bucket.SetPublicURL(w.http.URL))
	transport := &nethttp.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	w.client = &nethttp.Client{
		Transport:     &contract{TB: t, next: transport, document: contractOf(t, w.openapi)},
		CheckRedirect: func(*nethttp.Request, []*nethttp.Request) error { return nethttp.ErrUseLastResponse },
	}
	return w
}

// answered is an answer in a test.
type answered struct {
	testing.TB
	status int
	header nethttp.Header
	text   []byte
}

// json decodes the body.
func (a *answered) json() map[string]any {
	a.Helper()
	var body map[string]any
	if err := json.Unmarshal(a.text, &body); err != nil {
		a.Fatalf("%d %q: %v", a.status, a.text, err)
	}
	return body
}

// want fails the test if the status is different.
func (a *answered) want(status int) *answered {
	a.Helper()
	if a.status != status {
		a.Fatalf("status %d, want %d: %.2000s", a.status, status, a.text)
	}
	return a
}

// wantError checks the status, the code and a part of the message of an error.
func (a *answered) wantError(status int, code, piece string) *answered {
	a.Helper()
	body := a.want(status).json()
	if body["code"] != code || !strings.Contains(fmt.Sprint(body["message"]), piece) {
		a.Fatalf("code %v, message %v; want %s and %q", body["code"], body["message"], code, piece)
	}
	return a
}

// fields returns the messages of a 400 by field.
func (a *answered) fields() map[string]string {
	a.Helper()
	found := map[string]string{}
	list, _ := a.want(400).json()["errors"].([]any)
	for _, entry := range list {
		e := entry.(map[string]any)
		found[e["field"].(string)] = e["message"].(string)
	}
	return found
}

// wantField checks that exactly one field is invalid.
func (a *answered) wantField(field, piece string) *answered {
	a.Helper()
	fields := a.fields()
	if len(fields) != 1 || !strings.Contains(fields[field], piece) {
		a.Fatalf("broken fields %v; want %s with %q", fields, field, piece)
	}
	return a
}

// do sends a request with the world's key. headers are pairs of names and values; they
// replace other headers, and an empty value removes a header.
func (w *world) do(method, path, body string, headers ...string) *answered {
	w.Helper()
	return w.send(w.request(method, path, body, headers...))
}

func (w *world) request(method, path, body string, headers ...string) *nethttp.Request {
	w.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := nethttp.NewRequestWithContext(w.Context(), method, w.http.URL+path, reader)
	must.Succeed(w, err)
	r.Header.Set("Authorization", "Key "+w.key)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] == "" {
			r.Header.Del(headers[i])
		} else {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	return r
}

func (w *world) send(r *nethttp.Request) *answered {
	w.Helper()
	response, err := w.client.Do(r)
	must.Succeed(w, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.Fatalf("%s %s: read the answer: %v", r.Method, r.URL.Path, err)
	}
	return &answered{TB: w.TB, status: response.StatusCode, header: response.Header, text: text}
}

func (w *world) get(path string, headers ...string) *answered {
	w.Helper()
	return w.do("GET", path, "", headers...)
}

func (w *world) post(body string, headers ...string) *answered {
	w.Helper()
	return w.do("POST", "/v1/batch-inference", body, headers...)
}

// submitted posts a submission, which must succeed, and returns the job's id.
func (w *world) submitted(body string, headers ...string) string {
	w.Helper()
	return w.post(body, headers...).want(200).json()["results"].(string)
}

// noJobs fails the test if a job or an object exists.
func (w *world) noJobs() {
	w.Helper()
	jobs, _, err := w.store.List(w.Context(), caller.DefaultAccount, 10, "")
	if err != nil || len(jobs) != 0 {
		w.Fatalf("jobs %v, error %v; want none", jobs, err)
	}
	if objects, err := w.bucket.List(w.Context(), ""); err != nil || len(objects) != 0 {
		w.Fatalf("objects %v, error %v; want none", objects, err)
	}
}

// keyOf creates a key of an account.
func (w *world) keyOf(account, role string) string {
	w.Helper()
	text, record := access.NewKey(account, role, "test", time.Now())
	must.Succeed(w, w.store.PutKey(w.Context(), record))
	return text
}

// contract checks requests and answers against the OpenAPI document: every answer, and
// every request that was accepted.
type contract struct {
	testing.TB
	next     nethttp.RoundTripper
	document *contractDocument
}

var contractOptions = &openapi3filter.Options{
	IncludeResponseStatus: true, MultiError: true, SkipSettingDefaults: true,
	AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
}

// A contractDocument is a parsed OpenAPI document. The router has no schemas of JSON
// bodies, because openapi3filter would compile such a schema again for each body. bodies
// has them, and compiles each schema once.
type contractDocument struct {
	router routers.Router
	bodies map[*openapi3.MediaType]func() (*jsonschema.Schema, error)
}

// contracts caches documents by their text, because building a router takes longer than
// most tests.
var contracts = struct {
	sync.Mutex
	made map[string]*contractDocument
}{made: map[string]*contractDocument{}}

func contractOf(t testing.TB, text []byte) *contractDocument {
	t.Helper()
	contracts.Lock()
	defer contracts.Unlock()
	if made := contracts.made[string(text)]; made != nil {
		return made
	}
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromData(text)
	must.Succeed(t, err)
	must.Succeed(t, doc.Validate(loader.Context))
	parsed := must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(text)))(t)
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	for name, format := range openapi3.SchemaStringFormats {
		compiler.RegisterFormat(&jsonschema.Format{Name: name, Validate: func(value any) error {
			if text, ok := value.(string); ok {
				return format.Validate(text)
			}
			return nil
		}})
	}
	compiler.AssertFormat()
	must.Succeed(t, compiler.AddResource("openapi.json", parsed))
	made := &contractDocument{bodies: map[*openapi3.MediaType]func() (*jsonschema.Schema, error){}}
	var compiling sync.Mutex
	add := func(content openapi3.Content, ref, pointer string) { // ref replaces pointer if it is not empty
		media := content["application/json"]
		if media == nil || media.Schema == nil {
			return
		}
		at := "openapi.json" + cmp.Or(ref, pointer) + "/content/application~1json/schema"
		made.bodies[media] = sync.OnceValues(func() (*jsonschema.Schema, error) {
			compiling.Lock()
			defer compiling.Unlock()
			return compiler.Compile(at)
		})
		media.Schema = nil
	}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			pointer := "#/paths/" + url.PathEscape(strings.ReplaceAll(path, "/", "~1")) + "/" + strings.ToLower(method)
			if body := operation.RequestBody; body != nil {
				add(body.Value.Content, body.Ref, pointer+"/requestBody")
			}
			for status, response := range operation.Responses.Map() {
				add(response.Value.Content, response.Ref, pointer+"/responses/"+status)
			}
		}
	}
	made.router, err = gorillamux.NewRouter(doc)
	must.Succeed(t, err)
	contracts.made[string(text)] = made
	return made
}

// checkBody checks a JSON body against the schema of its media type.
func (d *contractDocument) checkBody(content openapi3.Content, contentType string, body []byte) error {
	compile := d.bodies[content.Get(contentType)]
	if compile == nil {
		return nil
	}
	schema, err := compile()
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

func (k *contract) RoundTrip(r *nethttp.Request) (*nethttp.Response, error) {
	var sent []byte
	if r.Body != nil {
		sent, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(sent))
	}
	response, err := k.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	received, readErr := io.ReadAll(response.Body)
	response.Body.Close()
	response.Body = io.NopCloser(io.MultiReader(bytes.NewReader(received), failing{readErr}))
	if readErr == nil { // the caller checks answers that broke off
		k.check(r, sent, response, received)
	}
	return response, nil
}

// failing is a reader that returns the error of a broken answer.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}

func (k *contract) check(r *nethttp.Request, sent []byte, response *nethttp.Response, received []byte) {
	if response.Header.Get(headerRequestID) == "" {
		k.Errorf("%s %s: no %s", r.Method, r.URL.Path, headerRequestID)
	}
	if response.Header.Get("X-Content-Type-Options") != "nosniff" {
		k.Errorf("%s %s: a browser may take the answer for something else than it says", r.Method, r.URL.Path)
	}
	lookup := r.Clone(r.Context())
	lookup.Body = io.NopCloser(bytes.NewReader(sent))
	for _, prefix := range []string{"/objects/", "/console/"} {
		if strings.HasPrefix(r.URL.Path, prefix) && r.URL.Path != "/console/session" { // the parameters of the router cannot contain a slash
			lookup.URL.Path = prefix + "any"
		}
	}
	route, params, err := k.document.router.FindRoute(lookup)
	if err != nil {
		// The route is not in the document, so the answer must be an error in JSON.
		var body map[string]any
		if json.Unmarshal(received, &body) != nil || response.StatusCode < 300 {
			k.Errorf("%s %s: status %d outside the document: %.200s", r.Method, r.URL.Path, response.StatusCode, received)
		}
		return
	}
	input := &openapi3filter.RequestValidationInput{Request: lookup, PathParams: params, Route: route, Options: contractOptions}
	if response.StatusCode < 300 {
		err := openapi3filter.ValidateRequest(r.Context(), input)
		if body := route.Operation.RequestBody; err == nil && body != nil && len(sent) > 0 {
			err = k.document.checkBody(body.Value.Content, r.Header.Get("Content-Type"), sent)
		}
		if err != nil {
			k.Errorf("%s %s was accepted but breaks the document: %v", r.Method, r.URL.Path, err)
		}
	}
	output := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: response.StatusCode, Header: response.Header, Options: contractOptions,
	}
	output.SetBodyBytes(received)
	err = openapi3filter.ValidateResponse(r.Context(), output)
	if err == nil && r.Method != nethttp.MethodHead {
		ref := route.Operation.Responses.Status(response.StatusCode)
		if ref == nil {
			ref = route.Operation.Responses.Default()
		}
		err = k.document.checkBody(ref.Value.Content, response.Header.Get("Content-Type"), received)
	}
	if err != nil {
		k.Errorf("%s %s: the answer %d breaks the document: %v\n%.1000s", r.Method, r.URL.Path, response.StatusCode, err, received)
	}
	if err := checkOpenAI(r, route.Path, response.StatusCode, received); err != nil {
		k.Errorf("%s %s: the answer %d is not OpenAI's: %v\n%.1000s", r.Method, r.URL.Path, response.StatusCode, err, received)
	}
}

func (w *world) object(key string) []byte {
	w.Helper()
	object, err := w.bucket.Open(w.Context(), key)
	must.Succeed(w, err)
	defer object.Close()
	text, err := io.ReadAll(blob.NewReader(object))
	must.Succeed(w, err)
	return text
}

// pathTo returns the path of a route with a job's id, or any other text, as parameters.
func pathTo(route, job string) string {
	parts := strings.Split(route, "/")
	for i, part := range parts {
		switch {
		case part == ":job_id":
			parts[i] = job
		case strings.HasPrefix(part, ":"), strings.HasPrefix(part, "*"):
			parts[i] = "x"
		}
	}
	return strings.Join(parts, "/")
}
