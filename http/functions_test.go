package http

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/internal/must"
)

const grade = `{
	"name": "grade", "description": "grades an essay",
	"inputs": [{"name": "essay", "description": "the text"}, {"name": "level", "required": false}],
	"prompt": "Grade {{essay}} at level {{ level }}.", "system_prompt": "You are a teacher.",
	"model": "llama-3.1-8b", "json_schema": {"type": "object"}, "sampling_params": {"temperature": 0.25, "max_tokens": 100}
}`

// publish publishes a definition. It must be accepted.
func (w *world) publish(definition string, headers ...string) rowmill.Function {
	w.Helper()
	var f rowmill.Function
	must.Succeed(w, json.Unmarshal(w.do("POST", "/v1/functions", definition, headers...).want(200).text, &f))
	return f
}

// numbered returns a definition with the number n in its prompt.
func numbered(name string, n int) string {
	return fmt.Sprintf(`{"name":%q,"prompt":"prompt %d","model":"llama-3.1-8b"}`, name, n)
}

func TestFunctions_PublishAnswersTheStoredRevision(t *testing.T) {
	t.Parallel()
	w := setup(t)
	stored := w.do("POST", "/v1/functions", grade).want(200).json()
	for _, field := range []string{"created_at", "published_at"} {
		if stored[field] == nil {
			t.Errorf("%s is null", field)
		}
	}
	if diff := cmp.Diff(stored, w.get("/v1/functions/grade").want(200).json()); diff != "" {
		t.Errorf("fetched (-stored +got):\n%s", diff)
	}
	delete(stored, "created_at")
	delete(stored, "published_at")
	want := map[string]any{
		"name": "grade", "description": "grades an essay", "revision": 1.0,
		"inputs": []any{
			map[string]any{"name": "essay", "required": true, "description": "the text"},
			map[string]any{"name": "level", "required": false, "description": ""},
		},
		"prompt": "Grade {{essay}} at level {{ level }}.", "system_prompt": "You are a teacher.", "model": "llama-3.1-8b",
		"json_schema": map[string]any{"type": "object"}, "sampling_params": map[string]any{"temperature": 0.25, "max_tokens": 100.0},
	}
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	small := w.do("POST", "/v1/functions", numbered("small", 1)).want(200).text
	if !bytes.Contains(small, []byte(`"inputs":[],"prompt":"prompt 1","system_prompt":null,"model":"llama-3.1-8b","json_schema":null,"sampling_params":{}`)) {
		t.Errorf("the smallest definition is %s", small)
	}
	// Clients may send back an answer.
	if again := w.publish(string(small)); again.Revision != 2 {
		t.Errorf("revision %d", again.Revision)
	}
}

func TestFunctions_DraftsRollbackAndUnpublishing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	post := func(path, body string) *answered { return w.do("POST", "/v1/functions/f"+path, body) }
	published := func(want any) {
		t.Helper()
		answer := w.get("/v1/functions/f")
		if answer.status == 404 {
			answer.wantError(404, "unknown_function", `"f"`)
			if want != nil {
				t.Errorf("nothing is published, want %v", want)
			}
			return
		}
		if got := answer.want(200).json()["prompt"]; got != want {
			t.Errorf("published %v, want %v", got, want)
		}
	}
	published(nil)
	post("/rollback", `{"revision":1}`).wantError(404, "unknown_revision", "revision 1")
	w.get("/v1/functions/f/revisions").wantError(404, "unknown_function", `"f"`)
	w.publish(strings.Replace(numbered("f", 1), "{", `{"publish":false,`, 1))
	published(nil)
	post("/rollback", `{"revision":1}`).want(200) // the revision is a draft
	published("prompt 1")
	w.publish(numbered("f", 2))
	published("prompt 2")
	if got := post("/rollback", `{"revision":1}`).want(200).json(); got["revision"] != 1.0 || got["published_at"] == nil {
		t.Errorf("rolled back to %v", got)
	}
	published("prompt 1")
	post("/rollback", `{"revision":3}`).wantError(404, "unknown_revision", "revision 3")
	post("/rollback", `{"revision":0}`).wantField("revision", "from 1")
	post("/rollback", `{"revision":"1"}`).wantField("revision", "whole number")
	post("/rollback", `{}`).wantField("revision", "missing")
	post("/rollback", `{"revision":1,"version":1}`).wantField("version", "unknown")
	published("prompt 1")
	w.do("DELETE", "/v1/functions/f", "").want(200)
	published(nil)
	w.do("DELETE", "/v1/functions/f", "").wantError(404, "unknown_function", `"f"`)

	var revisions []string
	for _, r := range w.get("/v1/functions/f/revisions").want(200).json()["revisions"].([]any) {
		f := r.(map[string]any)
		revisions = append(revisions, fmt.Sprint(f["revision"], " ", f["prompt"], " ", f["published_at"]))
	}
	if diff := cmp.Diff([]string{"2 prompt 2 <nil>", "1 prompt 1 <nil>"}, revisions); diff != "" {
		t.Errorf("revisions (-want +got):\n%s", diff)
	}
	post("/rollback", `{"revision":2}`).want(200)
	published("prompt 2")
}

func TestFunctions_ListHasPublishedRevisions(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.get("/v1/functions").wantBody(`{"functions":[]}`)
	w.publish(numbered("b", 1))
	w.publish(numbered("a", 1))
	w.publish(numbered("a", 2))
	w.publish(numbered("gone", 1))
	w.do("DELETE", "/v1/functions/gone", "").want(200)
	w.publish(strings.Replace(numbered("draft", 1), "{", `{"publish":false,`, 1))
	var found []string
	for _, entry := range w.get("/v1/functions").want(200).json()["functions"].([]any) {
		f := entry.(map[string]any)
		found = append(found, fmt.Sprint(f["name"], " ", f["revision"]))
	}
	if diff := cmp.Diff([]string{"a 2", "b 1"}, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFunctions_AdministratorsChangeThemAndAnyKeyReads(t *testing.T) {
	t.Parallel()
	w := setup(t)
	user := []string{"Authorization", "Key " + w.keyOf("acme", caller.RoleUser)}
	admin := []string{"Authorization", "Key " + w.keyOf("acme", caller.RoleAdmin)}
	other := []string{"Authorization", "Key " + w.keyOf("other", caller.RoleAdmin)}
	w.publish(grade, admin...)
	for _, change := range []func(headers []string) *answered{
		func(h []string) *answered { return w.do("POST", "/v1/functions", grade, h...) },
		func(h []string) *answered { return w.do("POST", "/v1/functions", "no JSON", h...) },
		func(h []string) *answered {
			return w.do("POST", "/v1/functions/grade/rollback", `{"revision":1}`, h...)
		},
		func(h []string) *answered { return w.do("DELETE", "/v1/functions/grade", "", h...) },
	} {
		change(user).wantError(403, "forbidden", "administrator")
	}
	for _, path := range []string{"", "/grade", "/grade/revisions"} {
		if text := w.get("/v1/functions"+path, user...).want(200).text; !bytes.Contains(text, []byte("teacher")) {
			t.Errorf("%s: %s", path, text)
		}
		w.get("/v1/functions"+path+"?account=acme", other...).want(403)
		if text := w.get("/v1/functions"+path, other...).text; bytes.Contains(text, []byte("teacher")) {
			t.Errorf("another account sees %s", text)
		}
		w.get("/v1/functions" + path + "?account=acme").want(200) // as an administrator of the account default
	}
	w.do("POST", "/v1/functions/grade/rollback", `{"revision":1}`, other...).want(404)
	w.do("DELETE", "/v1/functions/grade", "", other...).want(404)
	w.do("POST", "/v1/functions/grade/run", `{"input":"x"}`, other...).wantError(404, "unknown_function", "grade")
	w.post(`{"inputs":["x"],"model":"grade"}`, other...).wantError(400, "unknown_model", "grade")
	w.publish(strings.Replace(grade, "{", `{"account":"acme",`, 1))
	if got := w.get("/v1/functions/grade", user...).want(200).json()["revision"]; got != 2.0 {
		t.Errorf("revision %v after an administrator of default has published", got)
	}
	w.do("DELETE", "/v1/functions/grade?account=acme", "").want(200)
}

func TestFunctions_RefusesDefinitions(t *testing.T) {
	t.Parallel()
	w := setup(t)
	deep := strings.Repeat(`{"not":`, 64) + "{}" + strings.Repeat("}", 64)
	for name, test := range map[string]struct{ field, value, broken, message string }{
		"NoName":             {"name", `null`, "name", "1 to 64"},
		"BadName":            {"name", `"a b"`, "name", "1 to 64"},
		"NameOfAModel":       {"name", `"llama-3.1-8b"`, "name", "name of a model"},
		"NumberAsName":       {"name", `7`, "name", "must be a string"},
		"LongDescription":    {"description", `"` + strings.Repeat("x", 513) + `"`, "description", "513 characters"},
		"UnknownModel":       {"model", `"llama-3.1-8"`, "model", `did you mean "llama-3.1-8b"`},
		"NoModel":            {"model", `null`, "model", "there are gpt-oss-20b"},
		"CallsAFunction":     {"model", `"grade"`, "model", "cannot use another Function"},
		"NoPrompt":           {"prompt", `null`, "prompt", "is empty"},
		"UndeclaredField":    {"prompt", `"{{essay}} {{grade}}"`, "prompt", "at byte 10: {{grade}} is not among the declared inputs"},
		"OpenBraces":         {"prompt", `"{{essay"`, "prompt", "not closed"},
		"LongPrompt":         {"prompt", `"` + strings.Repeat("x", 1<<20+1) + `"`, "prompt", "1048577 bytes"},
		"LongSystemPrompt":   {"system_prompt", `"` + strings.Repeat("x", 1<<20+1) + `"`, "system_prompt", "1048577 bytes"},
		"InputsNoList":       {"inputs", `{"essay":true}`, "inputs", "array of objects"},
		"UnknownOfInput":     {"inputs", `[{"name":"essay"},{"name":"level","type":"image"}]`, "inputs[1].type", "unknown"},
		"InputTwice":         {"inputs", `[{"name":"essay"},{"name":"level"},{"name":"level"}]`, "inputs[2].name", "already"},
		"RequiredNoBoolean":  {"inputs", `[{"name":"essay"},{"name":"level","required":1}]`, "inputs[1].required", "boolean"},
		"SchemaNoSchema":     {"json_schema", `{"type":"objekt"}`, "json_schema", "not a valid JSON Schema"},
		"SchemaNoObject":     {"json_schema", `"object"`, "json_schema", "object"},
		"SchemaDeep":         {"json_schema", deep, "json_schema", "levels deep"},
		"SchemaHuge":         {"json_schema", `{"const":"` + strings.Repeat("x", 256<<10) + `"}`, "json_schema", "more than 262144"},
		"SchemaLeaves":       {"json_schema", `{"$ref":"https://example.org/s"}`, "json_schema", "leaves the schema"},
		"SchemaRefersToItAs": {"json_schema", `{"$ref":"#/$defs/gone"}`, "json_schema", "not a valid JSON Schema"},
		"SamplingUnknown":    {"sampling_params", `{"temprature":1}`, "sampling_params.temprature", "did you mean"},
		"SamplingRange":      {"sampling_params", `{"top_p":2}`, "sampling_params.top_p", "at most 1"},
		"SamplingNoObject":   {"sampling_params", `[]`, "sampling_params", "object"},
		"PublishNoBoolean":   {"publish", `"no"`, "publish", "boolean"},
		"UnknownField":       {"tools", `[]`, "tools", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			var definition map[string]json.RawMessage
			must.Succeed(t, json.Unmarshal([]byte(grade), &definition))
			definition[test.field] = json.RawMessage(test.value)
			body, _ := json.Marshal(definition)
			w := *w
			w.TB = t
			w.do("POST", "/v1/functions", string(body)).wantField(test.broken, test.message)
		})
	}
	for _, field := range []string{`"system_prompt":"x"`, `"json_schema":{}`, `"sampling_params":{"temperature":1}`} {
		name, _, _ := strings.Cut(strings.Trim(field, `"`), `"`)
		w.do("POST", "/v1/functions", `{"name":"f","prompt":"x","model":"qwen-3-embedding-0.6b",`+field+`}`).wantField(name, "embedding model")
	}
	w.do("POST", "/v1/functions", `[]`).wantError(400, "invalid_json", "object")
	w.do("POST", "/v1/functions", `{"name":"`+strings.Repeat("x", 17<<20)+`"}`).wantError(413, "body_too_large", "bytes")
	w.get("/v1/functions").wantBody(`{"functions":[]}`)
	if names, err := w.store.ListValues(t.Context(), "function"); err != nil || len(names) > 0 {
		t.Errorf("stored %q, %v", names, err)
	}
}

// A schema that refers to itself is valid; its cycles end with the data.
func TestFunctions_CyclicSchemaIsAccepted(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.publish(`{"name":"tree","prompt":"x","model":"llama-3.1-8b","json_schema":{"type":"object","properties":{"child":{"$ref":"#"}}}}`)
	w.submitted(`{"inputs":["x"],"model":"tree"}`)
}

func TestFunctions_OneOfTwoConcurrentPublishersWins(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const publishers = 8
	answers := make(chan int, publishers)
	for n := range publishers {
		go func() { answers <- w.do("POST", "/v1/functions", numbered("f", n)).status }()
	}
	won := 0
	for range publishers {
		switch status := <-answers; status {
		case 200:
			won++
		case 409:
		default:
			t.Errorf("status %d", status)
		}
	}
	revisions := w.get("/v1/functions/f/revisions").want(200).json()["revisions"].([]any)
	if won == 0 || len(revisions) != won {
		t.Errorf("%d publishers won and %d revisions are stored", won, len(revisions))
	}
	w.get("/v1/functions/f").want(200)
}

func TestFunctions_ActionsAreAudited(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.publish(grade)
	w.do("POST", "/v1/functions/grade/rollback", `{"revision":1}`).want(200)
	w.do("DELETE", "/v1/functions/grade", "").want(200)
	w.do("DELETE", "/v1/functions/grade", "").want(404)
	text := w.get("/v1/audit").want(200).text
	var acts []string
	var body struct {
		Entries []struct {
			Action         string
			Details        json.RawMessage
			Target, Failed *string
		} `json:"entries"`
	}
	must.Succeed(t, json.Unmarshal(text, &body))
	for _, e := range body.Entries {
		failed := ""
		if e.Failed != nil {
			failed = " " + *e.Failed
		}
		acts = append(acts, fmt.Sprintf("%s %s %s%s", e.Action, *e.Target, e.Details, failed))
	}
	want := []string{
		"function.unpublish grade {} unknown_function", "function.unpublish grade {}", "function.unpublish grade {}",
		`function.rollback grade {"revision":1}`, `function.publish grade {"model":"llama-3.1-8b","publish":true}`,
	}
	if diff := cmp.Diff(want, acts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A rollback to a revision of a removed model is refused, because it cannot run.
func TestFunctions_RollbackToAModelThatIsGone(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.publish(numbered("f", 1))
	later := setup(t, func(c *Config) { c.Store, c.Catalog = w.store, lesser(t) })
	later.do("POST", "/v1/functions/f/rollback", `{"revision":1}`).wantError(400, "unknown_model", "llama-3.1-8b")
	later.post(`{"inputs":["x"],"model":"f"}`).wantError(400, "unknown_model", "revision 1")
	later.do("POST", "/v1/functions/f/run", `{"input":"x"}`).wantError(400, "unknown_model", "revision 1")
	w.noJobs()
}

// lesser returns a catalog of one model.
func lesser(t *testing.T) *catalog.Catalog {
	t.Helper()
	models, err := catalog.Load(strings.NewReader("models: [{id: other, kind: generation, context_length: 100}]"))
	must.Succeed(t, err)
	return models
}
