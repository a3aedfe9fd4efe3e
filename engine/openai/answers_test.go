package openai

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/engine"
)

// An answerFile is an answer as a server gives it, and its reading.
type answerFile struct {
	Body      json.RawMessage `json:"body"`            // a text, where it is no JSON
	Reasoning bool            `json:"reasoning_model"` // of a model that reasons
	Formed    bool            `json:"json_schema"`     // JSON was asked for
	Want      struct {
		Content   string   `json:"content"`
		Reasoning string   `json:"reasoning"`
		Finish    string   `json:"finish"`
		Input     int64    `json:"input"`
		Output    int64    `json:"output"`
		Logprob   float64  `json:"logprob"` // sum; 0 for none
		Notices   []string `json:"notices"` // a word of each
		Class     string   `json:"class"`   // of the error; empty for none
		Code      string   `json:"code"`
		Raw       string   `json:"raw"`
	} `json:"want"`
}

// TestAnswersOfServers reads the answers of testdata/answers, named SERVER-VERSION-CASE.
// To add a server is to add files.
func TestAnswersOfServers(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/answers/*.json")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var file answerFile
			strict := json.NewDecoder(bytes.NewReader(text))
			strict.DisallowUnknownFields()
			if err := strict.Decode(&file); err != nil {
				t.Fatal(err)
			}
			body := []byte(file.Body)
			if body[0] == '"' {
				var plain string
				if err := json.Unmarshal(body, &plain); err != nil {
					t.Fatal(err)
				}
				body = []byte(plain)
			}
			file.judge(t, body)
		})
	}
}

func (f *answerFile) judge(t *testing.T, body []byte) {
	t.Helper()
	r := newReply(&bytesSource{rest: body}, 1<<20, f.Reasoning)
	defer r.release()
	if err := r.scanChat(); err != nil {
		t.Fatal(err)
	}
	got, notices, refused := r.answer(true, f.Formed)
	want := f.Want
	if want.Class != "" {
		class := map[string]engine.Class{"row": engine.RowFault, "moment": engine.Moment}[want.Class]
		if refused == nil || refused.Class != class || refused.Code != want.Code || refused.Raw != want.Raw {
			t.Errorf("got %+v, want class %s, code %s, raw %q", refused, want.Class, want.Code, want.Raw)
		}
		return
	}
	if refused != nil {
		t.Fatalf("refused: %+v", refused)
	}
	if got.Content != want.Content || got.Reasoning != want.Reasoning || string(got.Finish) != want.Finish || got.InputTokens != want.Input || got.OutputTokens != want.Output || math.Abs(got.LogprobSum-want.Logprob) > 1e-9 {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if len(notices) != len(want.Notices) {
		t.Errorf("notices %q, want %q", notices, want.Notices)
	}
	for i, word := range want.Notices {
		if i < len(notices) && !strings.Contains(notices[i], word) {
			t.Errorf("notice %q, want one with %q", notices[i], word)
		}
	}
}
