package function_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

// Fields of a newer version stay in the Function and in the revision that has them,
// after every operation of this version.
func TestLibrary_KeepsFieldsOfNewerVersion(t *testing.T) {
	t.Parallel()
	s := newTestLibrary(t)
	s.publish("acme", "f", "one {{a}}", true)
	const head, copied = "functions/acme/f", "function_revisions/acme/f/1"
	document := func(name string) string {
		s.Helper()
		doc, _, err := s.store.GetValue(s.Context(), name)
		must.Succeed(s, err)
		return string(doc)
	}
	newer := document(head)
	for _, edit := range [][2]string{
		{`"latest":{`, `"owner":"of all","latest":{"language":"new",`},
		{`{"name":"a",`, `{"name":"a","type":"number",`},
		{`"sampling_params":{`, `"sampling_params":{"vendor":{"x":[]},`},
	} {
		if !strings.Contains(newer, edit[0]) {
			t.Fatalf("no %s in %s", edit[0], newer)
		}
		newer = strings.Replace(newer, edit[0], edit[1], 1)
	}
	must.Get(s.store.PutValue(t.Context(), head, json.RawMessage(newer), 1))(t)
	has := func(when, name string, want ...string) {
		s.Helper()
		for _, text := range want {
			if doc := document(name); !strings.Contains(doc, text) {
				s.Errorf("%s: %s lacks %s: %s", when, name, text, doc)
			}
		}
	}
	ofFunction, ofRevision := `"owner":"of all"`, []string{`"language":"new"`, `"type":"number"`, `"vendor":{"x":[]}`}
	must.Succeed(t, s.Unpublish(t.Context(), "acme", "f"))
	has("unpublished", head, append(ofRevision, ofFunction)...)
	must.Succeed(t, s.rollback("f", 1))
	has("published again", head, append(ofRevision, ofFunction)...)
	s.publish("acme", "f", "two {{a}}", true)
	has("replaced", copied, ofRevision...)
	has("replaced", head, ofFunction)
	if doc := document(head); strings.Contains(doc, "language") {
		t.Errorf("the new revision has fields of the old one: %s", doc)
	}
	must.Succeed(t, s.rollback("f", 1))
	has("rolled back", copied, ofRevision...)
	has("rolled back", head, ofFunction)
	must.Succeed(t, s.EachRevision(t.Context(), "acme", "f", func(f rowmill.Function) error {
		if f.Revision == 1 && f.Prompt != "one {{a}}" {
			t.Errorf("revision 1 is %+v", f)
		}
		return nil
	}))
}
