package jobs

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

func gzipped(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	must.Get(w.Write([]byte(text)))(t)
	must.Succeed(t, w.Close())
	return out.Bytes()
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args []string
		with func(s *service, c *call)
		code int
		want []string
	}{
		{"found", []string{"get", jobID}, nil, 0, nil},
		{"not found", []string{"get", "job-absent"}, nil, 5, []string{"no job was found", "request r3"}},
		{"not found by status", []string{"status", "job-absent"}, nil, 5, nil},
		{"not found by cancel", []string{"cancel", "job-absent"}, nil, 5, nil},
		{"cancelled", []string{"cancel", jobID}, nil, 0, []string{"The job was cancelled."}},
		{"over already", []string{"cancel", "job-over"}, nil, 1, []string{"has succeeded already"}},
		{"no results", []string{"results", "job-absent", "--output", "DIR/o.json"}, nil, 5, nil},
		{"wrong key", []string{"list"}, func(_ *service, c *call) { c.environ = append(c.environ, "ROWMILL_API_KEY=other") }, 4, []string{"unknown key", "request r1"}},
		{"no key", []string{"list"}, func(_ *service, c *call) { c.environ = append(c.environ, "ROWMILL_API_KEY=") }, 4, []string{"no API key", "ROWMILL_API_KEY"}},
		{"may not", []string{"list"}, func(s *service, _ *call) { s.refuse = http.StatusForbidden }, 4, []string{"refused"}},
		{"fault of the service", []string{"list"}, func(s *service, _ *call) { s.refuse = 500 }, 1, []string{"refused"}},
		{"results are gone", []string{"results", jobID, "--output", "DIR/o.json"}, func(s *service, _ *call) { s.refuse = http.StatusGone }, 5, nil},
		{"nobody there", []string{"list"}, func(s *service, _ *call) { s.server.Close() }, 8, []string{"cannot reach"}},
		{"server is no URL", []string{"list", "--server", "localhost"}, nil, 2, []string{"not an http or https address"}},
		{"print format", []string{"list", "-o", "xml"}, nil, 2, []string{"table or json"}},
		{"limit", []string{"list", "--limit", "0"}, nil, 2, []string{"at least 1"}},
		{"row number", []string{"rows", jobID, "-1x"}, nil, 1, nil},
		{"negative row", []string{"rows", jobID, "--", "-1"}, nil, 2, []string{"numbered from 0"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, done)
			c := newCall(t, s)
			if test.with != nil {
				test.with(s, c)
			}
			c.run(test.args...).want(t, test.code, test.want...)
		})
	}
}

func TestWhereTheKeyComesFrom(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		profile string
		mode    os.FileMode
		environ []string
		args    []string
		code    int
		want    string
	}{
		{name: "profile", profile: "server: URL\napi_key: secret\n", mode: 0o600},
		{name: "profile that others read", profile: "server: URL\napi_key: secret\n", mode: 0o640, code: 2, want: "chmod 600"},
		{name: "profile without a key", profile: "server: URL\n", mode: 0o644, code: 4, want: "no API key"},
		{name: "profile with a slip", profile: "sever: URL\n", mode: 0o600, code: 2, want: "sever"},
		{
			name: "key of another server stays", profile: "server: http://other.example\napi_key: secret\n", mode: 0o600,
			environ: []string{"ROWMILL_SERVER=URL"}, code: 4, want: "is for http://other.example",
		},
		{
			name: "environment over profile", profile: "server: http://127.0.0.1:1\napi_key: no\n", mode: 0o600,
			environ: []string{"ROWMILL_SERVER=URL", "ROWMILL_API_KEY=secret"},
		},
		{name: "file over environment", environ: []string{"ROWMILL_SERVER=URL", "ROWMILL_API_KEY=no"}, args: []string{"--api-key-file", "DIR/key"}},
		{name: "file from environment", environ: []string{"ROWMILL_SERVER=URL", "ROWMILL_API_KEY_FILE=DIR/key"}},
		{name: "flag over environment", environ: []string{"ROWMILL_SERVER=http://127.0.0.1:1", "ROWMILL_API_KEY=no"}, args: []string{"--server", "URL", "--api-key", "secret"}},
		{name: "file is missing", args: []string{"--api-key-file", "DIR/absent"}, code: 2, want: "read the API key"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, done)
			c := newCall(t, s)
			fill := func(text string) string {
				return strings.ReplaceAll(strings.ReplaceAll(text, "URL", s.server.URL), "DIR", c.dir)
			}
			write(t, c.dir, "key", "secret\n")
			c.environ = []string{"XDG_CONFIG_HOME=" + c.dir}
			for _, pair := range test.environ {
				c.environ = append(c.environ, fill(pair))
			}
			if test.profile != "" {
				must.Succeed(t, os.Mkdir(filepath.Join(c.dir, "rowmill"), 0o700))
				path := write(t, c.dir, "rowmill/config.yaml", fill(test.profile))
				must.Succeed(t, os.Chmod(path, test.mode))
			}
			args := []string{"list"}
			for _, arg := range test.args {
				args = append(args, fill(arg))
			}
			c.run(args...).want(t, test.code, test.want)
		})
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	s := newService(t, done)
	c := newCall(t, s)
	c.run("list", "--limit", "2").want(t, 0, "more: rowmill jobs list --cursor 2")
	c.run("list", "-n", "2", "--status", "running,failed", "--search", "a b").want(t, 0, "more: rowmill jobs list --status running,failed --search 'a b' --cursor 2")
	c.run("list", "--limit", "2", "--failed-rows").want(t, 0, "more: rowmill jobs list --failed-rows --cursor 2")
	if !strings.Contains(c.out.String(), "3 failed") {
		t.Errorf("the service did not get failed_rows=true: %q", c.out.String())
	}
	c.run("list", "--limit", "2").want(t, 0, "")
	lines := strings.Split(c.out.String(), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "JOB") || !strings.HasSuffix(lines[1], "n0 (estimate)") || !strings.Contains(lines[2], "job-1  running  1/2,000  m") || !strings.HasSuffix(lines[2], "n1") {
		t.Errorf("%q", lines)
	}
	c.run("list", "--limit", "120", "-o", "json").want(t, 0, "--cursor 120")
	var all []map[string]any
	if err := json.Unmarshal(c.out.Bytes(), &all); err != nil || len(all) != 120 || all[119]["job_id"] != "job-119" {
		t.Errorf("%d jobs, error %v", len(all), err)
	}
	c.run("list", "--all", "-o", "json").want(t, 0)
	if err := json.Unmarshal(c.out.Bytes(), &all); err != nil || len(all) != 250 || c.err.Len() > 0 {
		t.Errorf("%d jobs, error %v, said %q", len(all), err, c.err.String())
	}
	c.run("list", "--all", "--cursor", "250", "-o", "json").want(t, 0)
	if strings.TrimSpace(c.out.String()) != "[]" {
		t.Errorf("no jobs print as %q", c.out.String())
	}
}

func TestErrorsAndRows(t *testing.T) {
	t.Parallel()
	c := newCall(t, newService(t, done))
	c.run("errors", jobID, "-n", "1").want(t, 0, "rowmill jobs errors "+jobID+" --cursor 1")
	if got := c.out.String(); !strings.Contains(got, "0    schema_violation  no [31m") || strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
	c.run("rows", jobID, "7").want(t, 0)
	if got := c.out.String(); !strings.Contains(got, `"input": "<in>"`) {
		t.Errorf("%q", got)
	}
	c.run("rows", jobID, "8").want(t, 5, "row 8 of")
}

func TestGetAndStatus(t *testing.T) {
	t.Parallel()
	full := record("failed", `,"name":"evil\u001b[2J","num_rows":3,"rows_done":1,"output_tokens":12345,"sampling_params":{"top_p":0.5},"unheard_of":1.50,
		"failure_reason":{"message":"m","code":"c","additional_context":""},"warnings":["w"]`)
	c := newCall(t, newService(t, full))
	c.run("get", jobID).want(t, 0)
	for _, want := range []string{"failure        m (c)", "rows           1/3", "output tokens  12,345", `sampling       {"top_p":0.5}`, "warning        w"} {
		if !strings.Contains(c.out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, c.out.String())
		}
	}
	if strings.Contains(c.out.String(), "\x1b") {
		t.Error("a name steers the terminal")
	}
	c.run("get", jobID, "-o", "json").want(t, 0)
	if !strings.Contains(c.out.String(), `"unheard_of": 1.50`) {
		t.Errorf("a field was lost: %s", c.out.String())
	}
	c.run("status", jobID).want(t, 0, "waiting for a server")
	if c.out.String() != "starting\n" {
		t.Errorf("%q", c.out.String())
	}
}

func TestGetSaysWhereRowsAre(t *testing.T) {
	t.Parallel()
	c := newCall(t, newService(t, record("running", `,"num_rows":3000,"rows_done":17`)))
	c.run("get", jobID).want(t, 0)
	if !strings.Contains(c.out.String(), "on gpu1   2,000 rows, 17 done\n") {
		t.Error(c.out.String())
	}
	c.run("get", jobID, "-o", "json").want(t, 0)
	if strings.Contains(c.out.String(), "gpu1") {
		t.Errorf("the record is not as the service wrote it: %s", c.out.String())
	}
}

func TestResults(t *testing.T) {
	t.Parallel()
	s := newService(t, done)
	c := newCall(t, s)
	c.run("results", jobID, "--format", "json", "--output", "-", "--include-logprobs").want(t, 0)
	if c.out.String() != s.content || c.err.Len() > 0 {
		t.Errorf("%q, said %q", c.out.String(), c.err.String())
	}
	if last := s.queries[len(s.queries)-1]; !strings.HasSuffix(last, "/results?format=json&include_cumulative_logprobs=true") {
		t.Error(last)
	}
	c.run("results", jobID, "--output", "DIR/r.zip").want(t, 0, "wrote DIR/r.zip")
	if last := s.queries[len(s.queries)-1]; !strings.Contains(last, "format=csv") {
		t.Error("the ending does not choose the format:", last)
	}
	c.run("results", jobID, "--output", "DIR/r.zip").want(t, 2, "exists")
	c.run("results", jobID, "--output", "DIR/r.zip", "--force", "--quiet").want(t, 0)
	if c.err.Len() > 0 {
		t.Errorf("quiet said %q", c.err.String())
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	c := newCall(t, newService(t, done))
	c.run("__complete", "get", "")
	if !strings.Contains(c.out.String(), "job-3\trunning n3") {
		t.Errorf("%s", c.out.String())
	}
}

func TestQuote(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{"a/b-c.parquet": "a/b-c.parquet", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'"} {
		if got := shellQuote(word); got != want {
			t.Errorf("%q is %s, want %s", word, got, want)
		}
	}
}

func TestBaseName(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		"a/b.csv": "b", "b.csv.gz": "b", "b.csv.zst": "b", "lake:reviews/*.csv": "lake", "-": "rowmill", "https://h/x/y.parquet?sig=z.w": "y", "https://h/": "rowmill", "noending": "noending", ".": "rowmill",
	} {
		if got := defaultResultName(input); got != want {
			t.Errorf("%q is %q, want %q", input, got, want)
		}
	}
}
