package http

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
)

// TestPreview_WithFilter finds rows in the files of a job that succeeded, and in the parts of a
// running job.
func TestPreview_WithFilter(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a"]}`, answers(`{"label":"neg","n":1}`, "", `{"label":"pos","n":2}`, `{"label":"neg","n":3}`, "other"))
	neg := `0={"label":"neg","n":1}`
	for query, want := range map[string]string{
		"where=label%3Dneg":                  neg + ` 3={"label":"neg","n":3}`,
		"where=label%3Dneg&where=n%3D3":      `3={"label":"neg","n":3}`,
		"where=label%3Dneg&offset=1":         `3={"label":"neg","n":3}`,
		"where=%3Dother":                     "4=other",
		"text=OTHER":                         "4=other",
		"text=input+2":                       `2={"label":"pos","n":2}`,
		"code=schema_violation":              "1!schema_violation",
		"finish_reason=stop&where=n%3D1":     neg,
		"finish_reason=length&where=n%3D1":   "",
		"where=label%3Dneg&done=true&text=n": neg + ` 3={"label":"neg","n":3}`,
	} {
		w.wantShown(id, query, want, nil)
	}
	w.wantShown(id, "where=label%3Dneg&limit=1", neg, 1.0)
	w.wantShown(id, "where=label%3Dneg&limit=1&offset=1", `3={"label":"neg","n":3}`, 4.0)
	w.wantShown(id, "where=label%3Dneg&limit=1&offset=4", "", nil)

	f := w.running(`{"inputs":["a"]}`, 40)
	w.wantShown(f.JobID, "where=%3Dx", "", nil)
	w.commit(f, w.some(f, 0, 0, 2, "parts/0", "x", "y", "x"))
	w.commit(f, w.some(f, 2, 20, 5, "parts/2", "x", "", "x"))
	w.wantShown(f.JobID, "where=%3Dx", "2=x 4=x 25=x 27=x", nil)
	w.wantShown(f.JobID, "where=%3Dx&limit=2", "2=x 4=x", 5.0)
	w.wantShown(f.JobID, "where=%3Dx&limit=2&offset=5", "25=x 27=x", 28.0)
	w.wantShown(f.JobID, "code=schema_violation", "26!schema_violation", nil)
}

// TestPreview_RefusesBadFilter tests that an error names the parameter.
func TestPreview_RefusesBadFilter(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a"]}`, answers("x"))
	for _, path := range []string{"preview", "preview/counts"} {
		w.get("/v1/jobs/"+id+"/"+path+"?where=label").wantField("where", `"label"; it must be PROPERTY=VALUE`)
		many := ""
		for i := range 21 {
			many += fmt.Sprintf("&where=p%d%%3D1", i)
		}
		w.get("/v1/jobs/"+id+"/"+path+"?"+many).wantField("where", "21 times; at most 20")
	}
}

// TestCountProperties counts the values of the answers of all rows, and of selected rows.
func TestCountProperties(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a"]}`, answers(`{"label":"neg","n":1}`, "", `{"label":"pos","n":1}`, `{"label":"neg","n":3}`))
	value := func(v string, rows float64) any { return map[string]any{"value": v, "rows": rows} }
	of := func(name string, rows float64, values ...any) any {
		return map[string]any{"property": name, "rows": rows, "values": values, "bins": []any{}}
	}
	body := w.get("/v1/jobs/" + id + "/preview/counts").want(200).json()
	want := map[string]any{
		"properties":     []any{of("label", 3, value("neg", 2), value("pos", 1)), of("n", 3, value("1", 2), value("3", 1))},
		"finish_reasons": []any{value(string(rowmill.FinishStop), 3)},
		"counted":        4.0, "rows_read": 4.0, "num_rows": 4.0,
	}
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	body = w.get("/v1/jobs/" + id + "/preview/counts?where=label%3Dpos").want(200).json()
	if diff := cmp.Diff([]any{of("label", 1, value("pos", 1)), of("n", 1, value("1", 1))}, body["properties"]); diff != "" {
		t.Errorf("counts of selected rows (-want +got):\n%s", diff)
	}
	waiting := w.submitted(`{"inputs":["a"]}`)
	if body := w.get("/v1/jobs/" + waiting + "/preview/counts").want(200).json(); body["counted"] != 0.0 {
		t.Errorf("the job has no number of rows yet, but it has counts: %v", body)
	}
}
