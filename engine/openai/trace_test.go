package openai

import (
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
)

// Every request with a span sends its traceparent, and a request without one sends
// none. Both kinds share connections.
func TestTraceparent(t *testing.T) {
	t.Parallel()
	var got []string
	e := serve(t, func(c *Config) { c.APIKey = "secret" }, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("asked as %q", r.Header.Get("Authorization"))
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		got = append(got, r.Header.Values("traceparent")...)
		got = append(got, r.URL.Path)
		answer := good
		if r.URL.Path == "/v1/embeddings" {
			answer = `{"data":[{"index":0,"embedding":[1,2]},{"index":1,"embedding":[3,4]}],"usage":{"prompt_tokens":2}}`
		}
		_, _ = io.WriteString(w, answer)
	})
	const span = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	chat, embed := prepared(t, e, engine.JobParams{Model: generator}), prepared(t, e, engine.JobParams{Model: embedder})
	raw := prepared(t, e, engine.JobParams{Path: "/v1/responses", Model: rowmill.Model{ID: "m", Kind: rowmill.KindRaw}})
	for _, within := range []string{span, ""} {
		must.Get(chat.Generate(t.Context(), engine.Row{Text: []byte("x"), Traceparent: within}))(t)
		must.Get(raw.Generate(t.Context(), engine.Row{Text: []byte("{}"), Traceparent: within}))(t)
		if _, _, err := embed.Embed(t.Context(), []engine.Row{{Text: []byte("a"), Traceparent: within}, {Text: []byte("b")}}); err != nil {
			t.Fatal(err)
		}
	}
	paths := []string{"/v1/chat/completions", "/v1/responses", "/v1/embeddings"}
	if want := slices.Concat([]string{span, paths[0], span, paths[1], span, paths[2]}, paths); !slices.Equal(got, want) {
		t.Errorf("servers were sent %q, want %q", got, want)
	}
}
