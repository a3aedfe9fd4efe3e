package commit

import "testing"

func take(t *testing.T, h *Helpers, want string) {
	t.Helper()
	if got, ok := h.Take(); !ok || got != want {
		t.Errorf("the next errand is for %q (%t), not %q", got, ok, want)
	}
}

func none(t *testing.T, h *Helpers) {
	t.Helper()
	if got, ok := h.Take(); ok {
		t.Errorf("the next errand is for %q, but no node has room", got)
	}
}

func TestErrandsAreSpreadOverWriters(t *testing.T) {
	t.Parallel()
	var h Helpers
	h.Wrote("b")
	h.Wrote("a")
	h.Wrote("b")
	for _, want := range []string{"a", "b", "a", "b"} {
		take(t, &h, want)
	}
	none(t, &h)
	h.Ended("b")
	take(t, &h, "b")
	if !h.Others() {
		t.Error("no other node helps")
	}
}

// The owner's node runs errands only while there is no other node.
func TestTheOwnersNodeIsTheLastHelper(t *testing.T) {
	t.Parallel()
	var h Helpers
	take(t, &h, "")
	take(t, &h, "")
	none(t, &h)
	if h.Others() {
		t.Error("Others reports a helper, want none")
	}
	h.Wrote("a")
	h.Ended("")
	take(t, &h, "a")
	take(t, &h, "a")
	none(t, &h)
	h.Wrote("")
	take(t, &h, "")
}

func TestNodesThatAreLost(t *testing.T) {
	t.Parallel()
	var h Helpers
	h.Wrote("a")
	h.Wrote("b")
	take(t, &h, "a")
	h.Lost("a")
	h.Ended("a")
	take(t, &h, "b")
	h.Lost("b")
	take(t, &h, "")
	h.Wrote("a")
	take(t, &h, "a")
}
