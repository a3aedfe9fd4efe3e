package submission

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
)

func TestSubmission_InlineRows(t *testing.T) {
	t.Parallel()
	w := setup(t)
	record := w.submitted(`{"inputs":["", "é", "\ud83d\ude00", "\u00e9\n\"\\\/", "日本"]}`)
	want := []string{"", "é", "😀", "é\n\"\\/", "日本"}
	if diff := cmp.Diff(want, record.Spec.Inline); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSubmission_LargerInputsAreSpooled(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var want []string
	for i := range 3000 {
		want = append(want, fmt.Sprintf("row %d %s\n\"é\"", i, strings.Repeat("x", i%50)))
	}
	rows, _ := json.Marshal(want)
	record := w.submitted(fmt.Sprintf(`{"inputs":%s,"job_priority":1}`, rows))
	if len(record.Spec.Inline) != 0 || record.Spec.Spooled != "jobs/"+record.Job.ID+"/input/rows.jsonl" {
		t.Fatalf("inline %d rows, spooled %q", len(record.Spec.Inline), record.Spec.Spooled)
	}
	if diff := cmp.Diff(want, w.spooled(record.Spec.Spooled)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A later job can run the other rows, so the record has no rows.
func TestSubmission_RowsWithALimitAreSpooled(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for limit, rows := range map[string]int64{"2": 2, "3": 3, "9": 3} {
		record := w.submitted(`{"inputs":["a","b","c"],"limit":` + limit + `}`)
		if diff := cmp.Diff([]string{"a", "b", "c"}, w.spooled(record.Spec.Spooled)); diff != "" || record.Spec.Inline != nil {
			t.Errorf("limit %s: %q in the record, (-want +got):\n%s", limit, record.Spec.Inline, diff)
		}
		if job := record.Job; *job.NumRows != rows || *job.InputRows != 3 || job.Sample != rowmill.SampleFirst || job.HasOtherRows() != (rows < 3) {
			t.Errorf("limit %s: %d rows of %d, sample %s", limit, *job.NumRows, *job.InputRows, job.Sample)
		}
	}
}

// spooled returns the rows in an object.
func (w *world) spooled(key string) (rows []string) {
	w.Helper()
	text := w.object(key)
	for line := range strings.Lines(string(text)) {
		var row string
		if err := json.Unmarshal([]byte(line), &row); err != nil || !strings.HasSuffix(line, "\n") {
			w.Fatalf("line %q: %v", line, err)
		}
		rows = append(rows, row)
	}
	return rows
}

func TestSubmission_ThresholdOfInlineRows(t *testing.T) {
	t.Parallel()
	w := setup(t, func(in *Parser) { in.MaxInline = 20 })
	// Each row counts its JSON and a separator: 5 bytes here.
	if record := w.submitted(`{"inputs":["aa","bb","cc","dd"]}`); record.Spec.Spooled != "" || len(record.Spec.Inline) != 4 {
		t.Errorf("20 bytes: %+v", record.Spec)
	}
	if record := w.submitted(`{"inputs":["aa","bb","cc","ddd"]}`); record.Spec.Spooled == "" || len(record.Spec.Inline) != 0 {
		t.Errorf("21 bytes: %+v", record.Spec)
	}
	if record := w.submitted(`{"inputs":["` + strings.Repeat("a", 30) + `"]}`); record.Spec.Spooled == "" {
		t.Errorf("one large row: %+v", record.Spec)
	}
}

func TestSubmission_FieldsInAnyOrder(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, body := range []string{
		`{"model":"llama-3.1-8b","inputs":["a"],"name":"n"}`,
		`{"name":"n","model":"llama-3.1-8b","inputs":["a"]}`,
		` { "inputs" : [ "a" ] , "name" : "n" , "model" : "llama-3.1-8b" } ` + "\n\t\r ",
		`{"\u0069nputs":["a"],"name":"n","model":"llama-3.1-8b"}`,
	} {
		record := w.submitted(body)
		if record.Job.Model != "llama-3.1-8b" || len(record.Spec.Inline) != 1 || *record.Job.Name != "n" {
			t.Errorf("%s: %+v", body, record)
		}
	}
}

func TestSubmission_Accepts(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for name, body := range map[string]string{
		"NameOf45CodePoints":        `{"inputs":["a"],"name":"` + strings.Repeat("😀", 45) + `"}`,
		"DescriptionOf512":          `{"inputs":["a"],"description":"` + strings.Repeat("é", 512) + `"}`,
		"SystemPromptOf1MiB":        `{"inputs":["a"],"system_prompt":"` + strings.Repeat("\\u0061", 1<<20) + `"}`,
		"SchemaOf64Levels":          `{"inputs":["a"],"json_schema":` + strings.Repeat(`{"not":`, 63) + `{}` + strings.Repeat("}", 63) + `}`,
		"SchemaWithLocalRef":        `{"inputs":["a"],"json_schema":{"$ref":"#/$defs/x","$defs":{"x":{"type":"string"}}}}`,
		"SchemaOfDraft7":            `{"inputs":["a"],"json_schema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}}`,
		"SchemaOf256KiBAndSpaces":   `{"inputs":["a"],"json_schema":{"description":"` + strings.Repeat("a", 256<<10-18) + `"       }}`,
		"EmptyRows":                 `{"inputs":["",""]}`,
		"Priority1":                 `{"inputs":["a"],"job_priority":1}`,
		"URLOfUpperCaseScheme":      `{"inputs":"HTTPS://example.org/a.parquet"}`,
		"MaxTokensThatJustFit":      `{"inputs":["a"],"sampling_params":{"max_tokens":131071}}`,
		"IDColumnOfLowerCasePrefix": `{"inputs":"https://example.org/a.csv","id_column_name":"reserved_x"}`,
		"EmptySamplingParams":       `{"inputs":["a"],"sampling_params":{}}`,
		"NullSamplingParam":         `{"inputs":["a"],"sampling_params":{"temperature":null}}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := *w
			w.TB = t
			if warnings := w.submitted(body).Job.Warnings; len(warnings) != 0 {
				t.Errorf("warnings %v", warnings)
			}
		})
	}
}
