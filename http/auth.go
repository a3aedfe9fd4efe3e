package http

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
	nethttp "net/http"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// DefaultAccount owns the administrator key of the configuration and the key
// of the first start.
const DefaultAccount = "default"

// The roles of a key.
const (
	RoleAdmin = "admin"
	RoleUser  = "user"
)

const (
	// keyPrefix lets secret scanners find keys.
	keyPrefix = "rk_"
	// keysFresh is how long a list of keys is believed: a revoked key works
	// no longer than that.
	keysFresh = 2 * time.Second
	// keysFreshUnknown is the same for keys that the list lacks, which may be
	// new. It bounds how often bad keys make the store list its keys.
	keysFreshUnknown = 100 * time.Millisecond
	// usedEvery is how often the use of a key is recorded.
	usedEvery = time.Minute
	// maxAccountBytes bounds the name of an account.
	maxAccountBytes = 128
)

// principal is who sent a request.
type principal struct {
	keyID   string // empty for the configured administrator key
	account string
	role    string
}

func caller(c *gin.Context) principal { return c.MustGet(contextPrincipal).(principal) }

// administered returns the account that a request of an administrator is
// about: its own where none is named, any for one of the account "default".
func administered(c *gin.Context, named string) (string, error) {
	who := caller(c)
	switch {
	case who.role != RoleAdmin:
		return "", errorf(nethttp.StatusForbidden, "forbidden", "this needs an administrator's key; yours has the role %s", who.role)
	case named == "" || named == who.account:
		return who.account, nil
	case who.account != DefaultAccount:
		return "", errorf(nethttp.StatusForbidden, "forbidden", "only an administrator of the account %s may act for another account", DefaultAccount)
	case len(named) > maxAccountBytes || !utf8.ValidString(named) || strings.ContainsFunc(named, unicode.IsControl):
		return "", rowmill.Invalid("account", "is %q; the name of an account has up to %d bytes of plain text", shorten(named, 64), maxAccountBytes)
	}
	return named, nil
}

// authenticate lets requests with a known key pass.
func (s *Server) authenticate(c *gin.Context) {
	headers := c.Request.Header.Values("Authorization")
	if len(headers) != 1 {
		s.unauthorized(c, "missing_key", "send your API key once, in the header Authorization: Key <API_KEY>")
		return
	}
	scheme, key, found := strings.Cut(headers[0], " ")
	if !found || !strings.EqualFold(scheme, "Key") || key == "" || strings.TrimSpace(key) != key {
		s.unauthorized(c, "malformed_key", "the Authorization header must be the word Key, one space and your API key")
		return
	}
	who, err := s.keys.find(c.Request.Context(), key)
	if errors.Is(err, rowmill.ErrNotFound) {
		s.unauthorized(c, "unknown_key", "this API key is unknown, revoked or expired")
		return
	}
	if err != nil {
		s.fail(c, fmt.Errorf("look up the API key: %w", err))
		return
	}
	c.Set(contextPrincipal, who)
	c.Next()
	if err := s.keys.used(context.WithoutCancel(c.Request.Context()), who.keyID); err != nil {
		s.Logger.Warn("record the use of a key", keyRequest, requestID(c), keyErr, err)
	}
}

func (s *Server) unauthorized(c *gin.Context, code, message string) {
	e := errorf(nethttp.StatusUnauthorized, code, "%s", message)
	e.header = map[string]string{"WWW-Authenticate": "Key"}
	s.fail(c, e)
}

// A keyring knows the keys of the store as of a moment ago.
type keyring struct {
	store store.Store
	admin [sha256.Size]byte // hash of the configured key
	has   bool              // whether there is one
	now   func() time.Time

	mu    sync.Mutex
	keys  map[string]store.Key
	read  time.Time            // when keys were listed
	wrote map[string]time.Time // when a key's use was recorded
}

func newKeyring(s store.Store, admin string, now func() time.Time) *keyring {
	return &keyring{
		store: s, admin: sha256.Sum256([]byte(admin)), has: admin != "", now: now,
		wrote: map[string]time.Time{},
	}
}

// find returns whose key it is, or rowmill.ErrNotFound. Secrets are compared
// by hash, in constant time.
func (k *keyring) find(ctx context.Context, key string) (principal, error) {
	hash := sha256.Sum256([]byte(key))
	if k.has && subtle.ConstantTimeCompare(hash[:], k.admin[:]) == 1 {
		return principal{account: DefaultAccount, role: RoleAdmin}, nil
	}
	id, secret, found := splitKey(key)
	if !found {
		return principal{}, rowmill.ErrNotFound
	}
	kept, err := k.lookup(ctx, id)
	if err != nil {
		return principal{}, err
	}
	hash = sha256.Sum256([]byte(secret))
	if subtle.ConstantTimeCompare(hash[:], kept.Hash) != 1 {
		return principal{}, rowmill.ErrNotFound
	}
	if kept.Expires != nil && !k.now().Before(*kept.Expires) {
		return principal{}, rowmill.ErrNotFound
	}
	return principal{keyID: kept.ID, account: kept.Account, role: kept.Role}, nil
}

func (k *keyring) lookup(ctx context.Context, id string) (store.Key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key, known := k.keys[id]
	fresh := keysFresh
	if !known {
		fresh = keysFreshUnknown
	}
	if age := k.now().Sub(k.read); k.keys == nil || age >= fresh || age < 0 {
		list, err := k.store.ListKeys(ctx)
		if err != nil {
			return store.Key{}, err
		}
		k.keys, k.read = make(map[string]store.Key, len(list)), k.now()
		for _, key := range list {
			k.keys[key.ID] = key
		}
		key, known = k.keys[id]
	}
	if !known {
		return store.Key{}, rowmill.ErrNotFound
	}
	return key, nil
}

// UsedValue names the value that holds when a key was last used. It is apart
// from the key's record, so that recording a use can never bring back a key
// that is being revoked.
func UsedValue(keyID string) string { return "key_used/" + keyID }

// used records, at most once per usedEvery, that a key was used.
func (k *keyring) used(ctx context.Context, id string) error {
	now := k.now().UTC()
	k.mu.Lock()
	recent := now.Sub(k.wrote[id]) < usedEvery
	if !recent {
		k.wrote[id] = now
	}
	k.mu.Unlock()
	if id == "" || recent {
		return nil
	}
	_, version, err := k.store.GetValue(ctx, UsedValue(id))
	if err != nil && !errors.Is(err, rowmill.ErrNotFound) {
		return err
	}
	doc, err := json.Marshal(now)
	if err != nil {
		return err
	}
	_, err = k.store.PutValue(ctx, UsedValue(id), doc, version)
	if errors.Is(err, rowmill.ErrConflict) {
		return nil // another node recorded a use just now
	}
	return err
}

// splitKey cuts rk_<id>_<secret>.
func splitKey(key string) (id, secret string, ok bool) {
	rest, found := strings.CutPrefix(key, keyPrefix)
	if !found {
		return "", "", false
	}
	id, secret, found = strings.Cut(rest, "_")
	return id, secret, found && id != "" && secret != ""
}

// NewKey makes a key: the text for its owner, which is kept nowhere, and the
// record for the store. The text is rk_<id>_<secret>, the secret 32 random
// bytes in base64url.
func NewKey(account, role, name string, now time.Time) (text string, record store.Key) {
	id, secret := make([]byte, 6), make([]byte, 32)
	_, _ = rand.Read(id) // never fails, as documented since Go 1.24
	_, _ = rand.Read(secret)
	encoded := base64.RawURLEncoding.EncodeToString(secret)
	hash := sha256.Sum256([]byte(encoded))
	record = store.Key{
		ID: hex.EncodeToString(id), Hash: hash[:], Account: account, Role: role, Name: name, Created: now.UTC(),
	}
	return keyPrefix + record.ID + "_" + encoded, record
}

// EnsureFirstKey creates an administrator key of the account "default" in a
// store without keys and returns it, to be shown once. It returns "" where
// the store has keys.
func EnsureFirstKey(ctx context.Context, s store.Keys, now time.Time) (string, error) {
	keys, err := s.ListKeys(ctx)
	if err != nil {
		return "", fmt.Errorf("list keys: %w", err)
	}
	if len(keys) > 0 {
		return "", nil
	}
	text, record := NewKey(DefaultAccount, RoleAdmin, "first start", now)
	if err := s.PutKey(ctx, record); err != nil {
		return "", fmt.Errorf("store the first key: %w", err)
	}
	return text, nil
}
