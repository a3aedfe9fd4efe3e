package dir

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill"
)

const (
	keyringName = "blob/signing-keys" // name of the document with the keys
	secretSize  = 32                  // bytes, the size of a SHA-256
	keyPurpose  = "rowmill signed URLs 1"
)

// Values stores documents by name. Keyring keeps its keys in one document. A
// store.NamedValues implements it.
type Values interface {
	// GetValue returns a document and its version, or rowmill.ErrNotFound.
	GetValue(ctx context.Context, name string) (json.RawMessage, int64, error)
	// PutValue writes a document if its stored version equals version (0: the document
	// must not exist). Otherwise it returns rowmill.ErrConflict.
	PutValue(ctx context.Context, name string, doc json.RawMessage, version int64) (int64, error)
}

// Keyring is the set of URL-signing keys that all processes with the same store share.
// The keys are stored in a document; Use can replace them by other secrets.
type Keyring struct {
	storedKeys []signingKey                 // keys from the store, at least one
	keys       atomic.Pointer[[]signingKey] // at least one; the first one signs
}

var _ SigningKeys = (*Keyring)(nil)

type signingKey struct {
	ID      string    `json:"id"`
	Secret  []byte    `json:"secret"`
	Created time.Time `json:"created"`
}

// LoadKeyring reads the keys from the store. If there are none, it makes and stores the
// first key.
func LoadKeyring(ctx context.Context, values Values) (*Keyring, error) {
	keys, err := readKeys(ctx, values)
	if errors.Is(err, rowmill.ErrNotFound) {
		keys, err = makeKeys(ctx, values)
	}
	if errors.Is(err, rowmill.ErrConflict) { // another process has just stored the first key
		keys, err = readKeys(ctx, values)
	}
	if err != nil {
		return nil, fmt.Errorf("load URL-signing keys: %w", err)
	}
	k := &Keyring{storedKeys: keys}
	k.keys.Store(&keys)
	return k, nil
}

// Use replaces the keys that sign and verify. The first secret signs. A nil secret
// stands for the keys in the store. If secrets is empty, only the keys in the store are
// used.
func (k *Keyring) Use(secrets [][]byte) error {
	if len(secrets) == 0 {
		secrets = [][]byte{nil}
	}
	var keys []signingKey
	for _, secret := range secrets {
		if secret == nil {
			keys = append(keys, k.storedKeys...)
			continue
		}
		derived, err := hkdf.Key(sha256.New, secret, nil, keyPurpose, secretSize)
		if err != nil {
			return fmt.Errorf("derive a URL-signing key: %w", err)
		}
		sum := sha256.Sum256(derived)
		keys = append(keys, signingKey{ID: hex.EncodeToString(sum[:6]), Secret: derived})
	}
	k.keys.Store(&keys)
	return nil
}

func readKeys(ctx context.Context, values Values) ([]signingKey, error) {
	doc, _, err := values.GetValue(ctx, keyringName)
	if err != nil {
		return nil, err
	}
	var keys []signingKey
	if err := json.Unmarshal(doc, &keys); err != nil {
		return nil, fmt.Errorf("decode %s: %w", keyringName, err)
	}
	damaged := len(keys) == 0
	for _, key := range keys {
		damaged = damaged || key.ID == "" || len(key.Secret) != secretSize
	}
	if damaged {
		return nil, fmt.Errorf("%s contains an invalid key: remove the document, and new keys are made", keyringName)
	}
	return keys, nil
}

func makeKeys(ctx context.Context, values Values) ([]signingKey, error) {
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // never returns an error: a failure ends the program
	keys := []signingKey{{ID: rand.Text()[:12], Secret: secret, Created: time.Now().UTC()}}
	doc, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	_, err = values.PutValue(ctx, keyringName, doc, 0)
	return keys, err
}

// Current returns the ID and the secret of the key that signs.
func (k *Keyring) Current() (string, []byte) {
	first := (*k.keys.Load())[0]
	return first.ID, first.Secret
}

// Find returns the secret of the key with this ID, and false if there is no such key.
func (k *Keyring) Find(id string) ([]byte, bool) {
	for _, key := range *k.keys.Load() {
		if key.ID == id {
			return key.Secret, true
		}
	}
	return nil, false
}
