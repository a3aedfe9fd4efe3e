package openai

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// Requests use the last key that was set, also for jobs and connections from before.
func TestSetAPIKey(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/chat/completions" {
			mu.Lock()
			got = append(got, r.Header.Get("Authorization"))
			mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}`))
			return
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	e := must.Get(New(Config{BaseURL: server.URL, APIKey: "before"}))(t)
	defer e.Close()
	ask := func() {
		t.Helper()
		conn := must.Get(e.send(context.Background(), e.chatHead, "", newCallTimeout(10*time.Second), func(dst []byte) []byte { return append(dst, "{}"...) }))(t)
		conn.endRow()
		conn.discard()
	}
	ask()
	for _, key := range []string{"after", ""} {
		must.Succeed(t, e.SetAPIKey(key))
		ask()
	}
	if err := e.SetAPIKey("two\nlines"); err == nil {
		t.Error("a key of two lines is accepted")
	}
	if want := []string{"Bearer before", "Bearer after", ""}; !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
}
