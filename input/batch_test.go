package input

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
)

const chatPath = "/v1/chat/completions"

// readBatch returns the IDs and bodies of a batch, and its faults as "line
// code".
func readBatch(t testing.TB, text string, limits Limits) (ids, bodies, faults []string, model string) {
	t.Helper()
	b := OpenBatch(strings.NewReader(text), chatPath, limits)
	for {
		var row rowmill.Row
		err := b.Next(&row)
		failure := (*rowmill.Failure)(nil)
		switch {
		case errors.Is(err, io.EOF):
			return ids, bodies, nil, b.Model()
		case errors.As(err, &failure):
			var list []LineFault
			if err := json.Unmarshal([]byte(failure.AdditionalContext), &list); err != nil || failure.Code != rowmill.CodeInvalidInputFile || failure.Message == "" {
				t.Fatalf("failure %+v: %v", failure, err)
			}
			for _, f := range list {
				line := "-"
				if f.Line != nil {
					line = string(rune('0' + *f.Line))
				}
				faults = append(faults, line+" "+f.Code)
			}
			return ids, bodies, faults, b.Model()
		case err != nil:
			t.Fatal(err)
		}
		if row.Index != int64(len(ids)) {
			t.Fatalf("row %d at position %d", row.Index, len(ids))
		}
		ids, bodies = append(ids, row.ID.Text), append(bodies, row.Text)
	}
}

func batchLine(id, body string) string {
	return `{"custom_id":"` + id + `","method":"POST","url":"/v1/chat/completions","body":` + body + `}`
}

func TestBatch_RowsAreBodiesWithoutTheirModel(t *testing.T) {
	t.Parallel()
	text := "\xEF\xBB\xBF" + batchLine("a", `{"model":"m","x":[1, {"model":"kept"}],"y":"\"}{"}`) + "\r\n\r\n" +
		` { "body" : { "x" : 1.50 , "model":"m" , "z":null } , "url":"/v1/chat/completions","method":"POST","custom_id":"é\u0062" , "more":[] } ` + "\n" +
		batchLine("c", `{"model":"m"}`)
	ids, bodies, faults, model := readBatch(t, text, Limits{})
	if diff := cmp.Diff([]string{"a", "éb", "c"}, ids); diff != "" || model != "m" || faults != nil {
		t.Errorf("model %q, faults %v, ids (-want +got):\n%s", model, faults, diff)
	}
	if diff := cmp.Diff([]string{`{"x":[1, {"model":"kept"}],"y":"\"}{"}`, `{"x" : 1.50,"z":null}`, `{}`}, bodies); diff != "" {
		t.Errorf("bodies (-want +got):\n%s", diff)
	}
}

// A batch must refuse answers in the background and conversations. For other
// paths these members have no meaning.
func TestBatch_ResponsesWithoutState(t *testing.T) {
	t.Parallel()
	for member, refused := range map[string]bool{
		`"background":true`: true, `"background":false`: false, `"background":null`: false, `"background":"yes"`: true,
		`"conversation":"conv_1"`: true, `"conversation":{"id":"conv_1"}`: true, `"conversation":null`: false,
	} {
		name := member[1:strings.Index(member, `":`)]
		for _, path := range []string{"/v1/responses", chatPath} {
			line := strings.Replace(batchLine("a", `{"model":"m","input":"x",`+member+`}`), chatPath, path, 1)
			var row rowmill.Row
			err := OpenBatch(strings.NewReader(line), path, Limits{}).Next(&row)
			failure := (*rowmill.Failure)(nil)
			if got := errors.As(err, &failure); got != (refused && path == "/v1/responses") {
				t.Errorf("%s, %s: %v", path, member, err)
			} else if got && !strings.Contains(failure.AdditionalContext, `"param":"body.`+name+`"`) {
				t.Errorf("the fault does not name the member: %s", failure.AdditionalContext)
			}
		}
	}
}

func TestBatch_FaultsOfLines(t *testing.T) {
	t.Parallel()
	good := batchLine("a", `{"model":"m"}`) + "\n"
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"empty":         {"", []string{"- empty_file"}},
		"blank":         {"\n \r\n", []string{"- empty_file"}},
		"no JSON":       {good + "nonsense\n{}", []string{"2 invalid_json_line", "3 invalid_request", "3 invalid_request", "3 invalid_request", "3 invalid_request"}},
		"not an object": {"[]", []string{"1 invalid_json_line"}},
		"no UTF-8":      {"\"\xff\"", []string{"1 invalid_json_line"}},
		"duplicate":     {good + good, []string{"2 duplicate_custom_id"}},
		"another path":  {strings.Replace(good, "chat/", "", 1), []string{"1 url_mismatch"}},
		"two models":    {good + batchLine("b", `{"model":"n"}`), []string{"2 model_mismatch"}},
		"a stream":      {batchLine("b", `{"model":"n","stream":true}`), []string{"1 invalid_request"}},
		"a GET":         {strings.Replace(good, "POST", "GET", 1), []string{"1 invalid_request"}},
		"no model":      {batchLine("b", `{}`), []string{"1 invalid_request"}},
		"too long":      {good + batchLine("b", `{"model":"m","x":"`+strings.Repeat("x", 300)+`"}`) + "\n" + good, []string{"2 invalid_request", "3 duplicate_custom_id"}},
		"too many":      {good + batchLine("b", `{"model":"m"}`) + "\n" + batchLine("c", `{"model":"m"}`), []string{"3 too_many_tasks"}},
	} {
		_, _, faults, _ := readBatch(t, tt.text, Limits{MaxRows: 2, MaxRowBytes: 200})
		if diff := cmp.Diff(tt.want, faults); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if _, _, faults, _ := readBatch(t, strings.Repeat("x\n", 100), Limits{}); len(faults) != maxLineFaults {
		t.Errorf("%d faults are reported", len(faults))
	}
}

func TestBatchModel(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "nonsense": "", batchLine("a", `{"model":"m"}`) + "\nnonsense": "m", "x\n" + batchLine("a", `{"model":"m"}`): "m",
	} {
		model, found, err := ReadBatchModel(strings.NewReader(text), int64(len(text)), chatPath, Limits{})
		if model != want || found != (want != "") || err != nil {
			t.Errorf("%q: %q, %v, %v", text, model, found, err)
		}
	}
}

// FuzzBatch compares the parsed lines with encoding/json.
func FuzzBatch(f *testing.F) {
	for _, body := range []string{`{"model":"m"}`, `{"model":"m","a":{"b":[1,2.5e3,"\\\""]},"model":"m"}`, ` { "x" : "\u2028" , "model" : "m" } `, `{"model":1}`, `[]`} {
		f.Add(batchLine("a", body))
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids, bodies, _, model := readBatch(t, text, Limits{})
		for i, line := range nonBlank(text)[:len(ids)] {
			var want struct {
				ID   string `json:"custom_id"`
				Body map[string]json.RawMessage
			}
			var got map[string]json.RawMessage
			if json.Unmarshal([]byte(bodies[i]), &got) != nil {
				t.Fatalf("the body of %q is not an object: %q", line, bodies[i])
			}
			if !sameNames(line) {
				continue // encoding/json ignores the case of names
			}
			if err := json.Unmarshal([]byte(line), &want); err != nil || want.ID != ids[i] {
				t.Fatalf("%q has the id %q: %v", line, ids[i], err)
			}
			var name string
			if json.Unmarshal(want.Body["model"], &name) != nil || name != model {
				t.Fatalf("%q is for %q", line, model)
			}
			delete(want.Body, "model")
			if diff := cmp.Diff(want.Body, got); diff != "" {
				t.Fatalf("%q (-want +got):\n%s", line, diff)
			}
		}
	})
}

func nonBlank(text string) (lines []string) {
	for _, line := range strings.Split(strings.TrimPrefix(text, "\xEF\xBB\xBF"), "\n") {
		if line = strings.Trim(line, " \t\r\n\v\f\u0085\u00a0"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// sameNames reports whether no two member names of a line differ only in case.
func sameNames(line string) bool {
	var all map[string]json.RawMessage
	_ = json.Unmarshal([]byte(line), &all)
	seen := map[string]bool{}
	for name := range all {
		lower := strings.ToLower(name)
		if seen[lower] {
			return false
		}
		seen[lower] = true
	}
	return true
}
