package bolt_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store/bolt"
)

// Sessions continue when the file is put back to an earlier state.
func TestVolatile_SessionsOutliveTheStore(t *testing.T) {
	t.Parallel()
	clock := newClock()
	config := bolt.Config{Path: filepath.Join(t.TempDir(), "records.db"), Clock: clock.Now, Volatile: new(bolt.Volatile)}
	first, err := bolt.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(config.Path)
	if err != nil {
		t.Fatal(err)
	}
	session, err := first.OpenSession(t.Context(), "node", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.PutValue(t.Context(), "name", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config.Path, before, 0o600); err != nil {
		t.Fatal(err)
	}
	second := open(t, config)
	if _, _, err := second.GetValue(t.Context(), "name"); !errors.Is(err, rowmill.ErrNotFound) {
		t.Errorf("the value is there: %v", err)
	}
	if err := second.RenewSession(t.Context(), session); err != nil {
		t.Error(err)
	}
	clock.Advance(time.Hour)
	if err := second.RenewSession(t.Context(), session); !errors.Is(err, rowmill.ErrLeaseLost) {
		t.Errorf("an hour later: %v", err)
	}
}
