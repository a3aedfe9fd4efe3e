package submission

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// All names that clients use for an output constraint mean the same.
func TestConstraints_Names(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","properties":{"z":{},"a":{}}}` // the order of its members stays
	w := setup(t)
	for params, want := range map[string]struct {
		schema string
		form   any
	}{
		`{"structured_outputs":{"json":` + schema + `}}`:                         {schema, nil},
		`{"structured_outputs":{"json":` + schema + `,"regex":null}}`:            {schema, nil},
		`{"structured_outputs":{"json":" {\"type\": \"object\"} "}}`:             {`{"type":"object"}`, nil},
		`{"structured_outputs":{"json_object":true}}`:                            {`{"type":"object"}`, nil},
		`{"guided_json":` + schema + `}`:                                         {schema, nil},
		`{"guided_json":"{\"type\":\"object\"}"}`:                                {`{"type":"object"}`, nil},
		`{"guided_decoding":{"json":` + schema + `,"backend":null}}`:             {schema, nil},
		`{"guided_json":null,"structured_outputs":null}`:                         {"", nil},
		`{"structured_outputs":{"regex":"a+"}}`:                                  {"", map[string]any{"regex": "a+"}},
		`{"guided_regex":"a+"}`:                                                  {"", map[string]any{"regex": "a+"}},
		`{"guided_decoding":{"regex":"a+","json_object":false}}`:                 {"", map[string]any{"regex": "a+"}},
		`{"structured_outputs":{"choice":["a","b"]},"temperature":0}`:            {"", map[string]any{"choice": []any{"a", "b"}}},
		`{"guided_choice":["a","b"]}`:                                            {"", map[string]any{"choice": []any{"a", "b"}}},
		`{"guided_grammar":"root ::= \"a\"","guided_json":null}`:                 {"", map[string]any{"grammar": `root ::= "a"`}},
		`{"structured_outputs":{"disable_any_whitespace":false,"choice":["a"]}}`: {"", map[string]any{"choice": []any{"a"}}},
	} {
		job := w.submitted(`{"inputs":["a"],"sampling_params":` + params + `}`)
		if got := string(job.Spec.Schema); got != want.schema {
			t.Errorf("%s: schema %s, want %s", params, got, want.schema)
		}
		if diff := cmp.Diff(want.form, job.Spec.Sampling[paramConstraint]); diff != "" {
			t.Errorf("%s: form (-want +got):\n%s", params, diff)
		}
		for name := range job.Spec.Sampling {
			if strings.HasPrefix(name, "guided") {
				t.Errorf("%s: %s is left", params, name)
			}
		}
	}
}

func TestConstraints_Refused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const field = "sampling_params.structured_outputs"
	for name, c := range map[string]struct{ rest, field, piece string }{
		"a regex as a form":       {`"sampling_params":{"structured_outputs":"a+"}`, field, "an object with one of json, regex"},
		"no rule":                 {`"sampling_params":{"structured_outputs":{}}`, field, "must have one of json"},
		"no rule but an option":   {`"sampling_params":{"structured_outputs":{"disable_any_whitespace":false}}`, field, "must have one of json"},
		"two rules":               {`"sampling_params":{"structured_outputs":{"regex":"a","choice":["a"]}}`, field, "has both choice and regex"},
		"two names":               {`"sampling_params":{"guided_regex":"a","guided_choice":["a"]}`, "sampling_params.guided_regex", "has the same meaning as sampling_params.guided_choice"},
		"an old name and today's": {`"sampling_params":{"guided_regex":"a","structured_outputs":{"regex":"a"}}`, field, "has the same meaning as sampling_params.guided_regex"},
		"beside json_schema":      {`"json_schema":{},"sampling_params":{"guided_regex":"a"}`, "sampling_params.guided_regex", "as json_schema does; send one"},
		"two schemas":             {`"json_schema":{},"sampling_params":{"guided_json":{}}`, "sampling_params.guided_json", "as json_schema does; send one"},
		"an unknown rule":         {`"sampling_params":{"structured_outputs":{"xml":"a"}}`, field, `"xml", which is unknown`},
		"an option":               {`"sampling_params":{"structured_outputs":{"json":{},"whitespace_pattern":" "}}`, field, "whitespace_pattern, which is not supported: it is a setting"},
		"an off switch of none":   {`"sampling_params":{"structured_outputs":{"regex":false,"choice":["a"]}}`, field, "has both choice and regex"},
		"a tag":                   {`"sampling_params":{"structured_outputs":{"structural_tag":"{}"}}`, field, "structural_tag, which is not supported"},
		"json_object":             {`"sampling_params":{"structured_outputs":{"json_object":1}}`, field, "not true or false"},
		"a backend":               {`"sampling_params":{"guided_decoding":{"regex":"a","backend":"outlines"}}`, "sampling_params.guided_decoding", "leave it out"},
		"a schema that is none":   {`"sampling_params":{"guided_json":{"type":5}}`, "sampling_params.guided_json", "is not a valid JSON Schema"},
		"a schema that is text":   {`"sampling_params":{"guided_json":"object"}`, "sampling_params.guided_json", "must be an object"},
		"an ill-typed regex":      {`"sampling_params":{"guided_regex":5}`, field, "an object with one of regex"},
		"a regex that is none":    {`"sampling_params":{"guided_regex":"(?=a)"}`, field, "no lookaround"},
		"a costly regex":          {`"sampling_params":{"guided_regex":"` + strings.Repeat("x{0,1000}", 5) + `"}`, field, "repeat less"},
		"too many choices":        {`"sampling_params":{"guided_choice":["a"` + strings.Repeat(`,"a"`, 1000) + `]}`, field, "1001 choices"},
		"a grammar too deep":      {`"sampling_params":{"guided_grammar":"` + strings.Repeat("(", 65) + `"}`, field, "nested more than 64"},
		"a schema to embed":       {`"model":"qwen-3-embedding-0.6b","sampling_params":{"guided_json":{}}`, "sampling_params.guided_json", "embedding"},
		"the backend alone":       {`"sampling_params":{"guided_decoding_backend":"auto"}`, "sampling_params.guided_decoding_backend", "leave it out"},
	} {
		t.Run(name, func(t *testing.T) {
			w := *w
			w.TB = t
			w.wantField(`{"inputs":["a"],`+c.rest+`}`, c.field, c.piece)
		})
	}
}

// A Function may have an output constraint under any of the names.
func TestConstraints_OfFunctions(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const rest = `"inputs":[{"name":"x"}],"prompt":"{{x}}","model":"llama-3.1-8b"`
	w.publish(`{"name":"judge",` + rest + `,"sampling_params":{"guided_json":{"type":"object"},"top_p":0.5}}`)
	w.publish(`{"name":"decide",` + rest + `,"sampling_params":{"guided_choice":["yes","no"]}}`)
	if spec := w.submitted(`{"model":"judge","inputs":["a"]}`).Spec; string(spec.Schema) != `{"type":"object"}` || spec.Sampling[paramConstraint] != nil || spec.Sampling["guided_json"] != nil {
		t.Errorf("schema %s, parameters %v", spec.Schema, spec.Sampling)
	}
	spec := w.submitted(`{"model":"decide","inputs":["a"],"sampling_params":{"top_p":0.5}}`).Spec
	if diff := cmp.Diff(map[string]any{"choice": []any{"yes", "no"}}, spec.StructuredOutputs()); diff != "" {
		t.Errorf("form (-want +got):\n%s", diff)
	}
	w.wantField(`{"model":"decide","inputs":["a"],"sampling_params":{"guided_regex":"a"}}`, "sampling_params.guided_regex", "with a Function")
	w.wantField(`{"model":"judge","inputs":["a"],"sampling_params":{"guided_json":{}}}`, "sampling_params.guided_json", "with a Function")
	for definition, want := range map[string]string{
		`"json_schema":{},"sampling_params":{"guided_regex":"a"}`: "sampling_params.guided_regex: constrains the output",
		`"sampling_params":{"guided_regex":"(?=a)"}`:              "sampling_params.structured_outputs: has a regex",
		`"sampling_params":{"guided_json":{"type":5}}`:            "sampling_params.guided_json: is not a valid JSON Schema",
	} {
		_, problems := w.define(`{"name":"bad",` + rest + `,` + definition + `}`)
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", definition, err, want)
		}
	}
}
