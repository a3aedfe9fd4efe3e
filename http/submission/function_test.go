package submission

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/input/function"
	"github.com/rowmill/rowmill/internal/must"
)

// Rows of a Function are objects whose keys match its inputs, or finished prompts. Extra
// fields are ignored, and null means the empty string.
func TestFunction_RowsBecomePrompts(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.publish(grade)
	want := []string{"Grade A at level 3.", "Grade  at level .", "ready {{essay}}", `Grade {"é":[1,null]} at level true.`}
	inputs := `[{"essay":"A","level":3,"extra":{}},{"essay":null},"ready {{essay}}",
		{"level": true, "essay": {"\u00e9": [1, null]}}]`
	for _, body := range []string{`{"model":"grade","inputs":` + inputs + `}`, `{"inputs":` + inputs + `,"model":"grade"}`} {
		record := w.submitted(body) // the results need the values, so they are kept
		if record.Spec.Function == nil || record.Spec.Inline != nil {
			t.Fatalf("function %v, rows %q", record.Spec.Function, record.Spec.Inline)
		}
		prompt, err := function.NewPrompt(*record.Spec.Function)
		must.Succeed(t, err)
		var got []string
		for line := range strings.Lines(string(w.object(record.Spec.Spooled))) {
			if line[0] == '"' {
				got = append(got, function.FormatValue([]byte(line)))
				continue
			}
			row, err := function.ParseRow([]byte(line))
			must.Succeed(t, err)
			values, _ := prompt.Values(row)
			got = append(got, prompt.Render(values))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("rows (-want +got):\n%s", diff)
		}
	}
}

func TestFunction_Refuses(t *testing.T) {
	t.Parallel()
	w := setup(t, func(in *Parser) { in.MaxRow = 2000 })
	w.publish(grade)
	w.publish(`{"name":"wide","inputs":[{"name":"x"}],"prompt":"` + strings.Repeat("{{x}}", 3) + `","model":"llama-3.1-8b"}`)
	for name, test := range map[string]struct{ body, field, message string }{
		"ColumnName":      {`"model":"grade","inputs":"https://example.org/a.csv","column_name":"essay"`, "column_name", "with a Function"},
		"SystemPrompt":    {`"model":"grade","inputs":["x"],"system_prompt":""`, "system_prompt", "with a Function"},
		"JSONSchema":      {`"model":"grade","inputs":["x"],"json_schema":{}`, "json_schema", "with a Function"},
		"IDColumnIsInput": {`"model":"grade","inputs":"https://example.org/a.csv","id_column_name":"level"`, "id_column_name", "a column of the prompt"},
		"MissingField":    {`"model":"grade","inputs":[{"essay":"a"},"x",{"level":"b"},{}]`, "inputs[2]", `has no field "essay"`},
		"MissingInFirst":  {`"model":"grade","inputs":["x",{},{"essay":"a"}]`, "inputs[1]", `has no field "essay"`},
		"NumberRow":       {`"model":"grade","inputs":[{"essay":"a"},7]`, "inputs[1]", "is a number"},
		"ObjectForModel":  {`"model":"llama-3.1-8b","inputs":["a",{"essay":"a"}]`, "inputs[1]", "is an object"},
		"LongPrompt":      {`"model":"wide","inputs":[{"x":"` + strings.Repeat("x", 700) + `"}]`, "inputs[0]", "makes a prompt of 2100 bytes"},
		"LongRow":         {`"model":"wide","inputs":["a",{"y":"` + strings.Repeat("x", 2000) + `","x":1}]`, "inputs[1]", "longer than 2000 bytes"},
		"Sampling":        {`"model":"grade","inputs":["x"],"sampling_params":{"top_p":9}`, "sampling_params.top_p", "at most 1"},
		"MaxTokens":       {`"model":"grade","inputs":["x"],"sampling_params":{"min_tokens":101}`, "sampling_params.min_tokens", "must not exceed max_tokens, 100"},
	} {
		t.Run(name, func(t *testing.T) {
			w := *w
			w.TB = t
			w.wantField("{"+test.body+"}", test.field, test.message)
		})
	}
	w.submitted(`{"model":"grade","inputs":["x"],"system_prompt":null,"json_schema":null,"column_name":null,"sampling_params":null}`)
}

// A prompt over columns is like a Function, but the submission has the model, the system prompt
// and the schema.
func TestPrompt(t *testing.T) {
	t.Parallel()
	w := setup(t)
	want := &rowmill.FunctionPrompt{
		Inputs: []rowmill.FunctionInput{{Name: "Title of it", Required: true}, {Name: "body", Required: true}},
		Prompt: "{{ Title of it }}: {{body}} ({{Title of it}})",
	}
	rest := `"prompt":"{{ Title of it }}: {{body}} ({{Title of it}})","model":"llama-3.1-8b","system_prompt":"Judge.","json_schema":{"type":"object"}`
	for _, inputs := range []string{`"https://example.org/a"`, `[{"body":"b","Title of it":1,"x":2}]`} {
		record := w.submitted(`{"inputs":` + inputs + `,` + rest + `}`)
		if diff := cmp.Diff(want, record.Spec.Function); diff != "" {
			t.Errorf("prompt (-want +got):\n%s", diff)
		}
		job := record.Job
		if job.Function != nil || job.Model != "llama-3.1-8b" || *job.Prompt != want.Prompt || *job.System != "Judge." || len(job.Schema) == 0 || len(job.Warnings) > 0 {
			t.Errorf("job %+v", job)
		}
	}
	if record := w.submitted(`{"inputs":["a"],"prompt":null,"model":"llama-3.1-8b"}`); record.Job.Prompt != nil {
		t.Errorf("the prompt of a job without one: %q", *record.Job.Prompt)
	}
}

// A submission can define its Function. The job has its prompt, and names no Function.
func TestInlineFunction(t *testing.T) {
	t.Parallel()
	w := setup(t)
	definition := `{"name":"judge","model":"llama-3.1-8b","prompt":"{{a}} {{b}}","inputs":[{"name":"a"},{"name":"b","required":false}],"system_prompt":"Judge.",
		"json_schema":{"type":"object"},"sampling_params":{"max_tokens":50,"top_p":0.5}}`
	record := w.submitted(`{"inputs":[{"a":"x"}],"function":` + definition + `,"sampling_params":{"top_p":0.25}}`)
	job, spec := record.Job, record.Spec
	if job.Function != nil || job.Model != "llama-3.1-8b" || *job.Prompt != "{{a}} {{b}}" || *job.System != "Judge." || len(job.Schema) == 0 || len(job.Warnings) > 0 {
		t.Errorf("job %+v", job)
	}
	if spec.Function.Inputs[1].Required || spec.MaxTokens() != 50 || spec.Sampling["top_p"] != 0.25 {
		t.Errorf("function %+v, sampling %v", spec.Function, spec.Sampling)
	}
	const rows = `"inputs":[{"a":"x"}],"function":`
	for name, test := range map[string]struct{ body, field, message string }{
		"Model":      {rows + definition + `,"model":"llama-3.1-8b"`, "model", "cannot be used with a Function"},
		"Prompt":     {rows + definition + `,"prompt":"{{a}}"`, "prompt", "cannot be used with a Function"},
		"Text":       {rows + `"judge"`, "function", "must be an object"},
		"NoPrompt":   {rows + `{"name":"judge","model":"llama-3.1-8b"}`, "function.prompt", "is empty"},
		"OtherModel": {rows + `{"name":"judge","model":"nothing","prompt":"{{a}}","inputs":[{"name":"a"}]}`, "function.model", "nothing"},
		"Row":        {`"inputs":[{"b":"x"}],"function":` + definition, "inputs[0]", `has no field "a"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := *w
			w.TB = t
			w.wantField("{"+test.body+"}", test.field, test.message)
		})
	}
}

func TestPrompt_Refuses(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.publish(grade)
	const url = `"inputs":"https://example.org/a.csv","model":"llama-3.1-8b",`
	for name, test := range map[string]struct{ body, field, message string }{
		"Empty":        {url + `"prompt":""`, "prompt", "is empty"},
		"NoColumn":     {url + `"prompt":"Judge it."`, "prompt", "names no column"},
		"Open":         {url + `"prompt":"Judge {{body"`, "prompt", "at byte 6: {{ is not closed"},
		"NotText":      {url + `"prompt":7`, "prompt", "must be a string"},
		"Function":     {`"inputs":"https://example.org/a.csv","model":"grade","prompt":"{{a}}"`, "prompt", "with a Function"},
		"ColumnName":   {url + `"prompt":"{{a}}","column_name":"a"`, "column_name", "with prompt"},
		"IDColumn":     {url + `"prompt":"{{a}}","id_column_name":"a"`, "id_column_name", "a column of the prompt"},
		"EmptyOutput":  {url + `"output_name":""`, "output_name", "is empty"},
		"FixedOutput":  {url + `"output_name":"inputs"`, "output_name", "another column of the results"},
		"OutputIsID":   {url + `"id_column_name":"a","output_name":"a"`, "output_name", "differ from id_column_name"},
		"OutputField":  {url + `"prompt":"{{a}}","output_name":"a"`, "output_name", "a column of the prompt"},
		"OutputLine":   {url + `"output_name":"a\nb"`, "output_name", "line breaks"},
		"OutputLong":   {url + `"output_name":"` + strings.Repeat("a", 257) + `"`, "output_name", "at most 256"},
		"StringRow":    {`"model":"llama-3.1-8b","prompt":"{{a}}","inputs":[{"a":1},"x"]`, "inputs", "with prompt each row must be an object"},
		"MissingField": {`"model":"llama-3.1-8b","prompt":"{{a}}","inputs":[{"a":1},{"b":1}]`, "inputs[1]", `has no field "a"`},
		"ObjectRow":    {`"model":"llama-3.1-8b","inputs":[{"a":1}]`, "inputs[0]", "only prompt and a Function accept objects"},
	} {
		t.Run(name, func(t *testing.T) {
			w := *w
			w.TB = t
			w.wantField("{"+test.body+"}", test.field, test.message)
		})
	}
}

// Larger inputs are rendered when the job reads them, because a short row may produce a
// long prompt.
func TestFunction_LargerInputsAreSpooledUnchanged(t *testing.T) {
	t.Parallel()
	w := setup(t, func(in *Parser) { in.MaxInline = 35 })
	w.publish(grade)
	for name, inputs := range map[string]string{
		"LongRows":    "[\"x\",{\"essay\":\n \"" + strings.Repeat("y", 60) + "\"}]",
		"LongPrompts": "[\"x\",{\"essay\": \"y\"},{\n\"essay\":\"y\"}]",
	} {
		record := w.submitted(`{"inputs":` + inputs + `,"model":"grade"}`)
		if record.Spec.Inline != nil || record.Spec.Function == nil || record.Spec.Function.Prompt != "Grade {{essay}} at level {{ level }}." || len(record.Spec.Function.Inputs) != 2 {
			t.Errorf("%s: inline %q, function %+v", name, record.Spec.Inline, record.Spec.Function)
		}
		lines := strings.Split(string(w.object(record.Spec.Spooled)), "\n")
		if lines[0] != `"x"` || !strings.HasPrefix(lines[1], `{"essay":`) || !json.Valid([]byte(lines[1])) || lines[len(lines)-1] != "" {
			t.Errorf("%s: lines %q", name, lines)
		}
	}
	rendered := w.submitted(`{"inputs":["` + strings.Repeat("y", 60) + `"],"model":"grade"}`)
	if rendered.Spec.Spooled == "" || rendered.Spec.Function != nil {
		t.Errorf("prompts rendered already keep the Function %v", rendered.Spec.Function)
	}
}

func TestFunction_URLInputsKeepTheFunction(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.publish(grade)
	spec := w.submitted(`{"model":"grade","inputs":"https://example.org/a.csv","id_column_name":"id"}`).Spec
	want := &rowmill.FunctionPrompt{
		Inputs: []rowmill.FunctionInput{{Name: "essay", Required: true, Description: "the text"}, {Name: "level"}},
		Prompt: "Grade {{essay}} at level {{ level }}.",
	}
	if diff := cmp.Diff(want, spec.Function); diff != "" || spec.Column != "" || spec.IDColumn != "id" {
		t.Errorf("column %q, id %q, function (-want +got):\n%s", spec.Column, spec.IDColumn, diff)
	}
}

// Rows may have any number of fields and may be read before the model is known.
func TestRowFacts_LacksForAnyField(t *testing.T) {
	t.Parallel()
	var seen rowFacts
	rows := []string{`{"a":1,"b":1,"c":1}`, `{"a":1,"b":1,"d":1}`, `{"a":1}`, `{"a":1,"b":1,"c":1,"d":1}`}
	for i, row := range rows {
		must.Succeed(t, seen.addObject(int64(10+i), []byte(row)))
	}
	for field, want := range map[string]int64{"a": -1, "b": 12, "c": 11, "d": 10, "x": 10} {
		row, lacks := seen.firstRowLacking(field)
		if lacks != (want >= 0) || lacks && row != want {
			t.Errorf("%s: row %d, %v; want %d", field, row, lacks, want)
		}
	}
	if row, lacks := (&rowFacts{}).firstRowLacking("a"); lacks {
		t.Errorf("without objects row %d lacks a field", row)
	}
}
