package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

const events = `go: downloading something
{"Action":"run","Test":"TestReal/vLLM/chat"}
{"Action":"output","Test":"TestReal/vLLM/chat","Output":"    real_test.go:9: version=0.32.0\n"}
{"Action":"pass","Test":"TestReal/vLLM/chat/Generation/a_seed_repeats,_another_differs"}
{"Action":"fail","Test":"TestReal/vLLM/chat/Counting/beyond_the_context"}
{"Action":"fail","Test":"TestReal/vLLM/chat/Counting"}
{"Action":"pass","Test":"TestReal/vLLM/chat/Generation"}
{"Action":"fail","Test":"TestReal/vLLM/chat"}
{"Action":"skip","Test":"TestReal/Ollama/chat/Counting/beyond_the_context"}
{"Action":"pass","Test":"TestReal/Ollama/chat/Gauges"}
{"Action":"fail","Test":"TestReal"}
`

func TestTable(t *testing.T) {
	t.Parallel()
	document := filepath.Join(t.TempDir(), "engines.md")
	must.Succeed(t, os.WriteFile(document, []byte("before\n"+from+"\nold\n"+to+"\nafter\n"), 0o600))
	if err := run([]string{document}, strings.NewReader(events), io.Discard); !errors.Is(err, errFailed) {
		t.Errorf("got %v, want that checks failed", err)
	}
	text := must.Get(os.ReadFile(document))(t)
	const want = "before\n" + from + `
| check | vLLM 0.32.0 | Ollama |
|---|---|---|
| chat: Counting: beyond the context | **no** | – |
| chat: Gauges | – | yes |
| chat: Generation: a seed repeats, another differs | yes | – |
` + to + "\nafter\n"
	if string(text) != want {
		t.Errorf("the document became\n%s", text)
	}
	if err := run([]string{document}, strings.NewReader("{}"), io.Discard); err == nil {
		t.Error("a document was written of nothing")
	}
}

// A run of a single server keeps the results of other servers. It also keeps its own
// untested results, unless the release is another.
func TestTableKeepsWhatWasNotTried(t *testing.T) {
	t.Parallel()
	old := from + `
| check | vLLM 0.32.0 | Ollama 0.17.4 |
|---|---|---|
| chat: Gauges | yes | yes |
| chat: Gone | yes | – |
| chat: service: rows come back in order | yes | **no** |
| embed: Probe | yes | – |
` + to
	tried := func(version string) string {
		return `{"Action":"output","Test":"TestReal/vLLM/chat","Output":"    real_test.go:9: version=` + version + `\n"}
{"Action":"output","Test":"TestReal/vLLM/chat/Gauges","Output":"    enginetest.go:9: the server ignores gauges\n"}
{"Action":"skip","Test":"TestReal/vLLM/chat/Gauges"}
{"Action":"pass","Test":"TestReal/SGLang/chat/Gauges"}
`
	}
	for _, c := range []struct{ version, want string }{
		{"0.32.0", from + `
| check | vLLM 0.32.0 | Ollama 0.17.4 | SGLang |
|---|---|---|---|
| chat: Gauges | ignored | yes | yes |
| chat: service: rows come back in order | yes | **no** | – |
| embed: Probe | yes | – | – |
` + to},
		{"0.33.0", from + `
| check | vLLM 0.33.0 | Ollama 0.17.4 | SGLang |
|---|---|---|---|
| chat: Gauges | ignored | yes | yes |
| chat: service: rows come back in order | – | **no** | – |
` + to},
	} {
		document := filepath.Join(t.TempDir(), "engines.md")
		must.Succeed(t, os.WriteFile(document, []byte(old), 0o600))
		if err := run([]string{document}, strings.NewReader(tried(c.version)), io.Discard); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(document); err != nil || string(text) != c.want {
			t.Errorf("the document became\n%s (%v)", text, err)
		}
	}
}
