package storage

import (
	"fmt"
	"testing"

	"github.com/rowmill/rowmill/store"
)

// TestDamageLasts verifies that a node does not read a damaged record again and again,
// and does not treat the store as unavailable.
func TestDamageLasts(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("claim: %w", store.ErrDamaged)
	if !Lasting(err) || Passing(err) {
		t.Errorf("lasting %v, passing %v; want true and false", Lasting(err), Passing(err))
	}
}
