package dir

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
)

const (
	keyringName = "blob/signing-keys" // document that holds the keys
	secretSize  = 32                  // bytes, as many as SHA-256 gives
	// keepRetired is how long a key still verifies after it was replaced: as
	// long as the last URL it signed may live.
	keepRetired = blob.MaxExpiry
	// maxAttempts is how often a change is tried again when another process
	// changed the keys meanwhile.
	maxAttempts = 20
)

// Values is where a keyring is kept; store.Values has the methods.
type Values interface {
	// GetValue returns a document and its version, or rowmill.ErrNotFound.
	GetValue(ctx context.Context, name string) (json.RawMessage, int64, error)
	// PutValue writes a document if its version still is version (0: it must
	// not exist), or returns rowmill.ErrConflict.
	PutValue(ctx context.Context, name string, doc json.RawMessage, version int64) (int64, error)
}

// Keyring is a set of signing keys that all processes on one store share.
type Keyring struct {
	values Values
	clock  func() time.Time

	mu   sync.RWMutex
	keys []signingKey // newest first; the first one signs
}

var _ Keys = (*Keyring)(nil)

type signingKey struct {
	ID      string     `json:"id"`
	Secret  []byte     `json:"secret"`
	Created time.Time  `json:"created"`
	Retired *time.Time `json:"retired,omitempty"` // when another key took over
}

// LoadKeyring reads the keys, and makes the first one where there is none.
func LoadKeyring(ctx context.Context, values Values) (*Keyring, error) {
	k := &Keyring{values: values, clock: time.Now}
	if err := k.Reload(ctx); err != nil {
		return nil, err
	}
	return k, nil
}

// Reload reads the keys again, to learn of another process's rotation.
func (k *Keyring) Reload(ctx context.Context) error {
	err := k.change(ctx, func(keys []signingKey) []signingKey {
		if len(keys) > 0 {
			return nil
		}
		return []signingKey{k.newKey()}
	})
	if err != nil {
		return fmt.Errorf("load URL-signing keys: %w", err)
	}
	return nil
}

// Rotate makes a new key that signs from now on. Older ones verify for seven
// days more.
func (k *Keyring) Rotate(ctx context.Context) error {
	err := k.change(ctx, func(keys []signingKey) []signingKey {
		now := k.clock().UTC()
		keys = slices.DeleteFunc(keys, func(key signingKey) bool { return key.dead(now) })
		if len(keys) > 0 && keys[0].Retired == nil {
			keys[0].Retired = &now
		}
		return slices.Insert(keys, 0, k.newKey())
	})
	if err != nil {
		return fmt.Errorf("rotate URL-signing keys: %w", err)
	}
	return nil
}

// change reads the keys, writes what edit makes of them (nil: nothing), and
// takes the outcome for its own.
func (k *Keyring) change(ctx context.Context, edit func([]signingKey) []signingKey) error {
	var err error
	for range maxAttempts {
		var keys, edited []signingKey
		var version int64
		if keys, version, err = k.read(ctx); err != nil {
			return err
		}
		if edited = edit(slices.Clone(keys)); edited == nil {
			k.take(keys)
			return nil
		}
		var doc []byte
		if doc, err = json.Marshal(edited); err != nil {
			return err
		}
		if _, err = k.values.PutValue(ctx, keyringName, doc, version); err == nil {
			k.take(edited)
			return nil
		}
		if !errors.Is(err, rowmill.ErrConflict) {
			return err
		}
	}
	return err
}

func (k *Keyring) take(keys []signingKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys = keys
}

// read returns the keys that are stored; none where there is no document.
func (k *Keyring) read(ctx context.Context) ([]signingKey, int64, error) {
	doc, version, err := k.values.GetValue(ctx, keyringName)
	if errors.Is(err, rowmill.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	var keys []signingKey
	if err := json.Unmarshal(doc, &keys); err != nil {
		return nil, 0, fmt.Errorf("decode %s: %w", keyringName, err)
	}
	for _, key := range keys {
		if key.ID == "" || len(key.Secret) != secretSize {
			return nil, 0, fmt.Errorf("%s holds a key that is none: remove the document to have new keys made", keyringName)
		}
	}
	return keys, version, nil
}

func (k *Keyring) newKey() signingKey {
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // never fails: it would end the program
	return signingKey{ID: rand.Text()[:12], Secret: secret, Created: k.clock().UTC()}
}

// dead reports whether a key verifies nothing any more.
func (s signingKey) dead(now time.Time) bool {
	return s.Retired != nil && now.After(s.Retired.Add(keepRetired))
}

// Current returns the key that signs.
func (k *Keyring) Current() (string, []byte) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.keys[0].ID, k.keys[0].Secret
}

// Find returns a key that may still verify.
func (k *Keyring) Find(id string) ([]byte, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, key := range k.keys {
		if key.ID == id && !key.dead(k.clock()) {
			return key.Secret, true
		}
	}
	return nil, false
}
