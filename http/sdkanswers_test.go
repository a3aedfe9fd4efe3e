package http

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// thought is the output of a reasoning row with JSON as its content.
const thought = `{"reasoning_content":"2 \"and\" 2","content":" {\"sum\": 4.0}\n"}`

// csvIn returns the only file in a ZIP archive.
func csvIn(t *testing.T, archive []byte) string {
	t.Helper()
	files, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	must.Succeed(t, err)
	file, err := files.File[0].Open()
	must.Succeed(t, err)
	defer file.Close()
	text, err := io.ReadAll(file)
	must.Succeed(t, err)
	return string(text)
}

// With a JSON Schema, the content of a reasoning row is an object for keys of the
// dialect, and text for other keys. Without a schema, or if it is not JSON, the content
// is text for all keys.
func TestSDKDialect_ContentOfAReasoningRowIsAnObject(t *testing.T) {
	t.Parallel()
	w := setup(t)
	key, rows := w.sdkKey(), answers(thought, "", `{"reasoning_content":"","content":"4"}`, `{"reasoning_content":"","content":"four"}`)
	with := w.succeeded(`{"model":"qwen-3-14b-thinking","json_schema":{"type":"object"},"inputs":["a"]}`, rows)
	without := w.succeeded(`{"model":"qwen-3-14b-thinking","inputs":["a"]}`, rows)
	const packed = `["{\"reasoning_content\":\"2 \\\"and\\\" 2\",\"content\":\" {\\\"sum\\\": 4.0}\\n\"}",null,` +
		`"{\"reasoning_content\":\"\",\"content\":\"4\"}","{\"reasoning_content\":\"\",\"content\":\"four\"}"]`
	const unpacked = `["{\"reasoning_content\":\"2 \\\"and\\\" 2\",\"content\":{\"sum\": 4.0}}",null,` +
		`"{\"reasoning_content\":\"\",\"content\":4}","{\"reasoning_content\":\"\",\"content\":\"four\"}"]`
	for _, test := range []struct {
		id   string
		key  []string
		want string
	}{{with, key, unpacked}, {with, nil, packed}, {without, key, packed}} {
		body := `{"job_id":"` + test.id + `"}`
		if got := strings.TrimSpace(string(w.do("POST", "/v1/job-results", body, test.key...).want(200).text)); got != `{"results":{"outputs":`+test.want+`}}` {
			t.Errorf("job-results:\n got %s\nwant %s", got, test.want)
		}
		if got := string(w.get("/v1/jobs/"+test.id+"/results", test.key...).want(200).text); got != `{"outputs":`+test.want+`}` {
			t.Errorf("JSON:\n got %s\nwant %s", got, test.want)
		}
		csv := csvIn(t, w.get("/v1/jobs/"+test.id+"/results?format=csv", test.key...).want(200).text)
		if got := strings.Contains(csv, `""content"":{""sum"": 4.0}}"`); got != (test.want == unpacked) {
			t.Errorf("CSV: %s", csv)
		}
	}
}

// With a JSON Schema, the output of a run is JSON and not text.
func TestSDKDialect_OutputOfARunIsParsed(t *testing.T) {
	t.Parallel()
	output := ""
	w := setupRun(t, func(w *world, id string) { w.succeed(w.start(id, 1), answers(output)) })
	w.publish(strings.NewReplacer(`"grade"`, `"think"`, "llama-3.1-8b", "qwen-3-14b-thinking").Replace(grade))
	w.publish(`{"name":"plain","inputs":[{"name":"essay"}],"prompt":"{{essay}}","model":"llama-3.1-8b"}`)
	key := w.sdkKey()
	for _, test := range []struct{ function, output, want, reasoning string }{
		{"grade", `{"grade": "B", "points": 12345678901234567890}`, `{"grade":"B","points":12345678901234567890}`, ""},
		{"plain", `{"grade": "B"}`, `"{\"grade\": \"B\"}"`, ""},
		{"think", thought, `{"sum":4.0}`, `"2 \"and\" 2"`},
	} {
		output = test.output
		path, body := "/v1/functions/"+test.function+"/run", `{"input":{"essay":"E"}}`
		var got struct {
			Output    json.RawMessage `json:"output"`
			Reasoning json.RawMessage `json:"reasoning_content"`
		}
		must.Succeed(t, json.Unmarshal(w.do("POST", path, body, key...).want(200).text, &got))
		if string(got.Output) != test.want || string(got.Reasoning) != test.reasoning {
			t.Errorf("%s: output %s, reasoning %s", test.function, got.Output, got.Reasoning)
		}
		if got := w.do("POST", path, body).want(200).json()["output"]; got != test.output {
			t.Errorf("%s: another key gets %v", test.function, got)
		}
	}
}

// Unknown fields, which newer clients may send, are ignored as in submissions.
func TestRunFunction_IgnoresUnknownFields(t *testing.T) {
	t.Parallel()
	w := setupRun(t, func(w *world, id string) { w.succeed(w.start(id, 1), answers("B+")) })
	answer := w.do("POST", "/v1/functions/grade/run", `{"input":"x","confidence_scoring":false,"stream":null,"Zeal":[]}`).want(200).json()
	warnings, _ := answer["warnings"].([]any)
	if len(warnings) != 1 || warnings[0] != "ignored unknown fields: Zeal, confidence_scoring" {
		t.Errorf("warnings %v", answer["warnings"])
	}
	if got := w.lastJob().Job.Warnings; len(got) != 1 {
		t.Errorf("the job's warnings %v", got)
	}
	if _, warned := w.runGrade(`"x"`).want(200).json()["warnings"]; warned {
		t.Error("a warning of nothing")
	}
}
