package e2e

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/columnar"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/s3test"
	"github.com/rowmill/rowmill/internal/wait"
)

// A localRun runs `rowmill run` in a folder of its own. The command finds no service and no
// key in its environment.
type localRun struct {
	dir  string
	args []string
	env  []string // further variables
}

func (r *localRun) command(t *testing.T, more ...string) (command *exec.Cmd, stderr *bytes.Buffer) {
	t.Helper()
	command = exec.CommandContext(t.Context(), binary, append(append([]string{"run"}, r.args...), more...)...)
	command.Dir, stderr = r.dir, new(bytes.Buffer)
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "TMPDIR=" + os.TempDir()}
	command.Env = append(command.Env, r.env...)
	command.Stderr = stderr
	return command, stderr
}

// end runs the command to its end and checks the exit code and the pieces of its messages.
func (r *localRun) end(t *testing.T, code int, pieces []string, more ...string) {
	t.Helper()
	command, stderr := r.command(t, more...)
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := command.ProcessState.ExitCode(); got != code {
		t.Fatalf("%q ends with %d, want %d:\n%s", command.Args, got, code, stderr)
	}
	for _, piece := range pieces {
		if !strings.Contains(stderr.String(), piece) {
			t.Errorf("the messages of %q lack %q:\n%s", command.Args, piece, stderr)
		}
	}
}

// interrupt starts the command and sends a signal while the witness answers no request after so
// many. It checks the exit code; -1 is a process that was killed.
func (r *localRun) interrupt(t *testing.T, w *witness, calls int64, signal syscall.Signal, code int) {
	t.Helper()
	command, stderr := r.command(t)
	w.hold.Store(calls)
	must.Succeed(t, command.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait()
	}()
	wait.For(t, "rows run", func() bool {
		select {
		case <-ended:
			return true
		default:
			return w.calls.Load() > calls
		}
	})
	_ = command.Process.Signal(signal) // the exit code shows if the command had ended before
	w.hold.Store(0)
	<-ended
	if got := command.ProcessState.ExitCode(); got != code {
		t.Fatalf("after %v the command ends with %d, want %d:\n%s", signal, got, code, stderr)
	}
}

// TestRun interrupts a run by kill -9 and by Ctrl-C. The same command continues it, and the
// table is complete and in order. Rows that were committed do not run again.
func TestRun(t *testing.T) {
	t.Parallel()
	const rows = 8000
	w := newWitness(t, rows, 5*time.Millisecond)
	r := &localRun{dir: t.TempDir()}
	must.Succeed(t, os.WriteFile(filepath.Join(r.dir, "rows.parquet"), parquetOf(t, rows), 0o600))
	r.args = []string{"rows.parquet", "--prompt", "{{ text }}", "--id-column", "id", "--engine", w.url, "--set", "jobs.part_interval=200ms", "-o", "answers.csv"}
	r.interrupt(t, w, rows/4, syscall.SIGKILL, -1)
	r.interrupt(t, w, rows/2, syscall.SIGINT, 130)
	if _, err := os.Stat(filepath.Join(r.dir, "answers.csv")); err == nil {
		t.Error("there are results of an unfinished run")
	}
	r.end(t, 0, []string{"continuing the run", "8,000 rows in", "wrote answers.csv"})
	table := must.Get(csv.NewReader(bytes.NewReader(must.Get(os.ReadFile(filepath.Join(r.dir, "answers.csv")))(t))).ReadAll())(t)
	if len(table) != rows+1 || strings.Join(table[0], ",") != "id,answer" {
		t.Fatalf("%d rows under the header %q", len(table)-1, table[0])
	}
	for i, row := range table[1:] {
		if row[0] != strconv.Itoa(i) || row[1] != answerText(i) {
			t.Fatalf("row %d is %q", i, row)
		}
	}
	calls := w.calls.Load()
	r.end(t, 0, []string{"answers.csv is complete"})
	r.end(t, 0, []string{"wrote answers.csv"}, "--force")
	r.end(t, 2, []string{"answers.csv exists"}, "--system-prompt", "Judge.")
	if again := w.calls.Load() - calls; again != 0 {
		t.Errorf("%d rows of a complete run were run again", again)
	}
	r.end(t, 0, []string{"starts again"}, "--system-prompt", "Judge.", "--force")
	if again := w.calls.Load() - calls; again != rows {
		t.Errorf("%d rows ran after the system prompt changed, want %d", again, rows)
	}
}

// TestRun_Failed runs a table with rows that fail. The same command runs the rest after the
// fault is repaired.
func TestRun_Failed(t *testing.T) {
	t.Parallel()
	w := newWitness(t, 5, 0) // refuses all other rows
	r := &localRun{dir: t.TempDir()}
	must.Succeed(t, os.WriteFile(filepath.Join(r.dir, "rows.csv"), csvOf(t, 10), 0o600))
	r.args = []string{"rows.csv", "--column", "text", "--engine", w.url, "-o", "answers.jsonl"}
	r.end(t, 3, []string{"the run failed", "the same command runs the others", "row 5: ", "no row number"})
	whole := newWitness(t, 10, 0)
	r.args[4] = whole.url
	r.end(t, 0, []string{"running the rest", "wrote answers.jsonl"})
	var want strings.Builder
	for i := range 10 {
		fmt.Fprintf(&want, "{\"answer\":%q}\n", answerText(i))
	}
	if got := string(must.Get(os.ReadFile(filepath.Join(r.dir, "answers.jsonl")))(t)); got != want.String() {
		t.Errorf("results\n%s\nwant\n%s", got, &want)
	}
	if calls := whole.calls.Load(); calls > 9 {
		t.Errorf("%d rows ran after a failed run of ten rows", calls)
	}
}

// TestRun_Limit runs a few rows of a table, and then the others.
func TestRun_Limit(t *testing.T) {
	t.Parallel()
	const rows = 300
	w := newWitness(t, rows, 0)
	r := &localRun{dir: t.TempDir()}
	must.Succeed(t, os.WriteFile(filepath.Join(r.dir, "rows.csv"), csvOf(t, rows), 0o600))
	r.args = []string{"rows.csv", "--column", "text", "--keep", "id", "--engine", w.url, "-o", "answers.jsonl"}
	answers := func() []string {
		t.Helper()
		return slices.Collect(strings.Lines(string(must.Get(os.ReadFile(filepath.Join(r.dir, "answers.jsonl")))(t))))
	}
	r.end(t, 2, []string{"--sample: needs --limit"}, "--sample", "random")
	r.end(t, 0, []string{"running 20 of these rows", "20 rows in", "the input has 300 rows; the same command without --limit runs the others"}, "--limit", "20")
	r.end(t, 0, []string{"answers.jsonl is complete"}, "--limit", "20")
	if got := answers(); len(got) != 20 || w.calls.Load() != 20 {
		t.Fatalf("%d answers after %d requests, want 20", len(got), w.calls.Load())
	}
	r.end(t, 0, []string{"so the run starts again", "30 rows in"}, "--limit", "30", "--sample", "random")
	sample := answers()
	r.end(t, 0, []string{"running the other rows: 30 are done", "300 rows in", "wrote answers.jsonl"})
	if calls := w.calls.Load(); calls != 20+rows {
		t.Errorf("%d requests for a trial of 20 rows and a run of %d rows, 30 of them earlier", calls, rows)
	}
	all := answers()
	for i, line := range all {
		if want := fmt.Sprintf("{\"id\":\"%d\",\"answer\":%q}\n", i, answerText(i)); line != want {
			t.Fatalf("row %d is %q, want %q", i, line, want)
		}
	}
	if len(all) != rows || len(sample) != 30 || slices.Equal(sample, all[:30]) || slices.ContainsFunc(sample, func(line string) bool { return !slices.Contains(all, line) }) {
		t.Errorf("%d rows, and a random sample of %d rows: %q", len(all), len(sample), sample)
	}
	r.end(t, 0, []string{"answers.jsonl is complete"})
	r.end(t, 2, []string{"300 rows of the whole input are done", "leave out --limit"}, "--limit", "20", "--force")
	if calls := w.calls.Load(); calls != 20+rows {
		t.Errorf("%d requests after a few rows were asked for again, want %d", calls, 20+rows)
	}
}

// TestRun_Models runs the same rows with two models. The table has a column of answers for each, and
// the answers of the first rows are kept when the rest runs.
func TestRun_Models(t *testing.T) {
	t.Parallel()
	r := &localRun{dir: t.TempDir()}
	must.Succeed(t, os.WriteFile(filepath.Join(r.dir, "rows.csv"), csvOf(t, 300), 0o600))
	r.args = []string{"rows.csv", "--column", "text", "--keep", "id", "--simulate", "--model", "llama-3.1-8b", "--model", "qwen-3-4b", "-o", "answers.parquet"}
	r.end(t, 2, []string{"name a file that ends in .parquet"}, "-o", "answers.csv")
	r.end(t, 2, []string{"may be given at most 4 times"}, "--model", "3", "--model", "4", "--model", "5")
	r.end(t, 2, []string{"names qwen-3-4b twice"}, "--model", "qwen-3-4b")
	r.end(t, 1, []string{`variants[2].model: "nobody" is neither a model`}, "--model", "nobody", "-o", "nobody.parquet")
	r.end(t, 0, []string{"llama-3.1-8b: 20 rows in", "qwen-3-4b: 20 rows in"}, "--limit", "20")
	r.end(t, 0, []string{"qwen-3-4b: running the other rows: 20 are done", "wrote answers.parquet"})
	file := must.Get(os.ReadFile(filepath.Join(r.dir, "answers.parquet")))(t)
	table := must.Get(columnar.OpenTable(bytes.NewReader(file), int64(len(file))))(t)
	var columns []string
	for _, c := range table.Columns() {
		columns = append(columns, c.Name)
	}
	if want := []string{"id", "inputs", "llama-3.1-8b", "qwen-3-4b"}; !slices.Equal(columns, want) || table.Rows() != 300 {
		t.Errorf("%d rows with the columns %q, want 300 with %q", table.Rows(), columns, want)
	}
	r.end(t, 0, []string{"answers.parquet is complete"})
}

// TestRun_Files runs several files as one input.
func TestRun_Files(t *testing.T) {
	t.Parallel()
	w := newWitness(t, 10, 0)
	r := &localRun{dir: t.TempDir()}
	write := func(name string, content []byte) {
		t.Helper()
		must.Succeed(t, os.MkdirAll(filepath.Dir(filepath.Join(r.dir, name)), 0o700))
		must.Succeed(t, os.WriteFile(filepath.Join(r.dir, name), content, 0o600))
	}
	answers := func() string {
		t.Helper()
		return string(must.Get(os.ReadFile(filepath.Join(r.dir, "answers.csv")))(t))
	}
	table := func(first int) string {
		var out strings.Builder
		w := csv.NewWriter(&out)
		must.Succeed(t, w.WriteAll([][]string{{"id", "text"}, {strconv.Itoa(first), rowText(first)}, {strconv.Itoa(first + 1), rowText(first + 1)}}))
		return out.String()
	}
	want := "id,answer\r\n"
	for i := range 4 {
		want += fmt.Sprintf("%d,%s\r\n", i, answerText(i))
	}
	write("day=1/rows.csv", []byte(table(0)))
	write("day=2/rows.csv.gz", gzipped(t, []byte(table(2))))
	flags := []string{"--column", "text", "--keep", "id", "--engine", w.url, "-o", "answers.csv"}
	r.args = append([]string{"day=*/*"}, flags...)
	r.end(t, 0, []string{"reading 2 files as one input", "4 rows in"})
	if got := answers(); got != want {
		t.Errorf("answers to two tables\n%s\nwant\n%s", got, want)
	}
	r.end(t, 0, []string{"answers.csv is complete"})
	object := func(i int) string { return fmt.Sprintf(`{"id":"%d","text":%q}`, i, rowText(i)) }
	write("a.jsonl", []byte(object(0)+"\n"+object(1))) // without a last line end
	write("b.jsonl", []byte("\xEF\xBB\xBF"+object(2)+"\n"+object(3)+"\n"))
	r.args = append([]string{"a.jsonl", "b.jsonl", "--force"}, flags...)
	r.end(t, 0, []string{"reading 2 files as one input", "starts again"})
	if got := answers(); got != want {
		t.Errorf("answers to two files of JSON Lines\n%s\nwant\n%s", got, want)
	}
	write("other.csv", []byte("id,body\n1,a\n"))
	write("more.csv", []byte("id,text,more\n1,a,b\n"))
	for piece, files := range map[string][]string{
		"give files of one format":              {"a.jsonl", "other.csv"},
		`other.csv has no column "text"`:        {"day=1/rows.csv", "other.csv"},
		"more.csv has more columns than":        {"day=1/rows.csv", "more.csv"},
		"No file with content matches nothing*": {"nothing*"},
		"nowhere/*.csv: stat":                   {"nowhere/*.csv"},
		"several inputs must all be files":      {"a.jsonl", "http://127.0.0.1:9/b.jsonl"},
		"missing.csv: no such file":             {"a.jsonl", "missing.csv"},
	} {
		r.args = append(files, "--column", "text", "--engine", w.url, "-o", "wrong.csv", "--state", t.TempDir())
		r.end(t, 2, []string{piece})
	}
}

// TestRun_Folder runs the files of a pattern, and gets a file of results for each of them. The command
// is killed and continues. After a change of a file it runs only the new rows.
func TestRun_Folder(t *testing.T) {
	t.Parallel()
	const files, rows = 4, 500
	w := newWitness(t, files*rows+1, 5*time.Millisecond)
	r := &localRun{dir: filepath.Join(t.TempDir(), "50% [of] a?")}
	write := func(day, from, to int) {
		t.Helper()
		var out bytes.Buffer
		table := csv.NewWriter(&out)
		_ = table.Write([]string{"text"}) // Error returns the error
		for i := from; i < to; i++ {
			_ = table.Write([]string{rowText(i)})
		}
		table.Flush()
		must.Succeed(t, table.Error())
		path := filepath.Join(r.dir, fmt.Sprintf("in/day=%d/rows.csv", day))
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Succeed(t, os.WriteFile(path, out.Bytes(), 0o600))
	}
	for day := range files {
		write(day, day*rows, (day+1)*rows)
	}
	r.args = []string{"in/*/*.csv", "--column", "text", "--keep", "day", "--engine", w.url, "--set", "jobs.part_interval=200ms", "-o", "answers/"}
	r.interrupt(t, w, files*rows/2, syscall.SIGKILL, -1)
	r.end(t, 0, []string{"reading 4 files as one input", "continuing the run", "2,000 rows in", "wrote the results to answers/"})
	r.end(t, 0, []string{"answers/ is complete"})
	calls := w.calls.Load()
	write(3, 3*rows, 4*rows+1)
	r.end(t, 0, []string{"starts again", "2,000 of these rows have the answers of the earlier run"})
	if again := w.calls.Load() - calls; again != 1 {
		t.Errorf("%d rows ran after one row was new", again)
	}
	for day := range files {
		path := fmt.Sprintf("answers/day=%d/rows.csv.parquet", day)
		table := must.Get(parquet.ReadFile[struct {
			Day    string `parquet:"day"`
			Answer string `parquet:"answer,optional"`
		}](filepath.Join(r.dir, path)))(t)
		if len(table) < rows {
			t.Fatalf("%s has %d rows", path, len(table))
		}
		for i, row := range table {
			if row.Day != strconv.Itoa(day) || row.Answer != answerText(day*rows+i) {
				t.Fatalf("row %d of %s is %+v", i, path, row)
			}
		}
	}
	for flag, piece := range map[string]string{
		"--limit=3": "--limit: the files in a folder have all rows", "--format=csv": "the files in a folder are Parquet",
		"--include-inputs": "name a file for --include-inputs", "--force": "a folder needs no --force",
	} {
		r.end(t, 2, []string{piece}, flag)
	}
}

// TestRun_Bucket reads objects of S3 and writes the results there, with the credentials of the user.
// The same command runs only the rows of new objects.
func TestRun_Bucket(t *testing.T) {
	t.Parallel()
	objects := s3test.Start(t)
	bucket := open(t, objects)
	put := func(key, text string) {
		t.Helper()
		must.Get(blob.Write(t.Context(), bucket, key, "text/csv", func(w io.Writer) error {
			return csv.NewWriter(w).WriteAll([][]string{{"text"}, {text}})
		}))(t)
	}
	put("reviews/day=1/a.csv", rowText(0))
	put("reviews/day=1/b.csv", rowText(1))
	w := newWitness(t, 10, 0)
	r := &localRun{dir: t.TempDir(), args: []string{
		"s3://" + objects.Bucket + "/reviews/**", "--column", "text", "--engine", w.url, "-o", "s3://" + objects.Bucket + "/answers/",
	}}
	r.env = []string{"AWS_ACCESS_KEY_ID=" + objects.AccessKey, "AWS_SECRET_ACCESS_KEY=" + objects.SecretKey, "AWS_REGION=" + s3test.Region, "AWS_ENDPOINT_URL=" + objects.Endpoint}
	r.end(t, 0, []string{"2 rows in", "wrote the results to s3://" + objects.Bucket + "/answers/"})
	put("reviews/day=2/c.csv", rowText(2))
	r.end(t, 0, []string{"reading the list of objects again", "3 rows in", "2 of these rows have the answers of the earlier run"})
	if calls := w.calls.Load(); calls != 3 {
		t.Errorf("%d rows ran, want 3", calls)
	}
	for _, path := range []string{"day=1/a", "day=1/b", "day=2/c"} {
		must.Get(bucket.Stat(t.Context(), "answers/"+path+".csv.parquet"))(t)
	}
	// The credentials can also be in the file of the programs of AWS.
	must.Succeed(t, os.Mkdir(filepath.Join(r.dir, ".aws"), 0o700))
	must.Succeed(t, os.WriteFile(filepath.Join(r.dir, ".aws/credentials"), []byte("[default]\naws_access_key_id = "+objects.AccessKey+"\naws_secret_access_key = "+objects.SecretKey+"\n"), 0o600))
	r.env = r.env[2:]
	r.end(t, 0, []string{"3 of these rows have the answers of the earlier run"})
	r.args = []string{"s3://" + objects.Bucket, "--simulate"}
	r.end(t, 2, []string{"name objects of the bucket"})
}

// TestRun_URL runs a table that the server does not have yet. The same command downloads it.
func TestRun_URL(t *testing.T) {
	t.Parallel()
	var exists atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, request *http.Request) {
		if !exists.Load() {
			http.NotFound(out, request)
			return
		}
		_, _ = out.Write(csvOf(t, 3))
	}))
	t.Cleanup(server.Close)
	r := &localRun{dir: t.TempDir(), args: []string{server.URL + "/rows.csv", "--column", "text", "--simulate"}}
	r.end(t, 3, []string{"the run failed", "404"})
	exists.Store(true)
	r.end(t, 0, []string{"3 rows in", "wrote rows.results.parquet"})
}

// TestRun_Usage checks wrong use, and a machine without an inference server.
func TestRun_Usage(t *testing.T) {
	t.Parallel()
	r := &localRun{dir: t.TempDir(), args: []string{"rows.csv", "--set", "discover.addresses=[127.0.0.1:9]"}}
	r.end(t, 2, []string{"rows.csv: no such file"})
	must.Succeed(t, os.WriteFile(filepath.Join(r.dir, "rows.csv"), csvOf(t, 3), 0o600))
	r.end(t, 8, []string{"no inference server was found", "--engine URL", "--simulate"})
	r.end(t, 8, []string{"no inference server answers at http://127.0.0.1:9"}, "--engine", "http://127.0.0.1:9")
	r.end(t, 1, []string{`no column "title"`}, "--simulate", "--prompt", "{{title}}")
	r.end(t, 2, []string{"the ending must be .parquet, .csv, .json or .jsonl"}, "-o", "answers.txt")
	r.end(t, 2, []string{"CSV cannot go to standard output"}, "-o", "-", "--format", "csv")
	r.end(t, 2, []string{"--format must be parquet, csv, json or jsonl"}, "--format", "xml")
	r.end(t, 0, []string{"the answers are simulated", "wrote rows.results.parquet"}, "--simulate", "--column", "text")
	r.end(t, 0, []string{"rows.results.parquet is complete"}, "--simulate", "--column", "text")
	r.end(t, 2, []string{"rows.results.parquet exists"}, "--column", "text") // simulated answers never count as real answers
}
