package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/oidc"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/store"
)

const (
	// keyPrefix is the beginning of every API key. Secret scanners recognize keys by it.
	keyPrefix = "rk_"
	// keysFresh is how long the cached list of API keys is used before the next read from
	// the store. A key that another node revoked works for at most this time; the
	// documentation promises 5 s. All requests in this time share one read.
	keysFresh = 2 * time.Second
	// readEvery is the shortest time between two reads of the store that unknown keys cause.
	// A key that is not in the cached list may be new, so its request waits for the next read.
	readEvery = 100 * time.Millisecond
	// keysTimeout is the timeout of each read of the key list from the store. All requests
	// wait for the same read.
	keysTimeout = 10 * time.Second
	// usedEvery is the shortest time between two writes of a key's last use to the store.
	// usedTimeout limits how long a request waits for such a write.
	usedEvery   = time.Minute
	usedTimeout = time.Second
)

// TokenVerifier verifies the tokens of an OpenID Connect issuer.
type TokenVerifier interface {
	// Verify returns the owner of a token. If the issuer refuses the token, the error is
	// an *oidc.RefusedTokenError. Any other error means that the token cannot be verified now.
	Verify(ctx context.Context, token string) (oidc.TokenOwner, error)
	// Name returns the issuer's name, as tokens contain it.
	Name() string
}

// A Keyring finds the owner of an API key or a token. It caches the store's list of
// keys.
type Keyring struct {
	store     store.Store
	admin     atomic.Pointer[[][sha256.Size]byte] // SHA-256 hashes of the administrator keys in the configuration
	issuer    TokenVerifier                       // verifies tokens; nil if tokens are not accepted
	perMinute int                                 // requests per minute of keys that have no limit of their own; 0: no limit
	now       func() time.Time
	lists     singleflight.Group

	mu          sync.Mutex
	keys        map[string]store.APIKey
	listReadAt  time.Time            // when the read that returned keys began
	generation  int                  // number of calls of InvalidateKeys; a read that began before the latest call is dropped
	useStoredAt map[string]time.Time // key id 	 time when the key's use was last stored
}

// NewKeyring returns a keyring for three kinds of keys: the keys in the store, the
// administrator keys in the configuration (admin), and the tokens of an issuer. issuer
// may be nil.
func NewKeyring(s store.Store, admin []string, issuer TokenVerifier, perMinute int, now func() time.Time) *Keyring {
	k := &Keyring{store: s, issuer: issuer, perMinute: perMinute, now: now, useStoredAt: map[string]time.Time{}}
	k.SetAdminKeys(admin)
	return k
}

// SetAdminKeys replaces the administrator keys of the configuration.
func (k *Keyring) SetAdminKeys(admin []string) {
	hashes := make([][sha256.Size]byte, len(admin))
	for i, key := range admin {
		hashes[i] = sha256.Sum256([]byte(key))
	}
	k.admin.Store(&hashes)
}

// HasAdminKeys reports whether the configuration has an administrator key.
func (k *Keyring) HasAdminKeys() bool { return len(*k.admin.Load()) > 0 }

// findPrincipal returns the owner of a key or a token, or rowmill.ErrNotFound if the key is not
// valid. It compares hashes of secrets in constant time.
func (k *Keyring) findPrincipal(ctx context.Context, key string) (caller.Principal, error) {
	hash := sha256.Sum256([]byte(key))
	for _, admin := range *k.admin.Load() {
		if subtle.ConstantTimeCompare(hash[:], admin[:]) == 1 {
			return k.configuredPrincipal(admin), nil
		}
	}
	if k.issuer != nil && oidc.LooksLikeToken(key) {
		return k.verifyToken(ctx, key)
	}
	id, secret, found := splitKey(key)
	if !found {
		return caller.Principal{}, rowmill.ErrNotFound
	}
	kept, err := k.lookupKey(ctx, id)
	if err != nil {
		return caller.Principal{}, err
	}
	hash = sha256.Sum256([]byte(secret))
	if subtle.ConstantTimeCompare(hash[:], kept.Hash) != 1 {
		return caller.Principal{}, rowmill.ErrNotFound
	}
	return k.principalOf(kept)
}

// authenticateKey returns the owner of a key, as findPrincipal does, but its errors can be
// sent to the client. scheme is the word before a key in the header Authorization; a
// refusal shows it in the header WWW-Authenticate.
func (k *Keyring) authenticateKey(ctx context.Context, key, scheme string) (caller.Principal, error) {
	who, err := k.findPrincipal(ctx, key)
	switch {
	case errors.Is(err, rowmill.ErrNotFound):
		err = unauthorized(scheme, "unknown_key", "this API key is unknown, revoked or expired")
	case err != nil && !errors.As(err, new(*request.Error)):
		err = fmt.Errorf("look up the API key: %w", err)
	}
	return who, err
}

// verifyToken returns the owner of a token. If the token is refused, the error is a
// *request.Error.
func (k *Keyring) verifyToken(ctx context.Context, token string) (caller.Principal, error) {
	b, err := k.issuer.Verify(ctx, token)
	var refused *oidc.RefusedTokenError
	switch {
	case errors.As(err, &refused) && refused.ValidToken:
		return caller.Principal{}, request.Errorf(http.StatusForbidden, "no_account", "%s", refused.Reason)
	case errors.As(err, &refused):
		e := request.Errorf(http.StatusUnauthorized, "invalid_token", "%s", refused.Reason)
		e.Header = map[string]string{"WWW-Authenticate": `Bearer error="invalid_token"`}
		return caller.Principal{}, e
	case err != nil:
		return caller.Principal{}, request.RetryLater("issuer_unavailable", "the token cannot be verified now: the keys of its issuer cannot be read; API keys still work")
	}
	who := caller.Principal{KeyID: b.ID, Name: b.Name, Account: b.Account, Role: b.Role, PerMinute: k.perMinute, Token: true, Expires: b.Expires}
	return who, caller.CheckAccountName(who.Account)
}

// findByFingerprint returns the owner of a key that find accepted earlier, by the key's id and
// fingerprint. It returns rowmill.ErrNotFound if the key is no longer valid or has a new
// secret.
func (k *Keyring) findByFingerprint(ctx context.Context, id, fingerprint string) (who caller.Principal, err error) {
	if id == "" {
		for _, admin := range *k.admin.Load() {
			if fingerprintOf(admin[:]) == fingerprint {
				return k.configuredPrincipal(admin), nil
			}
		}
		return caller.Principal{}, rowmill.ErrNotFound
	}
	kept, err := k.lookupKey(ctx, id)
	if err != nil {
		return caller.Principal{}, err
	}
	if who, err = k.principalOf(kept); err == nil && who.Fingerprint != fingerprint {
		err = rowmill.ErrNotFound
	}
	return who, err
}

// configuredPrincipal returns the owner of an administrator key in the configuration. hash is
// the SHA-256 hash of the key.
func (k *Keyring) configuredPrincipal(hash [sha256.Size]byte) caller.Principal {
	return caller.Principal{Fingerprint: fingerprintOf(hash[:]), Name: "configuration", Account: caller.DefaultAccount, Role: caller.RoleAdmin, PerMinute: k.perMinute}
}

// fingerprintOf returns the fingerprint of a secret: the beginning of its hash, long enough
// to notice that the key was rotated.
func fingerprintOf(hash []byte) string { return hex.EncodeToString(hash[:min(8, len(hash))]) }

// principalOf returns the owner of a stored key, or rowmill.ErrNotFound if the key is no
// longer valid.
func (k *Keyring) principalOf(key store.APIKey) (caller.Principal, error) {
	if IsExpired(key, k.now()) {
		return caller.Principal{}, rowmill.ErrNotFound
	}
	if !caller.IsRole(key.Role) { // a newer version of the service wrote this role, and it may allow less than every role that this version knows
		return caller.Principal{}, rowmill.ErrNotFound
	}
	who := caller.Principal{
		KeyID: key.ID, Fingerprint: fingerprintOf(key.Hash), Name: key.Name, Account: key.Account, Role: key.Role, Dialect: key.Dialect, PerMinute: k.perMinute,
	}
	if key.RequestsPerMinute != nil {
		who.PerMinute = *key.RequestsPerMinute
	}
	return who, nil
}

// IsExpired reports whether a key has expired.
func IsExpired(k store.APIKey, now time.Time) bool {
	return k.Expires != nil && !now.Before(*k.Expires)
}

// lookupKey returns a key from the cached list, or rowmill.ErrNotFound. It reads the list
// from the store again unless the list was fresh when lookupKey was called. The age is
// measured at the time of the call, so a slow store does not cause one read after another.
// A list without the key counts only if its read began after the call: another node may
// have just created the key.
func (k *Keyring) lookupKey(ctx context.Context, id string) (store.APIKey, error) {
	came := k.now()
	for {
		key, known, fresh, turn := k.cachedKey(id, came)
		switch {
		case fresh && known:
			return key, nil
		case fresh:
			return store.APIKey{}, rowmill.ErrNotFound
		}
		// The read ignores the cancellation of this client's request, because other clients
		// wait for the same list.
		list := k.lists.DoChan(fmt.Sprint(turn), func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysTimeout)
			defer cancel()
			return nil, k.reloadKeys(ctx, turn)
		})
		select {
		case <-ctx.Done():
			return store.APIKey{}, ctx.Err()
		case listed := <-list:
			if listed.Err != nil {
				return store.APIKey{}, listed.Err
			}
		}
	}
}

// cachedKey looks up a key id in the cached list. fresh is true if the list was new enough
// when the request arrived. generation is the number of calls of InvalidateKeys so far.
func (k *Keyring) cachedKey(id string, arrived time.Time) (key store.APIKey, known, fresh bool, generation int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key, known = k.keys[id]
	age := arrived.Sub(k.listReadAt)
	return key, known, k.keys != nil && -keysTimeout < age && (age <= 0 || known && age < keysFresh), k.generation
}

// reloadKeys reads the list of keys from the store, at least readEvery after the last read. The
// age of the list counts from the start of the read. generation is the number of calls of InvalidateKeys before the read;
// if InvalidateKeys is called during the read, reloadKeys drops the result.
func (k *Keyring) reloadKeys(ctx context.Context, generation int) error {
	k.mu.Lock()
	pause := readEvery - k.now().Sub(k.listReadAt)
	k.mu.Unlock()
	if pause <= readEvery { // else the clock was set back
		time.Sleep(pause)
	}
	asked := k.now()
	list, err := k.store.ListKeys(ctx)
	if err != nil {
		return err
	}
	keys := make(map[string]store.APIKey, len(list))
	for _, key := range list {
		keys[key.ID] = key
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if generation != k.generation {
		return nil
	}
	k.keys, k.listReadAt = keys, asked
	for id := range k.useStoredAt {
		if _, known := keys[id]; !known {
			delete(k.useStoredAt, id)
		}
	}
	return nil
}

// InvalidateKeys drops the cached list of keys. The node calls InvalidateKeys after it has changed a
// key.
func (k *Keyring) InvalidateKeys() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys, k.listReadAt = nil, time.Time{}
	k.generation++
}

// lastUseValueName returns the name of the stored value with the time of a key's last use. The
// time is not part of the key's record: otherwise storing the time could restore a key
// that is being revoked.
func lastUseValueName(keyID string) string { return "key_used/" + keyID }

// recordUse stores the time when a key was used, at most once per usedEvery. It
// finishes the write even if the request's context ends.
func (k *Keyring) recordUse(ctx context.Context, id string) error {
	now := k.now().UTC()
	k.mu.Lock()
	recent := now.Sub(k.useStoredAt[id]) < usedEvery
	if !recent {
		k.useStoredAt[id] = now
	}
	k.mu.Unlock()
	if id == "" || recent {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), usedTimeout)
	defer cancel()
	_, version, err := k.store.GetValue(ctx, lastUseValueName(id))
	if err != nil && !errors.Is(err, rowmill.ErrNotFound) {
		return err
	}
	doc, err := json.Marshal(now)
	if err != nil {
		return err
	}
	_, err = k.store.PutValue(ctx, lastUseValueName(id), doc, version)
	if errors.Is(err, rowmill.ErrConflict) {
		return nil // another node stored a use of the key just now
	}
	return err
}

// LastUsed returns when a key was last used, exact to about a minute; nil if it was never
// used.
func (k *Keyring) LastUsed(ctx context.Context, id string) (*time.Time, error) {
	doc, _, err := k.store.GetValue(ctx, lastUseValueName(id))
	if errors.Is(err, rowmill.ErrNotFound) {
		return nil, nil //nolint:nilnil // nil means never used
	}
	var at time.Time
	if err == nil {
		err = json.Unmarshal(doc, &at)
	}
	if err != nil {
		return nil, fmt.Errorf("read the time of the last use of key %s: %w", id, err)
	}
	return &at, nil
}

// splitKey splits an API key of the form rk_<id>_<secret>. ok is false for any other
// text.
func splitKey(key string) (id, secret string, ok bool) {
	rest, found := strings.CutPrefix(key, keyPrefix)
	if !found {
		return "", "", false
	}
	id, secret, found = strings.Cut(rest, "_")
	return id, secret, found && id != "" && secret != ""
}

// NewKey creates an API key. text is the key for its owner and is stored nowhere:
// rk_<id>_<secret>, with 32 random bytes in base64url as the secret. record is for the
// store and has only the hash of the secret.
func NewKey(account, role, name string, now time.Time) (text string, record store.APIKey) {
	id := make([]byte, keyIDBytes)
	_, _ = rand.Read(id) // never fails, as documented since Go 1.24
	record = store.APIKey{ID: hex.EncodeToString(id), Account: account, Role: role, Name: name, Created: now.UTC()}
	return ReplaceSecret(&record), record
}

// keyIDBytes is the number of bytes in a key's id, which is written in hexadecimal.
const keyIDBytes = 6

// IsKeyID reports whether id looks like the id of a key.
func IsKeyID(id string) bool {
	raw, err := hex.DecodeString(id)
	return err == nil && len(raw) == keyIDBytes && strings.ToLower(id) == id
}

// ReplaceSecret gives a key a new secret and returns the key's text.
func ReplaceSecret(record *store.APIKey) string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	encoded := base64.RawURLEncoding.EncodeToString(secret)
	hash := sha256.Sum256([]byte(encoded))
	record.Hash = hash[:]
	return keyPrefix + record.ID + "_" + encoded
}
