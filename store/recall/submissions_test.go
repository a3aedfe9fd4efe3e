package recall_test

import (
	"errors"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/storetest"
)

// A submission of which its client was told, in whatever way, is stored again.
func TestForgottenSubmission(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(n *node, v *vault){
		"found where nobody was told that it was stored": func(n *node, v *vault) {
			v.keep()
			v.silent = true
			_, _, err := n.Create(n.t.Context(), storetest.Record("job-1", "a", "row"), nil)
			if !errors.Is(err, store.ErrOutcomeUnknown) {
				n.t.Errorf("a submission without an answer: %v", err)
			}
			v.silent = false
			_, err = n.Get(n.t.Context(), "job-1")
			n.must(err)
			v.forget()
			n.look()
			n.is(rowmill.StatusPending)
		},
		"its client has asked another node too": func(n *node, v *vault) {
			v.keep()
			n.create()
			other := v.node()
			_, err := other.Lookup(n.t.Context(), "a", *idem)
			n.must(err)
			v.forget()
			other.look()
			n.is(rowmill.StatusPending)
			_, err = other.Lookup(n.t.Context(), "a", *idem)
			n.must(err)
		},
		"its key has led to another meanwhile": func(n *node, v *vault) {
			v.keep()
			n.create()
			v.forget()
			_, _, err := v.Create(n.t.Context(), storetest.Record("job-2", "a", "row"), idem)
			n.must(err)
			n.look()
			n.is(rowmill.StatusPending)
		},
		"its key has led to another with other rows": func(n *node, v *vault) {
			v.keep()
			n.create()
			v.forget()
			_, _, err := v.Create(n.t.Context(), storetest.Record("job-2", "a", "row"), &store.Idempotency{Key: idem.Key, BodyHash: "i", TTL: idem.TTL})
			n.must(err)
			n.look()
			n.is(rowmill.StatusPending)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault(t)
			test(v.node(), v)
		})
	}
}
