package hostile

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// The bytes of a kind depend only on the request and the seed, each header says that it
// is simulated, and names of kinds are unique.
func TestKinds(t *testing.T) {
	t.Parallel()
	for _, path := range []string{Chat, Stream, Embeddings, Models, Tokenize, Metrics, "/health"} {
		var names []string
		for _, kind := range Kinds(path) {
			if slices.Contains(names, kind.Name) {
				t.Errorf("%s: there are two kinds %q", path, kind.Name)
			}
			names = append(names, kind.Name)
			if kind.Bulky || kind.Waits || len(kind.paths) == 0 && path != Chat {
				continue
			}
			r := Request{Path: path, Type: "application/json", Good: []byte(`{"a":[1,"x"]}`), Seed: 7}
			first := answer(t, kind, r)
			if again := answer(t, kind, r); !bytes.Equal(first, again) {
				t.Errorf("%s, %s: it says one thing, then another", path, kind.Name)
			}
			if bytes.HasPrefix(first, []byte("HTTP/1.1 200 ")) && !bytes.Contains(first, []byte("X-Simulated: true")) {
				t.Errorf("%s, %s: it does not say that it is simulated", path, kind.Name)
			}
		}
	}
}

func answer(t *testing.T, kind AnswerKind, r Request) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	go kind.Answer(theirs, r)
	text := must.Get(io.ReadAll(ours))(t)
	return text
}

// At first, an AttackProxy passes all requests to the honest server. Of its own answers,
// some are right, and the honest server has seen only those requests.
func TestFront(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64
	server := httptest.NewServer(&AttackProxy{Honest: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		seen.Add(1)
		_, _ = io.WriteString(w, `{"right":true}`)
	})})
	t.Cleanup(server.Close)
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	ask := func(path string) bool {
		response, err := client.Post(server.URL+path, "application/json", strings.NewReader(`{}`))
		if err != nil {
			return false
		}
		defer response.Body.Close()
		var answer struct{ Right bool }
		return json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&answer) == nil && answer.Right
	}
	const requests = 60
	for _, path := range []string{Chat, Models} {
		if !ask(path) {
			t.Errorf("%s is answered badly before the share is set", path)
		}
	}
	ask("/hostile?share=1")
	if !ask(Models) {
		t.Error("what is no chat completion is answered badly")
	}
	seen.Store(0)
	right := int64(0)
	for range requests {
		if ask(Chat) {
			right++
		}
	}
	if right == 0 || right > requests/2 || seen.Load() != right {
		t.Errorf("%d of %d answers are right, and the honest server saw %d requests", right, requests, seen.Load())
	}
}

// Mutations replaces every value of a document by every wrong value, and changes
// nothing else.
func TestMutations(t *testing.T) {
	t.Parallel()
	all := Mutations([]byte(`{"a": [1, {"b": "x"}], "c": null}`))
	if want := 6 * len(wrong); len(all) != want {
		t.Fatalf("%d mutations, want %d", len(all), want)
	}
	for _, text := range []string{`{"a": -1, "c": null}`, `{"a": [1, {"b": {}}], "c": null}`, `{"a": [1, {"b": "x"}], "c": true}`} {
		if !slices.Contains(all, text) {
			t.Errorf("%s is missing", text)
		}
	}
	for _, text := range all {
		if !json.Valid([]byte(text)) {
			t.Errorf("%.100s is not JSON", text)
		}
	}
}
