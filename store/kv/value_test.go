package kv_test

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
)

// TestSeal checks that Unseal returns a sealed value under its own table and key, and
// under no other.
func TestSeal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key, value := rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, "key"), rapid.SliceOf(rapid.Byte()).Draw(t, "value")
		id := rapid.Uint64().Draw(t, "id")
		stored := kv.Seal("table", key, id, value)
		gotID, got, err := kv.Unseal("table", key, stored)
		if err != nil || gotID != id || !bytes.Equal(got, value) {
			t.Fatalf("%x of %d came back as %x of %d, %v", value, id, got, gotID, err)
		}
		at := rapid.IntRange(8, len(stored)-1).Draw(t, "at")
		stored[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, _, err := kv.Unseal("table", key, stored); !errors.Is(err, store.ErrDamaged) {
			t.Fatalf("byte %d was changed: %v", at, err)
		}
	})
	stored := kv.Seal("table", []byte("key"), 1, []byte("value"))
	for _, place := range []struct {
		table kv.Table
		key   string
	}{{"other", "key"}, {"table", "other"}, {"table\x00k", "ey"}} {
		if _, _, err := kv.Unseal(place.table, []byte(place.key), stored); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("in table %q under %q: %v", place.table, place.key, err)
		}
	}
	for cut := range stored {
		if _, _, err := kv.Unseal("table", []byte("key"), stored[:cut]); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("%d bytes of %d: %v", cut, len(stored), err)
		}
	}
}

func TestAfter(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]string{"": "", "a": "b", "a\xff": "b", "\xff\xff": "", "a\x00": "a\x01"} {
		if got := kv.PrefixEnd([]byte(prefix)); string(got) != want || (got == nil) != (want == "") {
			t.Errorf("after %q comes %q, want %q", prefix, got, want)
		}
	}
}
