package peer

import (
	"encoding/json"
	"testing"
)

// FuzzDecode feeds the server's decoder with anything. What it lets in has our
// version and a kind that may become a label, and survives being sent on.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"protocol":1,"from":"n-1","kind":"adopt_shard","job":"job-1","epoch":7,"body":{"shard":3}}`,
		`{"protocol":2,"kind":"news"}`, `{"protocol":1,"kind":"Ä"}`, `{"protocol":1,"kind":"a","body":null}`,
		`null`, `[]`, `{`, ``, `{"protocol":1e0,"kind":"a"}`, `{"Protocol":1,"KIND":"a","epoch":-9223372036854775808}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, refusal := decode(text)
		if refusal != nil {
			if refusal.Code != CodeInvalid && refusal.Code != CodeProtocol {
				t.Fatalf("refused with %q", refusal.Code)
			}
			return
		}
		if e.Protocol != Protocol || !validKind(e.Kind) {
			t.Fatalf("let in %+v", e)
		}
		again, err := json.Marshal(e)
		if err != nil {
			t.Fatalf("cannot be sent on: %v", err)
		}
		other, refusal := decode(again)
		if refusal != nil {
			t.Fatalf("refused when sent on: %v", refusal)
		}
		if other.From != e.From || other.Kind != e.Kind || other.Job != e.Job || other.Epoch != e.Epoch {
			t.Fatalf("%+v became %+v", e, other)
		}
	})
}
