package dir

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"
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
		if _, err := v.PutValue(t.Context(), keyringName, json.RawMessage(doc), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadKeyring(t.Context(), v); err == nil || !strings.Contains(err.Error(), keyringName) {
			t.Errorf("%s: %v", doc, err)
		}
	}
}
