package function_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/input/function"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store/bolt"
)

// A testLibrary is a Library on a real store, with a clock that advances a second at each
// reading.
type testLibrary struct {
	testing.TB
	function.Library
	store *bolt.Store
	now   time.Time
}

func newTestLibrary(t testing.TB) *testLibrary {
	t.Helper()
	s := &testLibrary{TB: t, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	var err error
	if s.store, err = bolt.Open(t.Context(), bolt.Config{Path: filepath.Join(t.TempDir(), "records.db")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.store.Close() })
	s.Library = function.Library{Values: s.store, Now: func() time.Time {
		s.now = s.now.Add(time.Second)
		return s.now
	}}
	return s
}

func definition(name, prompt string) rowmill.Function {
	system := "be brief"
	return rowmill.Function{
		Name: name, Description: "d", Inputs: inputs("a", "b?"), Prompt: prompt, System: &system, Model: "m",
		Schema: json.RawMessage(`{"type":"object"}`), Sampling: map[string]any{"temperature": json.Number("0.50")},
	}
}

func (s *testLibrary) publish(account, name, prompt string, publish bool) rowmill.Function {
	s.Helper()
	f := must.Get(s.AddRevision(s.Context(), account, definition(name, prompt), publish))(s)
	return f
}

// published returns the prompt of the published revision; empty if there is none.
func (s *testLibrary) published(account, name string) string {
	s.Helper()
	f, err := s.GetPublished(s.Context(), account, name)
	if errors.Is(err, rowmill.ErrNotFound) {
		return ""
	}
	must.Succeed(s, err)
	return f.Prompt
}

func (s *testLibrary) rollback(name string, revision int) error {
	s.Helper()
	_, err := s.Rollback(s.Context(), "acme", name, revision, func(rowmill.Function) error { return nil })
	return err
}

func TestLibrary_PublishAndRollback(t *testing.T) {
	t.Parallel()
	s := newTestLibrary(t)
	first := s.publish("acme", "f", "one {{a}}", true)
	want := definition("f", "one {{a}}")
	want.Revision, want.Created = 1, time.Date(2026, 11, 21, 12, 0, 1, 0, time.UTC)
	want.Published = &want.Created
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	s.publish("acme", "f", "two", true)
	if draft := s.publish("acme", "f", "three", false); draft.Revision != 3 || draft.Published != nil {
		t.Errorf("draft %+v", draft)
	}
	if got := s.published("acme", "f"); got != "two" {
		t.Errorf("published %q behind a draft", got)
	}
	for _, step := range []struct {
		revision int
		want     string
	}{{1, "one {{a}}"}, {3, "three"}, {2, "two"}} {
		if err := s.rollback("f", step.revision); err != nil || s.published("acme", "f") != step.want {
			t.Errorf("rollback to %d publishes %q, %v", step.revision, s.published("acme", "f"), err)
		}
	}
	for _, unknown := range []int{0, 4, -1} {
		if err := s.rollback("f", unknown); !errors.Is(err, rowmill.ErrNotFound) {
			t.Errorf("rollback to %d: %v", unknown, err)
		}
	}

	if err := s.Unpublish(t.Context(), "acme", "f"); err != nil || s.published("acme", "f") != "" {
		t.Errorf("unpublished: %q, %v", s.published("acme", "f"), err)
	}
	if err := s.Unpublish(t.Context(), "acme", "f"); !errors.Is(err, rowmill.ErrNotFound) {
		t.Errorf("unpublished twice: %v", err)
	}
	var prompts []string
	err := s.EachRevision(t.Context(), "acme", "f", func(f rowmill.Function) error {
		if f.Published != nil {
			t.Errorf("revision %d is published", f.Revision)
		}
		prompts = append(prompts, f.Prompt)
		return nil
	})
	if err != nil || !slices.Equal(prompts, []string{"three", "two", "one {{a}}"}) {
		t.Errorf("revisions %q, %v", prompts, err)
	}
	if err := s.rollback("f", 1); err != nil || s.published("acme", "f") != "one {{a}}" {
		t.Errorf("published again: %q, %v", s.published("acme", "f"), err)
	}
}

func TestLibrary_RefusedRollbackChangesNothing(t *testing.T) {
	t.Parallel()
	s := newTestLibrary(t)
	s.publish("acme", "f", "one", true)
	s.publish("acme", "f", "two", true)
	no := errors.New("no")
	if _, err := s.Rollback(t.Context(), "acme", "f", 1, func(f rowmill.Function) error {
		return fmt.Errorf("%s: %w", f.Prompt, no)
	}); !errors.Is(err, no) || err.Error() != "one: no" || s.published("acme", "f") != "two" {
		t.Errorf("%v, published %q", err, s.published("acme", "f"))
	}
}

// Accounts never see each other's Functions, even if an account name is a prefix of
// another or contains separators.
func TestLibrary_AccountsAreSeparate(t *testing.T) {
	t.Parallel()
	s := newTestLibrary(t)
	accounts := []string{"a", "a/b", "a%2Fb", "a/", "ab", "", "..", "a\x00b"}
	for _, account := range accounts {
		s.publish(account, "f", "of "+account, true)
		s.publish(account, "f", "of "+account, true)
	}
	for _, account := range accounts {
		var found []string
		for _, list := range []func(func(rowmill.Function) error) error{
			func(yield func(rowmill.Function) error) error { return s.EachPublished(t.Context(), account, yield) },
			func(yield func(rowmill.Function) error) error {
				return s.EachRevision(t.Context(), account, "f", yield)
			},
		} {
			must.Succeed(t, list(func(f rowmill.Function) error {
				found = append(found, f.Prompt)
				return nil
			}))
		}
		if want := "of " + account; !slices.Equal(found, []string{want, want, want}) {
			t.Errorf("%q sees %q", account, found)
		}
	}
	if got := s.published("b", "f"); got != "" {
		t.Errorf("another account sees %q", got)
	}
	for _, name := range []string{"", "..", "f/g", "b/f"} {
		if got := s.published("a", name); got != "" {
			t.Errorf("%q is %q", name, got)
		}
	}
}

// A failingStore fails its nth write, before or after the write took effect.
type failingStore struct {
	function.DocumentStore
	left  int // writes until the failure
	after bool
}

var errInjected = errors.New("injected")

func (v *failingStore) PutValue(ctx context.Context, name string, doc json.RawMessage, version int64) (int64, error) {
	if v.left--; v.left != 0 {
		return v.DocumentStore.PutValue(ctx, name, doc, version)
	}
	if v.after {
		if _, err := v.DocumentStore.PutValue(ctx, name, doc, version); err != nil {
			return 0, err
		}
	}
	return 0, errInjected
}

// A publisher that crashes at any write leaves the old or the new state, and does not
// block the next publisher.
func TestLibrary_CrashWhilePublishing(t *testing.T) {
	t.Parallel()
	for writes := 1; ; writes++ {
		failed := false
		for _, after := range []bool{false, true} {
			s := newTestLibrary(t)
			s.publish("acme", "f", "one", true)
			s.publish("acme", "f", "two", true)
			broken := s.Library
			broken.Values = &failingStore{DocumentStore: s.store, left: writes, after: after}
			_, err := broken.AddRevision(t.Context(), "acme", definition("f", "three"), true)
			if err != nil && !errors.Is(err, errInjected) {
				t.Fatal(err)
			}
			failed = failed || err != nil
			if got := s.published("acme", "f"); err != nil && got != "two" && got != "three" {
				t.Errorf("write %d: published %q", writes, got)
			}
			next := s.publish("acme", "f", "next", true)
			var prompts []string
			must.Succeed(t, s.EachRevision(t.Context(), "acme", "f", func(f rowmill.Function) error {
				prompts = append(prompts, f.Prompt)
				return nil
			}))
			if len(prompts) != next.Revision || prompts[0] != "next" || !slices.Equal(prompts[len(prompts)-2:], []string{"two", "one"}) {
				t.Errorf("write %d, after %v: revisions %q", writes, after, prompts)
			}
		}
		if !failed {
			if writes < 3 {
				t.Errorf("publishing makes %d writes; the test failed none of them", writes-1)
			}
			return
		}
	}
}

// A barrierStore makes each of two publishers read the head before the other writes it.
type barrierStore struct {
	function.DocumentStore
	meet chan struct{}
}

func (v barrierStore) GetValue(ctx context.Context, name string) (json.RawMessage, int64, error) {
	doc, version, err := v.DocumentStore.GetValue(ctx, name)
	select {
	case v.meet <- struct{}{}:
	case <-v.meet:
	}
	return doc, version, err
}

func TestLibrary_ConcurrentPublishersConflict(t *testing.T) {
	t.Parallel()
	for _, earlier := range []int{0, 1} { // a new Function, and a next revision
		s := newTestLibrary(t)
		for range earlier {
			s.publish("acme", "f", "earlier", true)
		}
		at := s.now
		both := function.Library{Values: barrierStore{s.store, make(chan struct{})}, Now: func() time.Time { return at }}
		type outcome struct {
			f   rowmill.Function
			err error
		}
		outcomes := make(chan outcome, 2)
		for _, prompt := range []string{"left", "right"} {
			go func() {
				f, err := both.AddRevision(t.Context(), "acme", definition("f", prompt), true)
				outcomes <- outcome{f, err}
			}()
		}
		winner, loser := <-outcomes, <-outcomes
		if winner.err != nil {
			winner, loser = loser, winner
		}
		if winner.err != nil || !errors.Is(loser.err, rowmill.ErrConflict) {
			t.Fatalf("%v and %v; want one conflict", winner.err, loser.err)
		}
		if got := s.published("acme", "f"); got != winner.f.Prompt || winner.f.Revision != earlier+1 {
			t.Errorf("published %q, the winner's is %q, revision %d", got, winner.f.Prompt, winner.f.Revision)
		}
		names, err := s.store.ListValues(t.Context(), "function")
		if err != nil || len(names) != 1+earlier {
			t.Errorf("documents %q, %v", names, err)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	good := definition("f", "{{a}}")
	if problems := function.Check(&good); problems != nil {
		t.Fatalf("refused: %v", problems)
	}
	long := strings.Repeat("é", 513)
	for name, test := range map[string]struct {
		change func(*rowmill.Function)
		field  string
	}{
		"NoName":             {func(f *rowmill.Function) { f.Name = "" }, "name"},
		"LongName":           {func(f *rowmill.Function) { f.Name = long }, "name"},
		"Slash":              {func(f *rowmill.Function) { f.Name = "a/b" }, "name"},
		"Dots":               {func(f *rowmill.Function) { f.Name = ".." }, "name"},
		"Letter":             {func(f *rowmill.Function) { f.Name = "é" }, "name"},
		"LongDescription":    {func(f *rowmill.Function) { f.Description = long }, "description"},
		"NoPrompt":           {func(f *rowmill.Function) { f.Prompt = "" }, "prompt"},
		"LongPrompt":         {func(f *rowmill.Function) { f.Prompt = string(make([]byte, function.MaxPromptBytes+1)) }, "prompt"},
		"ManyPlaceholders":   {func(f *rowmill.Function) { f.Prompt = strings.Repeat("{{a}}", 4097) }, "prompt"},
		"UndeclaredField":    {func(f *rowmill.Function) { f.Prompt = "{{x}}" }, "prompt"},
		"EmptyField":         {func(f *rowmill.Function) { f.Inputs[1].Name = "" }, "inputs[1].name"},
		"BlankField":         {func(f *rowmill.Function) { f.Inputs[1].Name = " b" }, "inputs[1].name"},
		"BracesInField":      {func(f *rowmill.Function) { f.Inputs[1].Name = "b}" }, "inputs[1].name"},
		"RepeatedField":      {func(f *rowmill.Function) { f.Inputs[1].Name = "a" }, "inputs[1].name"},
		"LongFieldsText":     {func(f *rowmill.Function) { f.Inputs[0].Description = long }, "inputs[0].description"},
		"TooManyInputs":      {func(f *rowmill.Function) { f.Inputs = make([]rowmill.FunctionInput, 257) }, "inputs"},
		"PromptIsNotUnicode": {func(f *rowmill.Function) { f.Prompt = "\xff" }, "prompt"},
	} {
		f := definition("f", "{{a}}")
		test.change(&f)
		if problems := function.Check(&f); len(problems) != 1 || problems[0].Field != test.field || problems[0].Message == "" {
			t.Errorf("%s: %v; want one about %s", name, problems, test.field)
		}
	}
	for _, name := range []string{"a", "A-b_c.9", "....", "0123456789012345678901234567890123456789012345678901234567890123"} {
		if problem := function.FindNameProblem(name); problem != "" {
			t.Errorf("%q %s", name, problem)
		}
	}
}
