package http

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// gatedKeys lists the keys and then waits at a gate before it says so.
type gatedKeys struct {
	store.Store
	listed, open chan struct{}
}

func (g *gatedKeys) ListKeys(ctx context.Context) ([]store.Key, error) {
	keys, err := g.Store.ListKeys(ctx)
	if g.listed != nil {
		g.listed <- struct{}{}
		<-g.open
	}
	return keys, err
}

func TestKeyring_AListReadBeforeARevocationIsNotBelieved(t *testing.T) {
	t.Parallel()
	w := setup(t)
	gated := &gatedKeys{Store: w.store, listed: make(chan struct{}), open: make(chan struct{})}
	ring := newKeyring(gated, nil, 0, time.Now)
	text, record := NewKey("acme", RoleUser, "n", time.Now())
	if err := w.store.PutKey(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	found := make(chan error)
	go func() {
		_, err := ring.find(t.Context(), text)
		found <- err
	}()
	<-gated.listed // with the key in it
	if err := w.store.DeleteKey(t.Context(), record.ID); err != nil {
		t.Fatal(err)
	}
	ring.forget()
	gated.open <- struct{}{}
	select {
	case <-gated.listed: // asked again
		gated.open <- struct{}{}
		if err := <-found; !errors.Is(err, rowmill.ErrNotFound) {
			t.Errorf("a revoked key is found: %v", err)
		}
	case err := <-found:
		t.Errorf("a list from before the revocation is believed: %v", err)
	}
}

// slowKeys lists keys longer than a list is believed.
type slowKeys struct {
	store.Store
	clock *clock
}

func (s slowKeys) ListKeys(ctx context.Context) ([]store.Key, error) {
	s.clock.pass(2 * keysFresh)
	return s.Store.ListKeys(ctx)
}

func TestKeyring_SlowStoreLetsGoodKeysIn(t *testing.T) {
	t.Parallel()
	w := setup(t)
	c := &clock{at: time.Unix(1_700_000_000, 0)}
	ring := newKeyring(slowKeys{w.store, c}, nil, 0, c.now)
	text, record := NewKey("acme", RoleUser, "n", c.at)
	if err := w.store.PutKey(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	if _, err := ring.find(t.Context(), text); err != nil {
		t.Error(err)
	}
	if _, err := ring.find(t.Context(), "rk_00_x"); !errors.Is(err, rowmill.ErrNotFound) {
		t.Errorf("an unknown key: %v", err)
	}
}

func TestKeyring_AClientThatLeavesFailsNoOther(t *testing.T) {
	t.Parallel()
	w := setup(t)
	gated := &gatedKeys{Store: w.store, listed: make(chan struct{}), open: make(chan struct{})}
	ring := newKeyring(gated, nil, 0, time.Now)
	text, record := NewKey("acme", RoleUser, "n", time.Now())
	if err := w.store.PutKey(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	leaving, leave := context.WithCancel(t.Context())
	left, stayed := make(chan error), make(chan error)
	go func() {
		_, err := ring.find(leaving, text)
		left <- err
	}()
	<-gated.listed
	go func() {
		_, err := ring.find(t.Context(), text)
		stayed <- err
	}()
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the client that left got %v", err)
	}
	close(gated.open)
	if err := <-stayed; err != nil {
		t.Errorf("the client that stayed got %v", err)
	}
}
