package http

import (
	"archive/zip"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

func TestResults_JSONIsTheDefault(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a","b","c"]}`, answers("x\n", "", "<z>"))
	for query, want := range map[string]string{
		"":                     `{"outputs":["x\n",null,"<z>"]}`,
		"?format=json":         `{"outputs":["x\n",null,"<z>"]}`,
		"?include_inputs=True": `{"inputs":["input 0","input 1","input 2"],"outputs":["x\n",null,"<z>"]}`,
		"?result_format=json&include_inputs=1&include_cumulative_logprobs=t": `{"inputs":["input 0","input 1","input 2"],"outputs":["x\n",null,"<z>"],"cumulative_logprobs":[50.0,null,52.0]}`,
		"?include_inputs=false&include_cumulative_logprobs=0":                `{"outputs":["x\n",null,"<z>"]}`,
	} {
		answer := w.get("/v1/jobs/" + id + "/results" + query).want(200)
		var wanted map[string]any
		must.Succeed(t, json.Unmarshal([]byte(want), &wanted))
		if diff := cmp.Diff(wanted, answer.json()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
		if got := answer.header.Get("Content-Type"); got != "application/json" {
			t.Errorf("content type %s", got)
		}
	}
	disposition := w.get("/v1/jobs/" + id + "/results?include_inputs=1").header.Get("Content-Disposition")
	if want := `attachment; filename="` + id + `-results.json"`; disposition != want {
		t.Errorf("disposition %s, want %s", disposition, want)
	}
}

// A browser saves results under the name of the job, or its id.
func TestResults_AreSavedUnderTheNameOfTheJob(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for name, want := range map[string]string{"towns": "towns-results", "my.reviews.csv.gz": "my.reviews-results", ".csv": ""} {
		id := w.succeeded(fmt.Sprintf(`{"inputs":["a"],"name":%q}`, name), answers("x"))
		if want == "" {
			want = id + "-results"
		}
		for format, ending := range map[string]string{"json": "json", "jsonl": "jsonl", "csv": "csv.zip", "parquet": "parquet"} {
			got := w.get("/v1/jobs/" + id + "/results?format=" + format).want(200).header.Get("Content-Disposition")
			if got != `attachment; filename="`+want+"."+ending+`"` {
				t.Errorf("%s as %s: disposition %s", name, format, got)
			}
		}
	}
}

// A job that keeps columns of its input has them in results of all formats, if a client wants
// them.
func TestResults_Columns(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":[{"a":1,"b":"x"},{"a":2,"b":""}],"prompt":"{{b}}","keep_columns":"*"}`, answers("x", ""))
	if record := w.record(id); record.Spec.Spooled == "" || !slices.Equal(record.Spec.Keep, []string{"*"}) {
		t.Fatalf("the job keeps %q, its rows are in %q", record.Spec.Keep, record.Spec.Spooled)
	}
	must.Get(blob.Write(t.Context(), w.bucket, layout.KeptColumnsKey(id), layout.Parquet, func(out io.Writer) error { // as ingest does
		next := int64(0)
		return results.WriteKept(t.Context(), out, []results.KeptColumn{{Name: "a", IDType: rowmill.IDType{IDKind: rowmill.IDInt}}, {Name: "b", IDType: rowmill.IDType{IDKind: rowmill.IDString}}}, func(values []rowmill.ID) error {
			if next++; next > 2 {
				return io.EOF
			}
			values[0], values[1] = rowmill.ID{Kind: rowmill.IDInt, Int: next}, rowmill.ID{Kind: rowmill.IDString, Text: []string{"x", ""}[next-1]}
			return nil
		})
	}))(t)
	path := "/v1/jobs/" + id + "/results?format=jsonl"
	for query, want := range map[string]string{
		"":                       `{"` + id + `":"x"}` + "\n" + `{"` + id + `":null}` + "\n",
		"&columns=*":             `{"a":1,"b":"x","` + id + `":"x"}` + "\n" + `{"a":2,"b":"","` + id + `":null}` + "\n",
		"&columns=b":             `{"b":"x","` + id + `":"x"}` + "\n" + `{"b":"","` + id + `":null}` + "\n",
		"&columns=b,a&partial=1": `{"a":1,"b":"x","` + id + `":"x"}` + "\n" + `{"a":2,"b":"","` + id + `":null}` + "\n",
	} {
		if got := w.get(path + query).want(200).text; string(got) != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	if got := w.get("/v1/jobs/" + id + "/results?columns=a").want(200).json(); !cmp.Equal(got, map[string]any{"a": []any{1.0, 2.0}, "outputs": []any{"x", nil}}) {
		t.Errorf("JSON %v", got)
	}
	names := func(query string) []string {
		t.Helper()
		file := w.get("/v1/jobs/" + id + "/results?format=parquet" + query).want(200).text
		return must.Get(results.ListColumns(bytes.NewReader(file)))(t)
	}
	if got, want := names("&columns=a&include_inputs=1"), []string{"a", "inputs", id}; !slices.Equal(got, want) {
		t.Errorf("Parquet has the columns %q, want %q", got, want)
	}
	if got := names(""); !slices.Equal(got, []string{id}) {
		t.Errorf("Parquet has the columns %q", got)
	}
	w.get("/v1/jobs/"+id+"/results-url?columns=a").want(400).wantField("columns", "must be * for a URL")
	if got := w.get("/v1/jobs/" + id + "/results-url?columns=*").want(200).json()["format"]; got != "parquet" || len(w.record(id).Artifacts) != 5 {
		t.Errorf("a URL of %v; the job has the files %v", got, w.record(id).Artifacts)
	}
	w.get(path+"&columns=a,c").want(400).wantField("columns", "the job keeps the columns a, b")
	w.get(path+"&unpack=1").want(400).wantField("unpack", "no json_schema with properties")
	graded := w.succeeded(`{"inputs":["a"],"json_schema":{"type":"object","properties":{"stars":{"type":"integer"}}}}`, answers(`{"stars":3}`))
	for _, query := range []string{"?unpack=true", "?unpack=1&partial=true"} {
		if got := w.get("/v1/jobs/" + graded + "/results" + query).want(200).json(); !cmp.Equal(got, map[string]any{"outputs": []any{`{"stars":3}`}, "stars": []any{3.0}}) {
			t.Errorf("unpacked %v", got)
		}
	}
	if got := w.get("/v1/jobs/" + graded + "/results?include=meta&format=jsonl").want(200).text; !bytes.Contains(got, []byte(`"attempts":1,"error_code":null,"error":null}`)) {
		t.Errorf("with meta a row is %s", got)
	}
	if got := w.get("/v1/jobs/" + graded + "/results?include=meta&format=parquet").want(200).text; !bytes.Contains(got, []byte(`"rowmill_version":"1.2.3"`)) {
		t.Error("the metadata of Parquet lacks the version of the program")
	}
	w.get("/v1/jobs/"+graded+"/results?include=all").want(400).wantField("include", "must be one of meta")
	plain := w.succeeded(`{"inputs":["a"]}`, answers("x"))
	w.get("/v1/jobs/"+plain+"/results?columns=*").want(400).wantField("columns", "submit a job with keep_columns")
}

func TestResults_JSONLines(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a","b"]}`, answers("x", ""))
	answer := w.get("/v1/jobs/" + id + "/results?format=jsonl&include_inputs=true").want(200)
	if got := answer.header.Get("Content-Type"); got != "application/jsonl" {
		t.Errorf("content type %s", got)
	}
	if got := answer.header.Get("Content-Disposition"); !strings.Contains(got, id+"-results.jsonl") {
		t.Errorf("disposition %s", got)
	}
	want := `{"inputs":"input 0","` + id + `":"x"}` + "\n" + `{"inputs":"input 1","` + id + `":null}` + "\n"
	if string(answer.text) != want {
		t.Errorf("lines\n%s\nwant\n%s", answer.text, want)
	}
}

func TestResults_CSVIsAZipWithOneCSV(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a","b"]}`, answers("x", "y"))
	answer := w.get("/v1/jobs/" + id + "/results?format=csv&include_inputs=true&include_cumulative_logprobs=true").want(200)
	if got := answer.header.Get("Content-Type"); got != "application/zip" {
		t.Errorf("content type %s", got)
	}
	if got := answer.header.Get("Content-Disposition"); !strings.Contains(got, id+"-results.csv.zip") {
		t.Errorf("disposition %s", got)
	}
	archive, err := zip.NewReader(bytes.NewReader(answer.text), int64(len(answer.text)))
	if err != nil || len(archive.File) != 1 || archive.File[0].Name != id+".csv" {
		t.Fatalf("archive %+v, %v", archive, err)
	}
	file, err := archive.File[0].Open()
	must.Succeed(t, err)
	defer file.Close()
	table, err := csv.NewReader(file).ReadAll()
	must.Succeed(t, err)
	want := [][]string{{"inputs", id, "cumulative_logprobs"}, {"input 0", "x", "50.0"}, {"input 1", "y", "51.0"}}
	if diff := cmp.Diff(want, table); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestResults_IDColumnIsAlwaysIncluded(t *testing.T) {
	t.Parallel()
	w := setup(t)
	rows := answers("x", "y")
	for i := range rows {
		rows[i].id = rowmill.ID{Kind: rowmill.IDInt, Int: int64(7 + i)}
	}
	id := w.succeeded(`{"inputs":"https://example.org/a.csv","id_column_name":"key"}`, rows)
	body := w.get("/v1/jobs/" + id + "/results").want(200).json()
	if fmt.Sprint(body["key"]) != "[7 8]" || body["inputs"] != nil {
		t.Errorf("body %v", body)
	}
	for query := range map[string]bool{"": true, "&include_inputs=1": true} {
		text := w.get("/v1/jobs/" + id + "/results?format=parquet" + query).want(200).text
		schema, err := results.ReadSchema(bytes.NewReader(text))
		if err != nil || schema.IDColumn != "key" || schema.IDKind != rowmill.IDInt {
			t.Errorf("schema %+v, %v", schema, err)
		}
	}
}

func TestResults_ParquetOfEveryVariant(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a","b"]}`, answers("x", "y"))
	for _, inputs := range []int{0, 1} {
		for _, logprobs := range []int{0, 1} {
			query := fmt.Sprintf("?format=parquet&include_inputs=%d&include_cumulative_logprobs=%d", inputs, logprobs)
			first := w.get("/v1/jobs/" + id + "/results" + query).want(200)
			again := w.get("/v1/jobs/" + id + "/results" + query).want(200)
			if !bytes.Equal(first.text, again.text) || !bytes.HasPrefix(first.text, []byte("PAR1")) {
				t.Errorf("%s: %d and %d bytes", query, len(first.text), len(again.text))
			}
			if got := first.header.Get("Content-Length"); got != fmt.Sprint(len(first.text)) {
				t.Errorf("%s: Content-Length %s of %d", query, got, len(first.text))
			}
			if got := first.header.Get("Content-Type"); got != "application/vnd.apache.parquet" {
				t.Errorf("%s: content type %s", query, got)
			}
			if got := first.header.Get("Content-Disposition"); got != `attachment; filename="`+id+`-results.parquet"` {
				t.Errorf("%s: disposition %s", query, got)
			}
			for column, want := range map[string]bool{"inputs": inputs == 1, "cumulative_logprobs": logprobs == 1, id: true} {
				if bytes.Contains(first.text, []byte(column)) != want {
					t.Errorf("%s: has column %s: %t", query, column, !want)
				}
			}
		}
	}
	// The full file and three subsets were made once each; the fifth artifact is the file
	// of the rows.
	if n := len(w.record(id).Artifacts); n != 5 {
		t.Errorf("%d artifacts, want 5", n)
	}
	if objects, _ := w.bucket.List(t.Context(), "jobs/"+id+"/results/"); len(objects) != 5 {
		t.Errorf("objects %v", objects)
	}
}

func TestResults_ParquetSupportsRange(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a"]}`, answers("x"))
	path := "/v1/jobs/" + id + "/results?format=parquet"
	whole := w.get(path).want(200)
	etag := whole.header.Get("ETag")
	if part := w.get(path, "Range", "bytes=0-3", "If-Range", etag).want(206); string(part.text) != "PAR1" {
		t.Errorf("part %q", part.text)
	}
	if other := w.get(path, "Range", "bytes=0-3", "If-Range", `"other"`).want(200); !bytes.Equal(other.text, whole.text) {
		t.Error("a stale If-Range must give the whole file")
	}
	w.get(path, "Range", "bytes=99999999-").wantError(416, "range_not_satisfiable", "outside")
	w.get(path, "If-None-Match", etag).want(304)
}

func TestResults_Embeddings(t *testing.T) {
	t.Parallel()
	w := setup(t)
	row := done{out: rowmill.RowOutput{Embedding: []float32{0, 1, -0.5, 1e-9}, Finish: "stop", Attempts: 1, Engine: "sim"}}
	id := w.succeeded(`{"inputs":["a"],"model":"qwen-3-embedding-0.6b"}`, []done{row})
	text := string(w.get("/v1/jobs/" + id + "/results?include_cumulative_logprobs=1").want(200).text)
	if !strings.Contains(text, "[0.0,1.0,-0.5,1e-09]") || !strings.Contains(text, `"cumulative_logprobs":[null]`) {
		t.Errorf("results %s", text)
	}
	text = string(w.get("/v1/jobs/" + id + "/rows/0").want(200).text)
	if !strings.Contains(text, `"output":[0.0,1.0,-0.5,1e-09]`) {
		t.Errorf("row %s", text)
	}
}

// resultPaths has the two routes of results.
var resultPaths = []string{"/v1/jobs/%s/results", "/v1/jobs/%s/results-url"}

func TestResults_OfAJobThatHasNotSucceededAre409(t *testing.T) {
	t.Parallel()
	w := setup(t)
	cancelled := w.submitted(`{"inputs":["a"]}`)
	w.get("/v1/job-cancel/" + cancelled).want(200)
	for status, id := range map[string]string{
		"pending":   w.submitted(`{"inputs":["a"]}`),
		"running":   w.running(`{"inputs":["a"]}`, 1).JobID,
		"failed":    w.failed(`{"inputs":["a"]}`, nil),
		"cancelled": cancelled,
	} {
		for _, path := range resultPaths {
			body := w.get(fmt.Sprintf(path, id)).wantError(409, "job_not_succeeded", status).json()
			if body["status"] != status {
				t.Errorf("body %v, want status %s", body, status)
			}
		}
	}
}

func TestResults_OfAnEstimateJobAre409(t *testing.T) {
	t.Parallel()
	w := setup(t)
	record := store.Record{SchemaVersion: store.SchemaVersion}
	record.Job.ID, record.Job.Status, record.Job.RunType = rowmill.NewJobID(), rowmill.StatusPending, rowmill.RunEstimate
	record.Job.Created, record.Spec.Account = time.Now().UTC(), caller.DefaultAccount
	if _, _, err := w.store.Create(t.Context(), record, nil); err != nil {
		t.Fatal(err)
	}
	for _, path := range append(resultPaths, "/v1/jobs/%s/rows/0", "/v1/jobs/%s/errors") {
		w.get(fmt.Sprintf(path, record.Job.ID)).wantError(409, "no_results", "estimate")
	}
}

func TestResults_OfUnknownJobsAre404(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, id := range unknownIDs {
		for _, path := range append(resultPaths, "/v1/jobs/%s/rows/0", "/v1/jobs/%s/errors") {
			w.get(fmt.Sprintf(path, id)).wantError(404, "job_not_found", "no job was found")
		}
	}
}

func TestResults_RemovedByRetentionAre410(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a"]}`, answers("x"))
	must.Succeed(t, w.bucket.DeletePrefix(t.Context(), "jobs/"+id+"/"))
	paths := append(resultPaths, "/v1/jobs/%s/results?format=parquet&include_inputs=1&include_cumulative_logprobs=1",
		"/v1/jobs/%s/results-url?include_inputs=1&include_cumulative_logprobs=1")
	for _, path := range paths { // storage has lost the files
		w.get(fmt.Sprintf(path, id)).wantError(503, "results_missing", "rowmill storage check")
	}
	must.Get(w.store.RemoveData(t.Context(), id, time.Now()))(t)
	for _, path := range paths {
		w.get(fmt.Sprintf(path, id)).wantError(410, "results_expired", "retention")
	}
}

func TestResults_LogprobsThatWereNotRecordedAre400(t *testing.T) {
	t.Parallel()
	for why, spec := range map[string]rowmill.Spec{
		"the catalog turns log probabilities off":    {Model: rowmill.Model{NoLogprobs: true}},
		"logprobs false in sampling_params, so none": {Sampling: map[string]any{"logprobs": false}},
	} {
		w := setup(t)
		record := store.Record{SchemaVersion: store.SchemaVersion, Spec: spec}
		record.Spec.Account = caller.DefaultAccount
		record.Job = rowmill.Job{ID: rowmill.NewJobID(), Status: rowmill.StatusPending, RunType: rowmill.RunFull, JobTimes: rowmill.JobTimes{Created: time.Now().UTC()}}
		if _, _, err := w.store.Create(t.Context(), record, nil); err != nil {
			t.Fatal(err)
		}
		f := w.claim(record.Job.ID)
		zero := int64(0)
		w.update(f, func(r *store.Record) error {
			r.Job.NumRows = &zero
			return r.Job.Become(rowmill.StatusStarting, time.Now())
		})
		_, err := w.store.Finish(t.Context(), f, func(r *store.Record) error {
			if err := r.Job.Become(rowmill.StatusRunning, time.Now()); err != nil {
				return err
			}
			return r.Job.Become(rowmill.StatusSucceeded, time.Now())
		})
		must.Succeed(t, err)
		for _, path := range resultPaths {
			w.get(fmt.Sprintf(path, record.Job.ID)+"?include_cumulative_logprobs=1").
				wantError(400, "logprobs_not_recorded", why).wantField("include_cumulative_logprobs", "")
		}
	}
}

func TestResults_BooleansAreThoseOfParseBool(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a"]}`, answers("x"))
	for text, want := range map[string]bool{
		"1": true, "t": true, "T": true, "true": true, "TRUE": true, "True": true,
		"0": false, "f": false, "F": false, "false": false, "FALSE": false, "False": false,
	} {
		if _, has := w.get("/v1/jobs/" + id + "/results?include_inputs=" + text).want(200).json()["inputs"]; has != want {
			t.Errorf("%s: inputs are there: %t", text, has)
		}
	}
}

func TestResults_BadQueriesAre400(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a"]}`, answers("x"))
	for query, field := range map[string]string{
		"/results?format=xml":                    "format",
		"/results?format=":                       "format",
		"/results?result_format=xml":             "result_format",
		"/results?format=csv&result_format=json": "result_format",
		"/results?include_inputs=yes":            "include_inputs",
		"/results?include_inputs=":               "include_inputs",
		"/results?include_cumulative_logprobs=2": "include_cumulative_logprobs",
		"/results-url?format=csv":                "format",
		"/results-url?format=json":               "format",
		"/results-url?format=PARQUET":            "format",
		"/results-url?include_inputs=maybe":      "include_inputs",
		"/results-url?expires_in_seconds=0":      "expires_in_seconds",
		"/results-url?expires_in_seconds=604801": "expires_in_seconds",
		"/results-url?expires_in_seconds=1h":     "expires_in_seconds",
		"/results-url?expires_in_seconds=":       "expires_in_seconds",
		"/errors?limit=0":                        "limit",
		"/errors?limit=101":                      "limit",
		"/errors?cursor=x":                       "cursor",
		"/errors?cursor=1":                       "cursor",
		"/errors?cursor=-1.5":                    "cursor",
		"/rows/-1":                               "row",
		"/rows/x":                                "row",
		"/rows/99999999999999999999":             "row",
	} {
		w.get("/v1/jobs/"+id+query).wantField(field, "")
	}
}
