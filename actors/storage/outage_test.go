package storage

import (
	"fmt"
	"testing"

	"github.com/rowmill/rowmill/store"
)

// TestDamageLasts holds that a node does not ask again and again for a record that is damaged,
// and does not take the store for unavailable.
func TestDamageLasts(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("claim: %w", store.ErrDamaged)
	if !Lasting(err) || Passing(err) {
		t.Errorf("lasting %v, passing %v; want true and false", Lasting(err), Passing(err))
	}
}
