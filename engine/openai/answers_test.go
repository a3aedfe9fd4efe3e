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
	"github.com/rowmill/rowmill/internal/must"
)

// An answerFile is an answer of a server with the expected result.
type answerFile struct {
	Source    string          `json:"source"`          // the public source of this answer: a repository with a path or an issue number, or a page
	Body      json.RawMessage `json:"body"`            // a string if the body is not JSON
	Reasoning bool            `json:"reasoning_model"` // the model reasons
	Formed    bool            `json:"json_schema"`     // the job asked for JSON
	Want      struct {
		Content   string   `json:"content"`
		Reasoning string   `json:"reasoning"`
		Finish    string   `json:"finish"`
		Input     int64    `json:"input"`
		Output    int64    `json:"output"`
		Logprob   float64  `json:"logprob"` // sum; 0 for none
		Notices   []string `json:"notices"` // one word of each
		Class     string   `json:"class"`   // of the error; empty for none
		Code      string   `json:"code"`
		Raw       string   `json:"raw"`
	} `json:"want"`
}

// answerFiles returns the answers of testdata/answers by name: SERVER-VERSION-CASE if
// the source gives the version, otherwise SERVER-CASE.
func answerFiles(t *testing.T) map[string]*answerFile {
	t.Helper()
	paths, err := filepath.Glob("testdata/answers/*.json")
	if err != nil || len(paths) < 40 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	files := make(map[string]*answerFile, len(paths))
	for _, path := range paths {
		text := must.Get(os.ReadFile(path))(t)
		file := new(answerFile)
		strict := json.NewDecoder(bytes.NewReader(text))
		strict.DisallowUnknownFields()
		if err := strict.Decode(file); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		files[strings.TrimSuffix(filepath.Base(path), ".json")] = file
	}
	return files
}

// TestAnswersOfServers reads the answers of testdata/answers. To add a server, add
// files.
func TestAnswersOfServers(t *testing.T) {
	t.Parallel()
	for name, file := range answerFiles(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if file.Source == "" {
				t.Error("the file has no source")
			}
			body := []byte(file.Body)
			if body[0] == '"' {
				var plain string
				must.Succeed(t, json.Unmarshal(body, &plain))
				body = []byte(plain)
			}
			file.judge(t, body)
		})
	}
}

// TestEveryFinishReasonHasAnAnswer looks for an answer with each finish reason, so that
// the list has no unused words.
func TestEveryFinishReasonHasAnAnswer(t *testing.T) {
	t.Parallel()
	said := make(map[string]bool)
	for _, file := range answerFiles(t) {
		var body struct {
			Choices []struct {
				Finish string `json:"finish_reason"`
			}
		}
		if json.Unmarshal(file.Body, &body) == nil && len(body.Choices) > 0 {
			said[strings.ToLower(body.Choices[0].Finish)] = true
		}
	}
	for word := range finishReasons {
		if !said[word] {
			t.Errorf("no answer has the finish_reason %q", word)
		}
	}
	for word := range withheldReasons {
		if !said[word] {
			t.Errorf("no withheld answer has the finish_reason %q", word)
		}
	}
}

func (f *answerFile) judge(t *testing.T, body []byte) {
	t.Helper()
	r := newReplyReader(&bytesSource{rest: body}, 1<<20, f.Reasoning)
	defer r.release()
	must.Succeed(t, r.scanChat())
	var asked requestSettings
	if f.Formed {
		asked.form = "json_schema"
	}
	got, notices, refused := r.buildReply(asked, true)
	want := f.Want
	if want.Class != "" {
		class := map[string]engine.ErrorClass{"row": engine.RowFault, "moment": engine.Transient, "busy": engine.Busy}[want.Class]
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
