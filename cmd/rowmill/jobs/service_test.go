package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// A service is a scripted Rowmill: each request for a job gets the next record, and
// after the last one that record again.
type service struct {
	t       *testing.T
	server  *httptest.Server
	content string // of all results

	mu          sync.Mutex
	records     []string
	looks       int
	onLook      func(n int) // called with the number of the request, from 1
	submissions []map[string]any
	uploaded    bytes.Buffer
	queries     []string
	forecast    string // of each submission, after a comma
	refuse      int    // status of every answer, if set
	running     bool
	events      http.HandlerFunc // nil: no handler at the route
	models      string           // the answer of /v1/models; empty: none
	quotas      string           // the answer of /v1/get-quotas; empty: none
}

const jobID = "job-0198c0de-0000-7000-8000-000000000001"

func newService(t *testing.T, records ...string) *service {
	t.Helper()
	s := &service{t: t, records: records, content: "PAR1 the results PAR1"}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	return s
}

func record(status, more string) string {
	return fmt.Sprintf(`{"job_id":%q,"status":%q,"model":"gpt-oss-20b","datetime_created":"2026-01-02T03:04:05Z"%s}`, jobID, status, more)
}

var done = record("succeeded", `,"num_rows":3,"rows_done":3,"input_tokens":30,"output_tokens":60`)

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	signed := strings.HasPrefix(r.URL.Path, "/signed/")
	switch key := r.Header.Get("Authorization"); {
	case signed && key != "":
		s.t.Error("the API key was sent to a signed URL")
	case !signed && key != "Key secret":
		s.answer(w, http.StatusUnauthorized, `{"message":"unknown key","code":"unknown_key","request_id":"r1"}`)
		return
	case s.refuse != 0:
		s.answer(w, s.refuse, `{"message":"refused","request_id":"r2"}`)
		return
	}
	s.queries = append(s.queries, r.URL.RequestURI())
	path := strings.TrimPrefix(r.URL.Path, "/v1")
	switch path {
	case "/batch-inference":
		body, err := io.ReadAll(r.Body)
		var sub map[string]any
		if err == nil {
			err = json.Unmarshal(body, &sub)
		}
		if err != nil {
			s.t.Errorf("submission: %v", err)
		}
		sub["(key)"] = r.Header.Get("Idempotency-Key")
		s.submissions = append(s.submissions, sub)
		s.answer(w, 200, fmt.Sprintf(`{"metadata":{"job_id":%[1]q,"message":"made"},"results":%[1]q,"warnings":["max_tokens lowered"]%[2]s}`, jobID, s.forecast))
	case "/models", "/get-quotas":
		answer := map[string]string{"/models": s.models, "/get-quotas": s.quotas}[path]
		if answer == "" {
			s.answer(w, 404, `{"message":"there is nothing here","code":"unknown_route","request_id":"r6"}`)
			return
		}
		s.answer(w, 200, answer)
	case "/events":
		if s.events == nil {
			s.answer(w, 404, `{"message":"there is nothing at GET /v1/events","code":"unknown_route","request_id":"r5"}`)
			return
		}
		s.mu.Unlock() // the handler may take any time
		defer s.mu.Lock()
		s.events(w, r)
	case "/jobs/" + jobID:
		s.looks++
		if s.onLook != nil {
			s.onLook(s.looks)
		}
		s.answer(w, 200, `{"job":`+s.records[min(s.looks, len(s.records))-1]+`}`)
	case "/job-status/" + jobID:
		s.answer(w, 200, `{"message":"waiting for a server","job_status":"starting","metadata":{}}`)
	case "/job-cancel/" + jobID:
		s.answer(w, 200, `{"cancelled":true,"message":"The job was cancelled."}`)
	case "/job-cancel/job-over":
		s.answer(w, 200, `{"cancelled":false,"message":"The job has succeeded already."}`)
	case "/jobs/" + jobID + "/progress":
		s.answer(w, 200, `{"status":"running","nodes":[{"node":"gpu1","rows_assigned":2000,"rows_done":17,"rows_per_second":1.5}]}`)
	case "/jobs/" + jobID + "/results":
		io.WriteString(w, s.content)
	case "/jobs/" + jobID + "/resume":
		var sent map[string]any
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil || r.Method != http.MethodPost {
			s.t.Errorf("%s to resume: %v", r.Method, err)
		}
		sent["(key)"] = r.Header.Get("Idempotency-Key")
		s.submissions = append(s.submissions, sent)
		s.answer(w, 200, `{"metadata":{"job_id":"job-next","message":"made"},"results":"job-next"}`)
	case "/jobs/" + jobID + "/results-url":
		if s.running {
			s.answer(w, 409, `{"message":"the job is running","code":"job_not_over","request_id":"r4"}`)
			return
		}
		s.answer(w, 200, fmt.Sprintf(`{"urls":{"get":"%[1]s/signed/get?sig=x","head":"%[1]s/signed/head?sig=y"}}`, s.server.URL))
	case "/signed/get", "/signed/head":
		w.Header().Set("ETag", `"e"`)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(s.content))
	case "/jobs/compare/summary":
		job := `{"job_id":%q,"name":%s,"num_rows":3}`
		s.answer(w, 200, `{"jobs":[`+fmt.Sprintf(job, "job-a", `"same"`)+","+fmt.Sprintf(job, "job-b", `"same"`)+","+fmt.Sprintf(job, "job-c", `"other"`)+`],"num_rows":3}`)
	case "/jobs/compare":
		row := `{"row":%d,"input":%s,"cut":%t,"same_input":true,"outputs":[{"status":"done","output":%s},{"status":"failed","output":null,"code":"c"},{"status":"done","output":[1.5]}]}`
		page := `"rows":[` + fmt.Sprintf(row, 0, `"a, \"b\""`, false, `"x\ny"`) + "," + fmt.Sprintf(row, 1, "null", true, `""`) + `],"next_offset":2`
		if r.URL.Query().Get("offset") == "2" {
			page = `"rows":[` + fmt.Sprintf(row, 2, `"c"`, false, `"z"`) + `],"next_offset":null`
		}
		s.answer(w, 200, `{"jobs":[],`+page+`}`)
	case "/jobs/" + jobID + "/rows/7":
		s.answer(w, 200, `{"row":7,"input":"<in>","output":"out"}`)
	case "/jobs/" + jobID + "/errors":
		s.page(w, r, "errors", func(i int) string {
			return fmt.Sprintf(`{"row":%d,"code":"schema_violation","message":"no\u001b[31m","raw_output":"{"}`, i)
		})
	case "/uploads":
		s.answer(w, 200, `{"id":"upload_1","status":"pending","parts":[]}`)
	case "/uploads/upload_1/parts":
		part, _, err := r.FormFile("data")
		if err == nil {
			_, err = s.uploaded.ReadFrom(part)
		}
		if err != nil {
			s.t.Errorf("part: %v", err)
		}
		s.answer(w, 200, `{"id":"part_1"}`)
	case "/uploads/upload_1/complete":
		s.answer(w, 200, `{"id":"upload_1","status":"completed","file":{"id":"file-1"},"parts":[]}`)
	case "/files/file-1":
		s.answer(w, 200, `{"id":"file-1","deleted":true}`)
	case "/functions/card":
		s.answer(w, 200, `{"name":"card","revision":1,"inputs":[{"name":"prompt","required":true}],"prompt":"{{prompt}}"}`)
	case "/list-jobs":
		s.page(w, r, "jobs", func(i int) string {
			kind := "FULL"
			if i == 0 {
				kind = "COST_ESTIMATE"
			}
			failed := 0
			if r.URL.Query().Get("failed_rows") == "true" {
				failed = 3
			}
			return fmt.Sprintf(`{"job_id":"job-%d","status":"running","run_type":%q,"model":"m","num_rows":2000,"rows_done":%d,"failed_rows":%d,"name":"n%d"}`, i, kind, i, failed, i)
		})
	default:
		s.answer(w, 404, `{"message":"no job was found with that ID","code":"not_found","request_id":"r3"}`)
	}
}

// page serves 250 items.
func (s *service) page(w http.ResponseWriter, r *http.Request, name string, item func(int) string) {
	var from, limit int
	fmt.Sscan(r.URL.Query().Get("cursor"), &from)
	fmt.Sscan(r.URL.Query().Get("limit"), &limit)
	if limit < 1 || limit > 100 {
		s.t.Errorf("limit %d", limit)
	}
	var items []string
	for ; len(items) < limit && from < 250; from++ {
		items = append(items, item(from))
	}
	next := "null"
	if from < 250 {
		next = fmt.Sprintf("%q", fmt.Sprint(from))
	}
	s.answer(w, 200, fmt.Sprintf(`{%q:[%s],"next_cursor":%s}`, name, strings.Join(items, ","), next))
}

func (s *service) answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	io.WriteString(w, body)
}

// A call is one run of the program in its own folder.
type call struct {
	ctx      context.Context
	dir      string
	environ  []string
	stdin    string
	live     bool
	patience time.Duration
	out, err bytes.Buffer
	code     int
}

func newCall(t *testing.T, s *service) *call {
	t.Helper()
	dir := t.TempDir()
	return &call{
		ctx: t.Context(), dir: dir, patience: time.Minute,
		environ: []string{"HOME=" + filepath.Join(dir, "home"), "ROWMILL_SERVER=" + s.server.URL, "ROWMILL_API_KEY=secret"},
	}
}

// run runs `rowmill jobs` with args. DIR in args means the call's folder.
func (c *call) run(args ...string) *call {
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "DIR", c.dir)
	}
	c.out.Reset()
	c.err.Reset()
	cmd := Command(Config{
		Options: connect.Options{Term: &terminal.IO{
			In: strings.NewReader(c.stdin), Out: &c.out, Err: &c.err, Environ: c.environ,
			Live: c.live, Width: func() int { return 100 },
		}},
		Poll: time.Millisecond, Patience: c.patience,
	})
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&c.out)
	cmd.SetErr(&c.err)
	err := cmd.ExecuteContext(c.ctx)
	if err != nil {
		fmt.Fprintln(&c.err, "rowmill:", err)
	}
	c.code = exit.Code(err)
	return c
}

// want checks the exit code, and that standard error contains each text.
func (c *call) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if c.code != code {
		t.Errorf("exit code %d, want %d; standard error:\n%s", c.code, code, c.err.String())
	}
	for _, text := range texts {
		text = strings.ReplaceAll(text, "DIR", c.dir)
		if !strings.Contains(c.err.String(), text) {
			t.Errorf("standard error lacks %q:\n%s", text, c.err.String())
		}
	}
}
