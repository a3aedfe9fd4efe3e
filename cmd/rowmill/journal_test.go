package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/cmd/rowmill/settings"
)

// What administrators do through a node stands in its file, from the first key on.
func TestActsStandInAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	m := start(t, t.TempDir(), func(s *settings.Settings) { s.Log.Audit = path })
	code, made, said := runCommand(t.Context(), environ(m, m.FirstKey), "", "keys", "create", "--name", "nightly", "-o", "json")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, said)
	}
	var key struct {
		Key string `json:"key"`
		ID  string `json:"id"`
	}
	if err := json.Unmarshal([]byte(made), &key); err != nil || key.ID == "" || key.Key == "" {
		t.Fatalf("%s: %v", made, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var acts []string
	for line := range strings.Lines(string(text)) {
		var entry struct{ Action, Target string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		acts = append(acts, entry.Action+" "+entry.Target)
	}
	if len(acts) != 2 || !strings.HasPrefix(acts[0], "key.create ") || acts[1] != "key.create "+key.ID {
		t.Errorf("the file has %q, want the first key and %s", acts, key.ID)
	}
	if strings.Contains(string(text), key.Key) || strings.Contains(string(text), m.FirstKey) {
		t.Error("the file has a secret")
	}
	code, _, said = runCommand(t.Context(), nil, "", "serve", "--simulate", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--set", "log.audit="+t.TempDir())
	if code == 0 || !strings.Contains(said, "log.audit: ") {
		t.Errorf("with a folder for a file: code %d, %s", code, said)
	}
}
