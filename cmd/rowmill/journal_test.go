package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/http/webhook"
	"github.com/rowmill/rowmill/internal/must"
)

// A node writes the actions of administrators to its audit file, starting with the
// creation of the first key.
func TestActsStandInAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	m := start(t, t.TempDir(), func(s *settings.Settings) { s.Log.Audit = path })
	code, made, said := runCommand(t.Context(), environ(m, m.API.FirstKey), "", "keys", "create", "--name", "nightly", "-o", "json")
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
	text := must.Get(os.ReadFile(path))(t)
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
	if strings.Contains(string(text), key.Key) || strings.Contains(string(text), m.API.FirstKey) {
		t.Error("the file has a secret")
	}
	code, _, said = runCommand(t.Context(), nil, "", "serve", "--simulate", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--set", "log.audit="+t.TempDir())
	if code == 0 || !strings.Contains(said, "log.audit: ") {
		t.Errorf("with a folder for a file: code %d, %s", code, said)
	}
}

// A siem accepts entries of the audit record, unless it is down.
type siem struct {
	mu      sync.Mutex
	down    bool
	refused int
	acts    []string // of the entries, by arrival
}

func (s *siem) be(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// await waits until is returns true.
func (s *siem) await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		s.mu.Lock()
		there, acts := is(), slices.Clone(s.acts)
		s.mu.Unlock()
		if there {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it waits for %s and has %q", what, acts)
		}
	}
}

// Audit entries are sent in order and signed. If the receiver was down, the next start
// of the node sends the entries that are left, and none twice.
func TestActsAreSent(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
	to := &siem{}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to.mu.Lock()
		defer to.mu.Unlock()
		if to.down {
			to.refused++
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		body, err := io.ReadAll(r.Body)
		at, err2 := strconv.ParseInt(r.Header.Get(webhook.HeaderTimestamp), 10, 64)
		want, err3 := webhook.Sign(secret, r.Header.Get(webhook.HeaderID), time.Unix(at, 0), string(body))
		if err != nil || err2 != nil || err3 != nil || r.Header.Get(webhook.HeaderSignature) != want {
			t.Errorf("signature %q, want %q: %v, %v, %v", r.Header.Get(webhook.HeaderSignature), want, err, err2, err3)
		}
		for line := range strings.Lines(string(body)) {
			var entry struct {
				Action  string
				Details struct{ Name string }
			}
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				t.Errorf("%q: %v", line, err)
			}
			to.acts = append(to.acts, entry.Action+" "+entry.Details.Name)
		}
	}))
	defer receiver.Close()
	data := t.TempDir()
	configured := func(s *settings.Settings) {
		s.APIKey = "admin-key-0123456789abcdef"
		s.Log.AuditWebhook, s.Log.AuditWebhookSecret = receiver.URL+"/audit", secret
	}
	act := func(m *NodeProcess, name string) {
		t.Helper()
		if code, _, said := runCommand(t.Context(), environ(m, "admin-key-0123456789abcdef"), "", "keys", "create", "--name", name); code != 0 {
			t.Fatalf("exit code %d: %s", code, said)
		}
	}
	first := start(t, data, configured)
	act(first, "one")
	to.await(t, "the first act", func() bool { return len(to.acts) == 1 })
	to.be(true)
	act(first, "two")
	act(first, "three")
	to.await(t, "an attempt while it is down", func() bool { return to.refused > 0 })
	stop(t, first)
	to.be(false)
	second := start(t, data, configured)
	act(second, "four")
	to.await(t, "all four", func() bool { return len(to.acts) >= 4 })
	stop(t, second)
	third := start(t, data, configured)
	act(third, "five")
	to.await(t, "the fifth", func() bool { return len(to.acts) >= 5 })
	stop(t, third)
	if want := []string{"key.create one", "key.create two", "key.create three", "key.create four", "key.create five"}; !slices.Equal(to.acts, want) {
		t.Errorf("it has %q, want %q", to.acts, want)
	}
	code, _, said := runCommand(t.Context(), nil, "", "serve", "--simulate", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--set", "log.audit_webhook=http://127.0.0.1:1/")
	if code == 0 || !strings.Contains(said, "log.audit_webhook_secret") {
		t.Errorf("without a secret: code %d, %s", code, said)
	}
}
