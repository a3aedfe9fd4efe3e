package jobs

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/internal/must"
)

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must.Succeed(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestSubmitAttachedWritesResults(t *testing.T) {
	t.Parallel()
	s := newService(t, record("pending", ""), record("starting", `,"message":"waiting for a server"`),
		record("running", `,"num_rows":3,"rows_done":1,"warnings":["max_tokens lowered","w1"]`), done)
	c := newCall(t, s)
	write(t, c.dir, "in.csv", "id,prompt\n1,one\n2,\"two\r\nlines\"\n3,\n")
	write(t, c.dir, "card.json", `{"type":"object"}`)
	write(t, c.dir, "system.txt", "be\nbrief")
	c.run("submit", "DIR/in.csv", "--column", "prompt", "--schema", "DIR/card.json", "--system-prompt", "@DIR/system.txt",
		"-p", "temperature=0.20", "-p", "stop=END", "-p", `bad_words=["x"]`, "--name", "n", "--description", "d",
		"--model", "m", "--messages", "--seed-per-row", "--dedup=false", "--no-truncate", "--idempotency-key", "k", "--output", "DIR/out.parquet")
	c.want(t, 0, "3 rows of CSV, column prompt", "created "+jobID, "warning: max_tokens lowered", "warning: w1",
		"waiting for a server", "succeeded: 3 rows", "wrote DIR/out.parquet (21 B)")
	if n := strings.Count(c.err.String(), "max_tokens lowered"); n != 1 {
		t.Errorf("the warning of the submission was printed %d times", n)
	}
	if c.out.Len() > 0 {
		t.Errorf("standard output holds %q", c.out.String())
	}
	var want any
	err := json.Unmarshal([]byte(`{"inputs":["one","two\r\nlines",""],"model":"m","messages":true,"system_prompt":"be\nbrief",
		"json_schema":{"type":"object"},"sampling_params":{"temperature":0.2,"stop":"END","bad_words":["x"]},
		"job_priority":0,"random_seed_per_input":true,"dedup":false,"truncate_rows":false,"name":"n","description":"d","(key)":"k"}`), &want)
	must.Succeed(t, err)
	if diff := cmp.Diff([]any{want}, []any{any(s.submissions[0])}); diff != "" {
		t.Error(diff)
	}
	got, err := os.ReadFile(filepath.Join(c.dir, "out.parquet"))
	if err != nil || string(got) != s.content {
		t.Errorf("results %q, error %v", got, err)
	}
}

func TestSubmitKinds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		file    string // empty: standard input
		content string
		args    []string
		want    []any
	}{
		{"lines", "in.txt", "a\r\n\nb\n{\"c\":1}", nil, []any{"a", "", "b", `{"c":1}`}},
		{"lines with a mark", "in.txt", "\xef\xbb\xbfa\n", nil, []any{"a"}},
		{"strings", "in.jsonl", "\"a\\n\"\n\n \"b\" \n", nil, []any{"a\n", "b"}},
		{
			"objects", "in.ndjson", `{"x":"a","y":1}` + "\n" + `{"x":null}` + "\n" + `{"x":12345678901234567890}` + "\n" + `{"x":{ "k": [1, 2] }}`,
			[]string{"--column", "x"},
			[]any{"a", "", "12345678901234567890", `{"k":[1,2]}`},
		},
		{"csv, first column", "in.csv", "p,q\na,b\n", nil, []any{"a"}},
		{"stream of lines", "", "one\ntwo\n", nil, []any{"one", "two"}},
		{"stream of strings", "", "\"one\"\n", nil, []any{"one"}},
		{"stream of csv", "", "p,q\na,b\n", []string{"--input-format", "csv", "--column", "q"}, []any{"b"}},
		{"tabs", "in.tsv", "id\ttext\n1\thello there\n", []string{"--column", "text"}, []any{"hello there"}},
		{"a table without an ending", "table", "id,text\n1,a\n", []string{"--column", "text"}, []any{"a"}},
		{"a table called .txt", "table.txt", "id;text\n1;a\n", []string{"--column", "text"}, []any{"a"}},
		{"stream of a table", "", "id,text\n1,a\n", []string{"--column", "text"}, []any{"a"}},
		{"unknown ending, objects", "in.data", "{\"t\":\"x\"}\n", []string{"--column", "t"}, []any{"x"}},
		{"gzip", "in.txt.gz", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x4b\xe4\x4a\xe2\x02\x00\xc6\x0c\xd9\x1e\x04\x00\x00\x00", nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, done)
			c := newCall(t, s)
			input := stdout
			c.stdin = test.content
			if test.file != "" {
				input = write(t, c.dir, test.file, test.content)
			}
			if test.name == "gzip" {
				input = write(t, c.dir, test.file, string(gzipped(t, "a\nb\n")))
				test.want = []any{"a", "b"}
			}
			c.run(append([]string{"submit", input, "--detach"}, test.args...)...)
			c.want(t, 0)
			if c.out.String() != jobID+"\n" {
				t.Errorf("standard output %q", c.out.String())
			}
			if diff := cmp.Diff(test.want, s.submissions[0]["inputs"]); diff != "" {
				t.Error(diff)
			}
			if _, sent := s.submissions[0]["column_name"]; sent {
				t.Error("column_name was sent with inline rows")
			}
		})
	}
}

// submit uploads a table that is large or needs more than one column. It removes the
// file after the job has its copy.
func TestSubmitUploadsTables(t *testing.T) {
	t.Parallel()
	large := "text\n" + strings.Repeat("x\n", uploadAbove/2)
	for _, test := range []struct {
		name, file, content string
		args                []string
		said                string
		uploads             bool
	}{
		{"fields of a Function", "in.csv", "id,prompt\n1,one\n", []string{"--model", "card"}, "card is a Function: its inputs are the columns", true},
		{"fields of objects", "in.jsonl", `{"id":1,"prompt":"one"}`, []string{"--model", "card"}, "card is a Function: its inputs are the columns", true},
		{"a Function of its own", "in.csv", "id,prompt\n1,one\n", []string{"--function", "DIR/function.json"}, "1 rows of CSV", true},
		{"a prompt of columns", "in.csv", "id,prompt\n1,one\n", []string{"--prompt", "{{prompt}}?", "--id-column", "id"}, "1 rows of CSV", true},
		{"a prompt of members", "in.jsonl", `{"p":{"q":"one"}}`, []string{"--prompt", "{{p.q}}?"}, "1 rows of JSON lines", true},
		{"prompts for a Function", "in.csv", "id,prompt\n1,one\n", []string{"--model", "card", "--column", "prompt"}, "", false},
		{"ids", "in.csv", "id,prompt\n1,one\n", []string{"--id-column", "id", "--column", "prompt"}, "1 rows of CSV", true},
		{"ids of objects", "in.jsonl", `{"id":1,"p":{"q":"one"}}`, []string{"--id-column", "id", "--column", "p.q"}, "1 rows of JSON lines", true},
		{"a path into objects", "in.jsonl", `{"id":1,"p":{"q":"one"}}`, []string{"--column", "p.q"}, "1 rows of JSON lines", false},
		{"a large table", "in.csv", large, nil, "rows of CSV", true},
		{"large text", "in.txt", large, nil, "rows of plain text", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, done)
			c := newCall(t, s)
			write(t, c.dir, test.file, test.content)
			write(t, c.dir, "function.json", `{"name":"card","model":"m","prompt":"{{prompt}}?","inputs":[{"name":"prompt"}]}`)
			c.run(append([]string{"submit", "DIR/" + test.file, "--detach"}, test.args...)...).want(t, 0, test.said)
			removed := slices.Contains(s.queries, "/v1/files/file-1")
			if uploaded := s.uploaded.String() == test.content; uploaded != test.uploads || removed != test.uploads {
				t.Errorf("uploaded %v, removed %v; want %v", uploaded, removed, test.uploads)
			}
			if byName := s.submissions[0]["inputs"] == "file:file-1"; byName != test.uploads {
				t.Errorf("inputs %.80v", s.submissions[0]["inputs"])
			}
		})
	}
}

func TestNoteOfAnUpload(t *testing.T) {
	t.Parallel()
	n := uploadProgressFile{filepath.Join(t.TempDir(), "a", "b.json")}
	if got := n.read(); got.Upload != "" {
		t.Errorf("before: %+v", got)
	}
	want := client.Uploaded{Upload: "upload_1", Part: 5, Parts: []string{"a", "b"}}
	n.write(want)
	if diff := cmp.Diff(want, n.read()); diff != "" {
		t.Error(diff)
	}
	n.remove()
	if got := n.read(); got.Upload != "" {
		t.Errorf("removed: %+v", got)
	}
}

func TestSubmitURL(t *testing.T) {
	t.Parallel()
	s := newService(t, done)
	c := newCall(t, s).run("submit", "https://example.org/a.parquet?sig=x", "-c", "text", "--id-column", "id", "-d")
	c.want(t, 0, "priority 1")
	got := s.submissions[0]
	if got["inputs"] != "https://example.org/a.parquet?sig=x" || got["column_name"] != "text" || got["id_column_name"] != "id" || got["job_priority"] != 1.0 {
		t.Error(got)
	}
	if key, _ := got["(key)"].(string); len(key) != 36 {
		t.Errorf("idempotency key %q", key)
	}
}

// A pattern of a source goes to the service, unless a local file has this name.
func TestSubmitSource(t *testing.T) { //nolint:paralleltest // it changes the working directory
	t.Chdir(t.TempDir())
	write(t, ".", "lake:local", "one\n")
	s := newService(t, done)
	c := newCall(t, s)
	c.run("submit", "lake:reviews/*.csv", "--detach", "--column", "a").want(t, 0, "using priority 1")
	if got := s.submissions[0]; got["inputs"] != "lake:reviews/*.csv" || got["column_name"] != "a" {
		t.Errorf("sent %v", got)
	}
	c.run("submit", "lake:local", "--detach").want(t, 0, "1 rows of plain text")
}

func TestSubmitPriority(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rows int
		args []string
		want float64
		says bool
	}{{1000, nil, 0, false}, {1001, nil, 1, true}, {1001, []string{"--priority", "0"}, 0, false}, {2, []string{"--priority", "1"}, 1, false}} {
		s := newService(t, done)
		c := newCall(t, s)
		c.stdin = strings.Repeat("x\n", test.rows)
		c.run(append([]string{"submit", "-", "-d"}, test.args...)...).want(t, 0)
		if got := s.submissions[0]["job_priority"]; got != test.want || strings.Contains(c.err.String(), "priority 1") != test.says {
			t.Errorf("%d rows %v: priority %v, said %q", test.rows, test.args, got, c.err.String())
		}
	}
}

// Mistakes in the command line or the file are found before anything is sent.
func TestSubmitRefusals(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		content string
		args    []string
		code    int
		want    []string
	}{
		{"ids of lines", "a\n", []string{"in.txt", "--id-column", "id"}, 2, []string{"plain text", "--id-column", "order of the input"}},
		{"no file", "", []string{"absent.txt"}, 2, []string{"absent.txt: no such file"}},
		{"empty file", "", []string{"in.txt"}, 2, []string{"in.txt is empty"}},
		{"only blank lines", "\n\n", []string{"in.jsonl"}, 2, []string{"has no rows"}},
		{"s3", "", []string{"s3://bucket/key"}, 2, []string{"presigned https URL"}},
		{"no UTF-8", "a\n\xff\n", []string{"in.txt"}, 1, []string{"in.txt: Line 2 of the input is not UTF-8"}},
		{"broken JSON", "\"a\"\n\"b\n", []string{"in.jsonl"}, 1, []string{"in.jsonl: Line 2 of the JSON Lines input is not a JSON object"}},
		{"number in JSON lines", "1\n", []string{"in.jsonl"}, 1, []string{"Line 1 of the JSON Lines input is not a JSON object. Write one object, or one string"}},
		{"no column for objects", `{"b":1,"a":2}`, []string{"in.jsonl"}, 1, []string{"--column", `the first object has the members "b", "a"`}},
		{"wrong column for objects", `{"b":1}`, []string{"in.jsonl", "-c", "x"}, 1, []string{`Line 1 of the JSON Lines input has no member "x". It has one member, "b".`}},
		{"column for strings", `"b"`, []string{"in.jsonl", "-c", "x"}, 2, []string{"Leave out --column"}},
		{"JSON array", `["a","b"]`, []string{"in.data"}, 2, []string{"a JSON array", "jq -c"}},
		{"pretty JSON", "{\n  \"a\": 1\n}\n", []string{"in.json", "-c", "a"}, 2, []string{"one JSON object", "jq -c"}},
		{"column of plain text", "Hello, you\n", []string{"in.txt", "-c", "text"}, 2, []string{"plain text", "--column"}},
		{"another format than Parquet", "PAR1", []string{"in.parquet", "--input-format", "csv"}, 2, []string{"--input-format says csv"}},
		{"not Parquet", "a", []string{"in.parquet"}, 2, []string{"not a Parquet file"}},
		{"column of CSV", "p,q\n1,2\n", []string{"in.csv", "-c", "nix"}, 1, []string{"nix"}},
		{"column of the prompt", "p,q\n1,2\n", []string{"in.csv", "--prompt", "{{nix}}"}, 1, []string{`no column "nix", which the prompt names`}},
		{"prompt and column", "p,q\n1,2\n", []string{"in.csv", "--prompt", "{{p}}", "--column", "p"}, 2, []string{"--column: cannot be used with --prompt"}},
		{"prompt of text", "a\n", []string{"in.txt", "--prompt", "{{p}}"}, 2, []string{"--prompt: ", "has no columns"}},
		{"prompt without a column", "p,q\n1,2\n", []string{"in.csv", "--prompt", "Judge."}, 2, []string{"--prompt: names no column"}},
		{"prompt of no file", "p,q\n1,2\n", []string{"in.csv", "--prompt", "@DIR/absent"}, 2, []string{"--prompt: "}},
		{"unclosed quote", "p,q\n1,\"2\n3,4\n", []string{"in.csv"}, 1, []string{"in.csv"}},
		{"input format", "a\n", []string{"in.txt", "--input-format", "xml"}, 2, []string{"--input-format must be csv, tsv"}},
		{"priority", "a\n", []string{"in.txt", "--priority", "9"}, 2, []string{"--priority is 9; it must be " + rowmill.PriorityValues}},
		{"parameter", "a\n", []string{"in.txt", "-p", "temperature"}, 2, []string{"NAME=VALUE"}},
		{"parameter twice", "a\n", []string{"in.txt", "-p", "seed=1", "-p", "seed=2"}, 2, []string{"twice"}},
		{"schema", "a\n", []string{"in.txt", "--schema", "DIR/in.txt"}, 2, []string{"must hold a JSON object"}},
		{"schema null", "null\n", []string{"in.txt", "--schema", "DIR/in.txt"}, 2, []string{"must hold a JSON object, not null"}},
		{"system prompt", "a\n", []string{"in.txt", "-s", "@DIR/absent"}, 2, []string{"--system-prompt"}},
		{"format", "a\n", []string{"in.txt", "--format", "xml"}, 2, []string{"parquet, csv, json or jsonl"}},
		{"csv is zipped", "a\n", []string{"in.txt", "--output", "DIR/o.csv"}, 2, []string{"ZIP", "o.csv.zip"}},
		{"output exists", "a\n", []string{"in.txt", "--output", "DIR/in.txt"}, 2, []string{"exists", "--force"}},
		{"output in no folder", "a\n", []string{"in.txt", "--output", "DIR/no/o.parquet"}, 2, []string{"does not exist"}},
		{"output is a folder", "a\n", []string{"in.txt", "--output", "DIR"}, 2, []string{"is a folder"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, done)
			c := newCall(t, s)
			if !strings.Contains(test.args[0], ":") {
				test.args[0] = filepath.Join(c.dir, test.args[0])
			}
			if test.name != "no file" && test.name != "s3" {
				write(t, c.dir, filepath.Base(test.args[0]), test.content)
			}
			if !strings.Contains(strings.Join(test.args, " "), "--output") && test.name != "format" {
				test.args = append(test.args, "--output", "DIR/out.parquet")
			}
			c.run(append([]string{"submit"}, test.args...)...)
			c.want(t, test.code, test.want...)
			if len(s.submissions) > 0 {
				t.Error("something was sent")
			}
		})
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	failed := record("failed", `,"failed_rows":12,"failure_reason":{"message":"Too many rows failed. Check the schema.","code":"too_many_failed_rows","additional_context":"row 3"}`)
	for _, test := range []struct {
		name   string
		record string
		code   int
		want   []string
	}{
		{"succeeded", done, 0, nil},
		{"failed", failed, 3, []string{"Too many rows failed. Check the schema. (too_many_failed_rows)", "row 3", "rowmill jobs errors " + jobID}},
		{"failed without a reason", record("failed", ""), 3, []string{"no reason"}},
		{"cancelled", record("cancelled", ""), 6, []string{"was cancelled"}},
		{"some rows failed", record("succeeded", `,"num_rows":3,"failed_rows":1,"truncated_outputs":2`), 0, []string{"1 rows failed", "2 outputs were cut", "max_tokens"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newCall(t, newService(t, test.record)).run("attach", jobID, "--output", "DIR/o.parquet")
			c.want(t, test.code, test.want...)
			if _, err := os.Stat(filepath.Join(c.dir, "o.parquet")); (err == nil) != (test.code == 0) {
				t.Errorf("results: %v", err)
			}
			if strings.Contains(c.err.String(), "follow it again") {
				t.Error("a job that is over goes on:", c.err.String())
			}
		})
	}
}

// Ctrl-C detaches: the job continues, and the program prints how to return to it.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{false, true} {
		s := newService(t, record("running", `,"num_rows":3,"rows_done":1`))
		c := newCall(t, s)
		c.live = live
		c.stdin = "a\nb\nc\n"
		ctx, cancel := context.WithCancelCause(t.Context())
		c.ctx = ctx
		s.onLook = func(n int) {
			if n == 3 {
				cancel(exit.Signal{Signal: syscall.SIGINT})
			}
		}
		c.run("submit", "-", "--output", "DIR/o.json", "--include-inputs")
		c.want(t, 130, "the job goes on", "rowmill jobs attach "+jobID+" --output DIR/o.json --format json --include-inputs", "rowmill jobs cancel "+jobID)
		for _, query := range s.queries {
			if strings.Contains(query, "cancel") {
				t.Error("the job was cancelled")
			}
		}
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	c := newCall(t, newService(t, record("running", ""))).run("attach", jobID, "--timeout", "20ms", "--output", "DIR/o.parquet")
	c.want(t, 7, "has not ended after 20ms", "the job goes on")
}

// The client waits for a service that restarts, but not for one that stays away.
func TestServiceAway(t *testing.T) {
	t.Parallel()
	s := newService(t, record("running", ""), done)
	s.onLook = func(n int) {
		if n == 2 || n == 3 { // net/http itself repeats a GET once
			panic(http.ErrAbortHandler)
		}
	}
	c := newCall(t, s).run("attach", jobID, "--output", "DIR/o.parquet")
	c.want(t, 0, "trying again", "wrote")
	s.server.Close()
	c.patience = 50 * time.Millisecond
	c.run("attach", jobID, "--output", "DIR/p.parquet")
	c.want(t, 8, "cannot reach", "the job goes on")
}
