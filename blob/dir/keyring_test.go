package dir

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill/blob"
)

func TestKeyringIsShared(t *testing.T) {
	t.Parallel()
	v := newValues()
	rings := make([]*Keyring, 8)
	var wg sync.WaitGroup
	for i := range rings {
		wg.Go(func() {
			k, err := LoadKeyring(t.Context(), v)
			if err != nil {
				t.Errorf("load: %v", err)
			}
			rings[i] = k
		})
	}
	wg.Wait()
	id, secret := rings[0].Current()
	if id == "" || len(secret) != 32 {
		t.Fatalf("key %q has %d bytes", id, len(secret))
	}
	for _, k := range rings {
		if other, s := k.Current(); other != id || !bytes.Equal(s, secret) {
			t.Error("two processes made a first key each")
		}
	}
}

func TestKeyringRotates(t *testing.T) {
	t.Parallel()
	v, c := newValues(), newClock()
	k := loadKeys(t, v, c)
	first, secret := k.Current()
	for range 2 { // both rotations count seven days from their own moment
		if err := k.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Advance(24 * time.Hour)
	}
	current, _ := k.Current()
	if current == first {
		t.Fatal("the key is the same")
	}
	if got, ok := k.Find(first); !ok || !bytes.Equal(got, secret) {
		t.Error("the first key does not verify any more")
	}
	c.Advance(5 * 24 * time.Hour) // seven days since the first key retired
	if _, ok := k.Find(first); !ok {
		t.Error("the first key does not verify at the end of its seven days")
	}
	c.Advance(time.Second)
	if _, ok := k.Find(first); ok {
		t.Error("the first key verifies after seven days")
	}
	if _, ok := k.Find("unknown"); ok {
		t.Error("an unknown key verifies")
	}
	// The next rotation drops it; another process learns of it all.
	if err := k.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(v.docs[keyringName]), first) {
		t.Error("a dead key is kept")
	}
	other := loadKeys(t, v, c)
	want, _ := k.Current()
	if got, _ := other.Current(); got != want {
		t.Errorf("another process signs with %s, want %s", got, want)
	}
	if err := k.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	want, _ = k.Current()
	if _, ok := other.Find(want); ok {
		t.Error("a key is known that was never loaded")
	}
	if err := other.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := other.Find(want); !ok {
		t.Error("a reload brings no key")
	}
}

func TestKeyringRefusesDamage(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{`{}`, `[{}]`, `[{"id":"x","secret":"AAAA"}]`} {
		v := newValues()
		if _, err := v.PutValue(t.Context(), keyringName, json.RawMessage(doc), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadKeyring(t.Context(), v); err == nil || !strings.Contains(err.Error(), keyringName) {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

// TestRotatedKeyStillServes fetches a URL that an older key signed.
func TestRotatedKeyStillServes(t *testing.T) {
	t.Parallel()
	c := newClock()
	k := loadKeys(t, newValues(), c)
	b := openBucket(t, Config{Root: t.TempDir(), Keys: k, Clock: c.Now, PublicURL: "http://127.0.0.1:1"})
	mustPut(t, b, "k", []byte("x"))
	u := mustSign(t, b, http.MethodGet, "k", blob.MaxExpiry)
	if err := k.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fetch(b, http.MethodGet, u); got.Code != http.StatusOK {
		t.Errorf("after the rotation: %d", got.Code)
	}
	c.Advance(blob.MaxExpiry + 2*time.Second)
	if got := fetch(b, http.MethodGet, u); got.Code != http.StatusForbidden {
		t.Errorf("after seven days: %d", got.Code)
	}
}
