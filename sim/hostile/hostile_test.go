package hostile

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"slices"
	"testing"
)

// What a kind writes follows from the request and the seed, says that it is
// simulated where it has a header, and names of kinds are their own.
func TestKinds(t *testing.T) {
	t.Parallel()
	for _, path := range []string{Chat, Stream, Embeddings, Models, Tokenize, Metrics, "/health"} {
		var names []string
		for _, kind := range Kinds(path) {
			if slices.Contains(names, kind.Name) {
				t.Errorf("%s: there are two kinds %q", path, kind.Name)
			}
			names = append(names, kind.Name)
			if kind.Bulky || kind.Waits || len(kind.of) == 0 && path != Chat {
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

func answer(t *testing.T, kind Kind, r Request) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	go kind.Answer(theirs, r)
	text, err := io.ReadAll(ours)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Every value of a document is replaced by every other, and nothing else is.
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
