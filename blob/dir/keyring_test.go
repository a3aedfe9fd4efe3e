package dir

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
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
	if _, ok := rings[0].Find("unknown"); ok {
		t.Error("an unknown key verifies")
	}
	for _, k := range rings {
		if s, ok := k.Find(id); !ok || !bytes.Equal(s, secret) {
			t.Error("a process does not know the other's key")
		}
		if other, s := k.Current(); other != id || !bytes.Equal(s, secret) {
			t.Error("two processes made a first key each")
		}
	}
}

func TestKeyringRefusesDamage(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{`{}`, `[]`, `[{}]`, `[{"id":"x","secret":"AAAA"}]`} {
		v := newValues()
		must.Get(v.PutValue(t.Context(), keyringName, json.RawMessage(doc), 0))(t)
		if _, err := LoadKeyring(t.Context(), v); err == nil || !strings.Contains(err.Error(), keyringName) {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

// Given keys must sign and verify in their order, and be the same in all
// processes. The keys of the store must be used if they are named, or if no key
// is given.
func TestKeyringUse(t *testing.T) {
	t.Parallel()
	v := newValues()
	a, b := loadKeys(t, v), loadKeys(t, v)
	recorded, _ := a.Current()
	one, two := bytes.Repeat([]byte("1"), 32), bytes.Repeat([]byte("2"), 48)
	signs := func(k *Keyring, keys ...[]byte) string {
		t.Helper()
		must.Succeed(t, k.Use(keys))
		id, secret := k.Current()
		if found, ok := k.Find(id); !ok || !bytes.Equal(found, secret) || bytes.Equal(secret, one) {
			t.Errorf("the key that signs does not verify, or is the one that was given")
		}
		return id
	}
	verifies := func(k *Keyring, id string, want bool) {
		t.Helper()
		if _, ok := k.Find(id); ok != want {
			t.Errorf("key %s verifies: %v, want %v", id, ok, want)
		}
	}
	first := signs(a, one, nil)
	verifies(a, recorded, true)
	if again := signs(b, one); again != first || first == recorded {
		t.Errorf("two processes sign with %s and %s", first, again)
	}
	verifies(b, recorded, false)
	second := signs(b, two, one)
	verifies(b, first, true)
	verifies(b, second, true)
	if signs(b, two); second == first {
		t.Error("two keys have one name")
	}
	verifies(b, first, false)
	if signs(b) != recorded {
		t.Error("without keys those of the store are not used")
	}
}
