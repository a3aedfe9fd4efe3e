package access

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

const (
	// sealFresh is the shortest time between two reads of the store's seal key. A cookie
	// that cannot be decrypted causes a read.
	sealFresh = time.Second
	// sealValue is the name of the stored value with the seal key.
	sealValue = "console/session_seal"
	// sealPurpose is the additional data of each encryption of a session. So a text that was
	// encrypted with the same key for another purpose is never accepted as a session.
	sealPurpose = "rowmill session 1"
)

// A SessionSealer encrypts the contents of session cookies, so that only nodes can read or
// create them. It encrypts with the first configured secret and decrypts with all. A
// nil secret means the seal key in the store, which is created when a node first needs
// it. If no secrets are configured, only the seal key in the store is used.
type SessionSealer struct {
	values store.NamedValues
	now    func() time.Time
	given  atomic.Pointer[[]cipher.AEAD] // ciphers of the configured secrets; a nil element means the seal key in the store

	mu   sync.Mutex
	aead cipher.AEAD // cipher of the seal key in the store; nil before the first read
	read time.Time   // when the seal key was last read
}

// sealDocument is the JSON content of the stored value sealValue.
type sealDocument struct {
	Key []byte `json:"key"`
}

func newSessionSealer(values store.NamedValues, now func() time.Time) *SessionSealer {
	s := &SessionSealer{values: values, now: now}
	s.given.Store(&[]cipher.AEAD{nil})
	return s
}

// SetSecrets replaces the configured secrets. A nil secret means the seal key in the store.
func (s *SessionSealer) SetSecrets(secrets [][]byte) error {
	if len(secrets) == 0 {
		secrets = [][]byte{nil}
	}
	given := make([]cipher.AEAD, len(secrets))
	for i, secret := range secrets {
		if secret == nil {
			continue
		}
		key, err := hkdf.Key(sha256.New, secret, nil, sealPurpose, 32) // AES-256
		if err == nil {
			given[i], err = newAEAD(key)
		}
		if err != nil {
			return fmt.Errorf("derive the encryption key of browser sessions: %w", err)
		}
	}
	s.given.Store(&given)
	return nil
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// encrypt returns a cookie text that has t in encrypted form.
func (s *SessionSealer) encrypt(ctx context.Context, t sessionClaims) (string, error) {
	aead := (*s.given.Load())[0]
	if aead == nil {
		var err error
		if aead, err = s.storedCipher(ctx, false); err != nil {
			return "", err
		}
	}
	plain, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, plain, []byte(sealPurpose))), nil
}

// decrypt returns the sessionClaims in a cookie, or rowmill.ErrNotFound if no key decrypts it.
func (s *SessionSealer) decrypt(ctx context.Context, cookie string) (t sessionClaims, err error) {
	sealed, err := base64.RawURLEncoding.DecodeString(cookie)
	if err != nil {
		return t, rowmill.ErrNotFound
	}
	opens := func(aead cipher.AEAD) bool {
		plain, err := aead.Open(nil, nil, sealed, []byte(sealPurpose))
		return err == nil && json.Unmarshal(plain, &t) == nil
	}
	given := *s.given.Load()
	for _, aead := range given {
		if aead != nil && opens(aead) {
			return t, nil
		}
	}
	if !slices.Contains(given, nil) {
		return t, rowmill.ErrNotFound
	}
	for _, again := range []bool{false, true} {
		aead, err := s.storedCipher(ctx, again)
		if err != nil {
			return t, err
		}
		if opens(aead) {
			return t, nil
		}
	}
	return t, rowmill.ErrNotFound
}

// storedCipher returns the cipher of the seal key in the store. If reload is true, it reads
// the key again, at most once per sealFresh, because the store may have another key
// after a restore from a backup.
func (s *SessionSealer) storedCipher(ctx context.Context, reload bool) (cipher.AEAD, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aead != nil && (!reload || s.now().Sub(s.read) < sealFresh) {
		return s.aead, nil
	}
	doc, err := s.loadSealKey(ctx)
	if err != nil {
		return nil, err
	}
	aead, err := newAEAD(doc.Key)
	if err != nil {
		return nil, fmt.Errorf("make a cipher from the key in the stored value %s: %w", sealValue, err)
	}
	s.aead, s.read = aead, s.now()
	return aead, nil
}

// loadSealKey reads the seal key from the store. If the store has no seal key, loadSealKey
// creates and stores a new key.
func (s *SessionSealer) loadSealKey(ctx context.Context) (doc sealDocument, err error) {
	text, _, err := s.values.GetValue(ctx, sealValue)
	if errors.Is(err, rowmill.ErrNotFound) {
		key := make([]byte, 32) // AES-256
		_, _ = rand.Read(key)   // never fails, as documented since Go 1.24
		if text, err = json.Marshal(sealDocument{key}); err != nil {
			return doc, err
		}
		if _, err = s.values.PutValue(ctx, sealValue, text, 0); errors.Is(err, rowmill.ErrConflict) { // another node stored a key first
			text, _, err = s.values.GetValue(ctx, sealValue)
		}
	}
	if err == nil {
		err = json.Unmarshal(text, &doc)
	}
	if err != nil {
		return doc, fmt.Errorf("read the encryption key of browser sessions: %w", err)
	}
	return doc, nil
}
