package store_test

import (
	"testing"

	"github.com/rowmill/rowmill/store"
)

// FuzzCheckPage decodes any cursor of a client: it must give a position or an error.
func FuzzCheckPage(f *testing.F) {
	f.Add(store.EncodeCursor([]byte("12345678job-1")))
	f.Add("AAAAAAAAAAAAAA")
	f.Add("A")
	f.Fuzz(func(t *testing.T, cursor string) {
		place, err := store.DecodePageCursor(1, cursor, 8)
		if err != nil || cursor == "" {
			return
		}
		if again := store.EncodeCursor(place); again != cursor || len(place) <= 8 {
			t.Errorf("cursor %q is read as %q", cursor, again)
		}
	})
}
