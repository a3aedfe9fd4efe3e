package schema_test

import (
	"strings"
	"testing"

	"github.com/rowmill/rowmill/engine/schema"
	"github.com/rowmill/rowmill/internal/must"
)

// The cases come from public reports: vectorize-io/hindsight#645 (fences),
// elizaOS/eliza#28539 (text around the JSON), langgenius/dify#41958 (backticks inside
// and before), NVIDIA-NeMo/labs-OO-Agents#238 (fences of another language),
// sreerevanth/repopilot#157 (no fence).
func TestFindJSON(t *testing.T) {
	t.Parallel()
	s := must.Get(schema.Compile([]byte(`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}`)))(t)
	for name, test := range map[string]struct{ answer, want string }{
		"a fence":                     {"```json\n{\"a\": 1}\n```", `{"a": 1}`},
		"a fence without its end":     {"```\n{\"a\": 1}", `{"a": 1}`},
		"a fence of something else":   {"```bash\necho {}\n```\n```json\n{\"a\":1}\n```", `{"a":1}`},
		"backticks in the words":      {"Here is `the` result: {\"a\": 1}", `{"a": 1}`},
		"backticks in a value":        {"```\n{\"a\":1,\"s\":\"use `print`\"}\n```", "{\"a\":1,\"s\":\"use `print`\"}"},
		"words before":                {"Here is the JSON you asked for:\n\n{\"a\":1}", `{"a":1}`},
		"words behind":                {`{"a":1} I hope that this helps! {`, `{"a":1}`},
		"braces in the words":         {`The set {x, y} has [one]: {"a":1}`, `{"a":1}`},
		"another object before":       {`{"b":2} {"a":1}`, `{"a":1}`},
		"an object that breaks off":   {`{"a":1, "b": `, ""},
		"an object of another form":   {`{"a":"x"}`, ""},
		"nothing":                     {"", ""},
		"no JSON":                     {"I cannot do that.", ""},
		"the object inside an object": {`{"result": {"a":1}}`, ""}, // it is another answer
		"braces in a string":          {`x {"a":1,"s":"} {"} y`, `{"a":1,"s":"} {"}`},
		"more braces than are tried":  {strings.Repeat("{", 64) + `{"a":1}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := schema.FindJSON(test.answer, func(text string) bool { return s.Violation(t.Context(), text) == "" })
			if got != test.want || ok != (test.want != "") {
				t.Errorf("got %q, %v; want %q", got, ok, test.want)
			}
		})
	}
}
