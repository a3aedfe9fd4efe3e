package replay_test

import (
	"errors"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/storetest"
)

// A submission is stored again if any client got its answer.
func TestLostSubmission(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(n *node, v *vault){
		"its answer was lost, and a later read finds it": func(n *node, v *vault) {
			v.keep()
			v.loseAnswers = true
			_, _, err := n.Create(n.t.Context(), storetest.NewRecord("job-1", "a", "row"), nil)
			if !errors.Is(err, store.ErrOutcomeUnknown) {
				n.t.Errorf("a submission without an answer: %v", err)
			}
			v.loseAnswers = false
			_, err = n.Get(n.t.Context(), "job-1")
			n.must(err)
			v.forget()
			n.check()
			n.is(rowmill.StatusPending)
		},
		"its client has sent it to another node too": func(n *node, v *vault) {
			v.keep()
			n.create()
			other := v.node()
			_, err := other.Lookup(n.t.Context(), "a", *idem)
			n.must(err)
			v.forget()
			other.check()
			n.is(rowmill.StatusPending)
			_, err = other.Lookup(n.t.Context(), "a", *idem)
			n.must(err)
		},
		"its key belongs to another job since": func(n *node, v *vault) {
			v.keep()
			n.create()
			v.forget()
			_, _, err := v.Create(n.t.Context(), storetest.NewRecord("job-2", "a", "row"), idem)
			n.must(err)
			n.check()
			n.is(rowmill.StatusPending)
		},
		"its key belongs to another job with other rows": func(n *node, v *vault) {
			v.keep()
			n.create()
			v.forget()
			_, _, err := v.Create(n.t.Context(), storetest.NewRecord("job-2", "a", "row"), &store.Idempotency{Key: idem.Key, BodyHash: "i", TTL: idem.TTL})
			n.must(err)
			n.check()
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
