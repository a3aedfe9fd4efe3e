package http

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
)

// compared returns compared rows in short form: the number of each row with its outputs, and
// with ≠ if they differ.
func (w *world) compared(query string, ids ...string) (rows string, next any) {
	w.Helper()
	body := w.get("/v1/jobs/compare?jobs=" + strings.Join(ids, ",") + "&" + query).want(200).json()
	var all []string
	for _, r := range body["rows"].([]any) {
		row := r.(map[string]any)
		var outputs []string
		for _, o := range row["outputs"].([]any) {
			output := o.(map[string]any)
			outputs = append(outputs, map[any]string{"done": fmt.Sprint(output["output"]), "failed": fmt.Sprint("!", output["code"]), "pending": "?"}[output["status"]])
		}
		sign := "="
		if row["different"] == true {
			sign = "≠"
		}
		all = append(all, fmt.Sprint(row["row"])+sign+strings.Join(outputs, "|"))
	}
	return strings.Join(all, " "), body["next_offset"]
}

func (w *world) wantCompared(ids []string, query, want string, wantNext any) {
	w.Helper()
	got, next := w.compared(query, ids...)
	if diff := cmp.Diff([]any{want, wantNext}, []any{got, next}); diff != "" {
		w.Errorf("compare %s (-want +got):\n%s", query, diff)
	}
}

// summary returns the summary of a comparison, without the jobs.
func (w *world) summary(ids ...string) string {
	w.Helper()
	body := w.get("/v1/jobs/compare/summary?jobs=" + strings.Join(ids, ",")).want(200).json()
	delete(body, "jobs")
	text, err := json.Marshal(body)
	must.Succeed(w, err)
	return string(text)
}

func (w *world) wantSummary(want string, ids ...string) {
	w.Helper()
	if diff := cmp.Diff(want, w.summary(ids...)); diff != "" {
		w.Errorf("summary (-want +got):\n%s", diff)
	}
}

const one = `{"inputs":["a"]}`

func TestCompare_RowsOfEndedJobs(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.succeeded(one, answers(`{"x":1,"y":true}`, "yes", "", "", `{"n":1}`, "same"))
	b := w.succeeded(one, answers(`{"y": true, "x": 1.0}`, "no", "", "z", `{"n":2}`, "same"))
	ids := []string{a, b}
	w.wantCompared(ids, "", `0={"x":1,"y":true}|{"y": true, "x": 1.0} 1≠yes|no 2=!schema_violation|!schema_violation 3≠!schema_violation|z 4≠{"n":1}|{"n":2} 5=same|same`, nil)
	w.wantCompared(ids, "offset=1&limit=1", "1≠yes|no", 2.0)
	w.wantCompared(ids, "different=true&limit=2", "1≠yes|no 3≠!schema_violation|z", 4.0)
	w.wantCompared(ids, "different=1&offset=4", `4≠{"n":1}|{"n":2}`, nil)
	w.wantCompared(ids, "different=true&offset=5", "", nil)
	w.wantCompared(ids, "offset=999", "", nil)
	c := w.succeeded(one, answers(`{"x":1,"y":true}`, "yes", "", "", `{"n":1}`, "other"))
	w.wantCompared([]string{c, a, b}, "different=true&offset=5", "5≠other|same|same", nil)
}

func TestCompare_Jobs(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.succeeded(`{"inputs":["a"],"name":"first","model":"llama-3.1-8b","system_prompt":"Be kind."}`, answers("x", ""))
	b := w.running(one, 2).JobID
	body := w.get("/v1/jobs/compare?jobs=" + a + "," + b).want(200).json()
	first, second := body["jobs"].([]any)[0].(map[string]any), body["jobs"].([]any)[1].(map[string]any)
	for name, want := range map[string]any{
		"job_id": a, "name": "first", "model": "llama-3.1-8b", "system_prompt": "Be kind.", "prompt": nil, "status": "succeeded", "num_rows": 2.0, "rows_done": 2.0, "failed_rows": 1.0,
	} {
		if first[name] != want {
			t.Errorf("%s is %v, want %v", name, first[name], want)
		}
	}
	if first["seconds"] == nil || first["input_tokens"] == nil || second["status"] != "running" || second["rows_done"] != 0.0 {
		t.Errorf("%v %v", first, second)
	}
	row := body["rows"].([]any)[0].(map[string]any)
	if row["input"] != "input 0" || row["same_input"] != true {
		t.Errorf("%v", row)
	}
}

func TestCompare_OfRunningJobsComesFromTheirParts(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.running(one, 20), w.running(one, 20)
	ids := []string{a.JobID, b.JobID}
	w.wantCompared(ids, "limit=1", "0=?|?", 1.0)
	w.commit(a, w.some(a, 0, 0, 0, "a.parquet", "x", "y", "z"))
	w.commit(b, w.some(b, 0, 0, 1, "b.parquet", "y", "Z"))
	w.wantCompared(ids, "limit=5", "0=x|? 1=y|y 2≠z|Z 3=?|? 4=?|?", 5.0)
	w.wantCompared(ids, "different=true", "2≠z|Z", nil)
	w.wantSummary(`{"counted":20,"different":1,"different_inputs":0,"equal":1,"num_rows":20,"pending":18,"properties":[{"confusion":[[0,0,0],[0,1,0],[1,0,0]],"counts":[[0,1,1],[1,1,0]],"equal":1,"property":"","rows":2,"values":["Z","y","z"]}]}`, ids...)
}

// chosenRows returns the numbers of the rows that a job with a limit runs of n rows.
func (w *world) chosenRows(id string, n int64) []uint32 {
	record := w.record(id)
	return shard.ChooseRows(&record.Spec, n).ToArray()
}

// limited returns a job that ran some rows of an input with n rows. choice is the JSON of limit and sample.
// Without outputs, the output of a row is its number in the input.
func (w *world) limited(choice string, n int64, outputs ...string) string {
	w.Helper()
	id := w.submitted(`{"inputs":["a"` + strings.Repeat(`,"a"`, int(n)-1) + `],` + choice + `}`)
	if outputs == nil {
		for _, number := range w.chosenRows(id, n) {
			outputs = append(outputs, fmt.Sprint(number))
		}
	}
	w.succeed(w.start(id, int64(len(outputs))), answers(outputs...))
	return id
}

func TestCompare_RowsThatAllJobsHave(t *testing.T) {
	t.Parallel()
	w := setup(t)
	all := w.succeeded(one, answers("0", "1", "2", "3", "4", "5"))
	first := w.limited(`"limit":2`, 6, "0", "x")
	w.wantCompared([]string{all, first}, "", "0=0|0 1≠1|x", nil)
	w.wantCompared([]string{first, all}, "limit=1", "0=0|0", 1.0)
	w.wantSummary(`{"counted":2,"different":1,"different_inputs":0,"equal":1,"num_rows":2,"pending":0,"properties":[{"confusion":[[1,0,0],[0,0,1],[0,0,0]],"counts":[[1,1,0],[1,0,1]],"equal":1,"property":"","rows":2,"values":[0,1,"x"]}]}`, all, first)
	if got := w.get("/v1/jobs/compare?jobs=" + all + "," + first).want(200).json()["num_rows"]; got != 2.0 {
		t.Errorf("%v rows, want 2", got)
	}
	w.get("/v1/jobs/compare/results?jobs="+all+","+first).wantError(409, "different_rows", "job "+all+" has 6 rows and all jobs have only 2 of these rows")
}

func TestCompare_RowsOfRandomSamples(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const n = 2000
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprint(i)
	}
	all, few := w.succeeded(one, answers(texts...)), w.limited(`"limit":3,"sample":"random","sampling_params":{"seed":1}`, n)
	many, head := w.limited(`"limit":1500,"sample":"random","sampling_params":{"seed":2}`, n), w.limited(`"limit":600`, n)
	outputs := map[string][]string{all: texts}
	for _, id := range []string{few, many, head} {
		for _, number := range w.chosenRows(id, n) {
			outputs[id] = append(outputs[id], texts[number])
		}
	}
	for _, ids := range [][]string{{all, few}, {few, all}, {many, all, few}, {many, head}, {head, many, all}, {all, many}} {
		var common []string
		for _, text := range texts {
			if !slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(outputs[id], text) }) {
				common = append(common, text)
			}
		}
		var got []string
		for offset := any(0.0); offset != nil; {
			body := w.get(fmt.Sprintf("/v1/jobs/compare?limit=1000&offset=%v&jobs=%s", offset, strings.Join(ids, ","))).want(200).json()
			for _, r := range body["rows"].([]any) {
				row := r.(map[string]any)
				output := row["outputs"].([]any)[0].(map[string]any)["output"].(string)
				if number := int(row["row"].(float64)); row["different"] != false || outputs[ids[0]][number] != output {
					t.Errorf("row %d: %v", number, row)
				}
				got = append(got, output)
			}
			offset = body["next_offset"]
		}
		if diff := cmp.Diff(common, got); diff != "" || len(common) == 0 {
			t.Errorf("%d common rows (-want +got):\n%s", len(common), diff)
		}
	}
}

func TestCompare_InputsThatDiffer(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.running(one, 2), w.running(one, 2)
	w.commit(a, w.some(a, 0, 0, 0, "a.parquet", "x", "x"))
	part := w.some(b, 0, 0, 0, "b.parquet", "x", "x")
	part.Size = w.write(part.Key, func(to io.Writer) error {
		p, err := results.NewPartWriter(to, schemaOf(w.record(b.JobID), rowmill.IDNull))
		must.Succeed(t, err)
		for i, row := range answers("x", "x") {
			must.Succeed(t, p.Add(&rowmill.Row{Index: int64(i), Text: []string{"another input", "input 1"}[i]}, &row.out))
		}
		return p.Close()
	}).Size
	w.commit(b, part)
	rows := w.get("/v1/jobs/compare?jobs=" + a.JobID + "," + b.JobID).want(200).json()["rows"].([]any)
	for i, want := range []bool{false, true} {
		if row := rows[i].(map[string]any); row["same_input"] != want || row["input"] != fmt.Sprint("input ", i) {
			t.Errorf("%v", row)
		}
	}
	if got := w.summary(a.JobID, b.JobID); !strings.Contains(got, `"different_inputs":1,`) {
		t.Error(got)
	}
}

func TestCompareSummary_CountsTheValuesOfProperties(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.succeeded(one, answers(`{"ok":true,"n":1,"why":["a"]}`, `{"ok":true,"n":2,"why":["b"]}`, `{"ok":false,"n":1}`, `{"ok":true}`, ""))
	b := w.succeeded(one, answers(`{"ok":true,"n":1.0,"why":[]}`, `{"ok":false,"n":2,"why":[]}`, `{"ok":false,"n":3}`, `{"ok":true}`, `{"ok":true}`))
	w.wantSummary(`{"counted":5,"different":4,"different_inputs":0,"equal":1,"num_rows":5,"pending":0,"properties":[`+
		`{"confusion":[[1,0,1],[0,1,0],[0,0,0]],"counts":[[2,1,0],[1,1,1]],"equal":2,"property":"n","rows":3,"values":[1,2,3]},`+
		`{"confusion":[[1,0],[1,2]],"counts":[[1,3],[2,2]],"equal":3,"property":"ok","rows":4,"values":[false,true]}`+
		`]}`, a, b)
	c := w.succeeded(one, answers(`{"ok":true}`, `{"ok":true}`, `{}`, `{"ok":true}`, "text"))
	w.wantSummary(`{"counted":5,"different":4,"different_inputs":0,"equal":1,"num_rows":5,"pending":0,"properties":[`+
		`{"confusion":null,"counts":[[2,1,0,0],[1,1,1,0],[0,0,0,3]],"equal":0,"property":"n","rows":3,"values":[1,2,3,null]},`+
		`{"confusion":null,"counts":[[1,3,0],[2,2,0],[0,3,1]],"equal":2,"property":"ok","rows":4,"values":[false,true,null]}`+
		`]}`, a, b, c)
}

func TestCompareSummary_LeavesOutPropertiesWithManyValues(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var texts []string
	for i := range 21 {
		texts = append(texts, fmt.Sprint("text ", i))
	}
	many, few := answers(texts...), answers(append(texts[:20:20], texts[0])...)
	w.wantSummary(`{"counted":21,"different":0,"different_inputs":0,"equal":21,"num_rows":21,"pending":0,"properties":[]}`, w.succeeded(one, many), w.succeeded(one, many))
	if got := w.summary(w.succeeded(one, few), w.succeeded(one, few)); !strings.Contains(got, `"equal":21,"property":"","rows":21`) {
		t.Error(got)
	}
	long := answers(strings.Repeat("x", 201))
	w.wantSummary(`{"counted":1,"different":0,"different_inputs":0,"equal":1,"num_rows":1,"pending":0,"properties":[]}`, w.succeeded(one, long), w.succeeded(one, long))
}

func TestCompare_ComparesWholeOutputsWithoutReasoning(t *testing.T) {
	t.Parallel()
	w := setup(t)
	long := strings.Repeat("é", 10_000)
	thought := func(reasoning, content string) string {
		text, err := json.Marshal(map[string]string{"reasoning_content": reasoning, "content": content})
		must.Succeed(t, err)
		return string(text)
	}
	a := w.succeeded(one, answers(long+"1", long, thought(long, `{"a": 1}`), thought("a", "yes")))
	b := w.succeeded(one, answers(long+"2", long, thought("b", `{"a":1}`), thought("b", "no")))
	w.wantCompared([]string{a, b}, "offset=2", `2={"a": 1}|{"a":1} 3≠yes|no`, nil)
	body := w.get("/v1/jobs/compare?different=true&limit=1&jobs=" + a + "," + b).want(200).json()
	output := body["rows"].([]any)[0].(map[string]any)["outputs"].([]any)[0].(map[string]any)
	if got := output["output"].(string); output["cut"] != true || len(got) != 16<<10 || body["next_offset"] != 1.0 {
		t.Errorf("cut %v, %d bytes, next %v", output["cut"], len(got), body["next_offset"])
	}
}

func TestCompare_ReadsALimitedNumberOfRows(t *testing.T) {
	t.Parallel()
	w := setup(t)
	texts := make([]string, 10_001)
	for i := range texts {
		texts[i] = "x"
	}
	a := w.succeeded(one, answers(texts...))
	texts[10_000] = "y"
	ids := []string{a, w.succeeded(one, answers(texts...))}
	w.wantCompared(ids, "different=true", "", 10_000.0)
	w.wantCompared(ids, "different=true&offset=10000", "10000≠x|y", nil)
	w.wantSummary(`{"counted":10001,"different":1,"different_inputs":0,"equal":10000,"num_rows":10001,"pending":0,"properties":[{"confusion":[[10000,1],[0,0]],"counts":[[10001,0],[10000,1]],"equal":10000,"property":"","rows":10001,"values":["x","y"]}]}`, ids...)
}

func TestCompare_RefusesJobsThatCannotBeCompared(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.succeeded(one, answers("x", "y")), w.succeeded(one, answers("x", "y"))
	other, estimate, uncounted := w.succeeded(one, answers("x")), w.submitted(`{"inputs":["a","b"],"cost_estimate":true}`), w.submitted(`{"inputs":["a","b"]}`)
	limited := w.limited(`"limit":1`, 3, "x")
	removed, named := w.succeeded(one, answers("x", "y")), w.succeeded(strings.Replace(one, "{", `{"name":"two rows",`, 1), answers("x", "y"))
	w.do("DELETE", "/v1/jobs/"+removed+"/data", "").want(200)
	foreign := *w
	foreign.key = w.keyOf("someone", caller.RoleUser)
	for _, path := range []string{"/v1/jobs/compare", "/v1/jobs/compare/summary"} {
		compare := func(ids ...string) *answered { return w.get(path + "?jobs=" + strings.Join(ids, ",")) }
		w.get(path).wantField("jobs", "has 0 ids; it must have the ids of 2 to 4 jobs")
		compare(a).wantField("jobs", "has 1 ids")
		compare(a, b, other, estimate, removed).wantField("jobs", "has 5 ids")
		compare(a, b, a).wantField("jobs", "has the id "+a+" twice")
		compare(a, "job-none").wantError(404, "job_not_found", "job-none")
		compare(a, other).wantError(409, "different_num_rows", fmt.Sprintf("the input of %s has 2 rows, and the input of %s has 1;", a, other))
		compare(a, b, limited).wantError(409, "different_num_rows", fmt.Sprintf("the input of %s has 2 rows, and the input of %s has 3;", a, limited))
		compare(named, other).wantError(409, "different_num_rows", fmt.Sprintf(`the input of "two rows" has 2 rows, and the input of %s has 1;`, other))
		compare(a, estimate).wantError(409, "no_results", "estimate")
		compare(a, uncounted).wantError(409, "no_rows", "not counted")
		if got := compare(a, removed).wantError(410, "results_expired", "").json()["job_id"]; got != removed {
			t.Errorf("the error names the job %v", got)
		}
		foreign.get(path+"?jobs="+a+","+b).wantError(404, "job_not_found", a)
	}
	w.get("/v1/jobs/compare?jobs="+a+","+b+"&limit=1001").wantField("limit", "1 to 1000")
	w.get("/v1/jobs/compare?jobs="+a+","+b+"&different=maybe").wantField("different", "true or false")
}
