package prompt_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/llama"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/tokenize"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// These are rows and system prompts that merge with the template at their
// borders.
var (
	borderTexts = []string{
		"Hello there.", "", " ", "\n", "\n\n\n", "  \n two lines \n\n", "\r\n\r\nthe text\r\n", "\tmarkers\t", "Größe, 日本語 🦙 12345",
		"no <|im_end|> and <|eot_id|>, </think> nor <end_of_turn> in here", strings.Repeat("the prompt as the server sees it ", 40),
	}
	borderSystems = []string{"", "A system prompt comes first.", "\n\n  Then the text. \n"}
)

// The count of a whole prompt must equal the prompt_tokens of a real server.
// The server runs a chat template of each family and a byte-level BPE
// vocabulary, and the test counts with the same vocabulary.
func TestCount_EqualsTheServersReport(t *testing.T) {
	t.Parallel()
	folder := model(t)
	enc := must.Get(tokenize.Open(filepath.Join(folder, "tokenizer.json")))(t)
	for _, name := range []string{"qwen-3", "llama-3", "gemma", "harmony"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template := must.Get(prompt.FindTemplate(name))(t)
			server := serve(t, folder, name)
			for _, system := range borderSystems {
				for _, extras := range []map[string]any{
					{"chat_template_kwargs": map[string]any{"enable_thinking": false}},
					{"chat_template_kwargs": map[string]any{"enable_thinking": true, "reasoning_effort": "high"}},
				} {
					// This server also renders harmony to a string.
					m := template.Measure(enc.WithSpecials(), prompt.JobPrompt{System: system, Extras: extras})
					for _, text := range borderTexts {
						used := server.run(t, system, text, extras)
						if got := m.Count(text); got != used {
							t.Errorf("system prompt %q, text %.40q: counted %d tokens, the server reports %d", system, text, got, used)
						}
					}
				}
			}
		})
	}
}

// model writes the model and its tokenizer.json.
func model(t *testing.T) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("ROWMILL_CI") != "" {
			t.Fatal("no python3 on this machine: install it")
		}
		t.Skip("SKIPPED, NOT TESTED against a real inference server: no python3 on this machine")
	}
	folder := t.TempDir()
	cmd := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "bpe_model.py"), folder)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join("..", "..", "internal", "llama"), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make the model: %v\n%s", err, out)
	}
	return folder
}

// server is the URL of a llama-server with a template and the model.
type server string

func serve(t *testing.T, folder, template string) server {
	t.Helper()
	file := must.Get(filepath.Abs(filepath.Join("testdata", "templates", template+".jinja")))(t)
	return server(llama.Start(t, llama.Chat, llama.Options{
		Slots: 1, Context: 4096,
		Args: []string{"--model", filepath.Join(folder, "model.gguf"), "--chat-template-file", file},
	}).URL)
}

// run sends a row to the server and returns the reported prompt tokens.
func (s server) run(t *testing.T, system, text string, extras map[string]any) int {
	t.Helper()
	messages := []map[string]string{{"role": "user", "content": text}}
	if system != "" {
		messages = append([]map[string]string{{"role": "system", "content": system}}, messages...)
	}
	body := map[string]any{"messages": messages, "max_tokens": 1}
	maps.Copy(body, extras)
	data := must.Get(json.Marshal(body))(t)
	res, err := http.Post(string(s)+"/v1/chat/completions", "application/json", bytes.NewReader(data))
	must.Succeed(t, err)
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		Usage struct {
			Prompt int `json:"prompt_tokens"`
		} `json:"usage"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("the server answered %s: %v", res.Status, err)
	}
	return answer.Usage.Prompt
}
