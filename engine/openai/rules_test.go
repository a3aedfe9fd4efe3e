package openai

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
)

// costs describes the effect of each class, in the words of docs/engines.md.
var costs = map[engine.ErrorClass]string{
	engine.RowFault:    "the row fails",
	engine.Transient:   "the row is retried, and fails after its last attempt; a 500 is retried twice",
	engine.Busy:        "the row waits, at no cost",
	engine.ServerFault: "the row goes to another server, up to ten times",
	engine.JobFault:    "the job fails",
}

// TestRulesAreDocumented compares the table of docs/engines.md with the rules.
func TestRulesAreDocumented(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| refusal | status | words (any) | result |\n|---|---|---|---|\n")
	for _, r := range rules {
		statuses := make([]string, len(r.status))
		for i, s := range r.status {
			statuses[i] = s.String()
		}
		about := map[settingKind]string{aboutSamplingParam: "the parameter's name", aboutOutputConstraint: "only with an output constraint; "}[r.about]
		follows := costs[r.class]
		if r.tooLong {
			follows = "the prompt is truncated and sent again; if the job forbids that, the job fails"
		}
		if r.overload {
			follows += "; the window shrinks"
		}
		words := make([]string, len(r.words))
		for i, w := range r.words {
			words[i] = "`" + strings.ReplaceAll(w, "`", "") + "`"
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", r.name, strings.Join(statuses, ", "), about+strings.Join(words, " "), follows)
	}
	text := must.Get(os.ReadFile("../../docs/engines.md"))(t)
	if !strings.Contains(string(text), table.String()) {
		t.Errorf("docs/engines.md must contain the current table of rules:\n%s", table.String())
	}
}
