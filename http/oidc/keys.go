package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// fetchTimeout is the timeout of one read of the issuer's keys. API requests wait for
	// the read.
	fetchTimeout = 5 * time.Second
	// fetchEvery is the shortest time between two reads, successful or not. It limits how
	// often tokens with invented key ids can cause a read.
	fetchEvery = 10 * time.Second
	// maxDocument limits an answer of the issuer, in bytes. Real answers have a few
	// thousand bytes.
	maxDocument = 1 << 20
)

// keyCache caches the issuer's published keys.
type keyCache struct {
	cfg Config

	fetching sync.Mutex // locked during a read from the issuer

	mu      sync.Mutex
	set     jose.JSONWebKeySet
	fetched time.Time // time of the last successful read
	asked   time.Time // start of the last read, successful or not
	failed  error     // error of the last read; nil if it succeeded
}

// findKey returns the issuer's key with an id. If id is empty, it returns the issuer's
// only key. It reads the keys from the issuer again if the key is unknown or was read
// longer ago than KeysInterval. If the read fails, an old key stays valid.
func (k *keyCache) findKey(ctx context.Context, id string) (any, error) {
	key, fresh := k.cachedKey(id)
	if key != nil && fresh {
		return key, nil
	}
	if key != nil && !k.fetching.TryLock() {
		return key, nil // another request reads new keys now; use the old key
	} else if key == nil {
		k.fetching.Lock()
	}
	defer k.fetching.Unlock()
	if key, fresh = k.cachedKey(id); key != nil && fresh { // another request has read the keys meanwhile
		return key, nil
	}
	err := k.refreshKeys(ctx)
	if again, _ := k.cachedKey(id); again != nil {
		return again, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the keys of %s: %w", k.cfg.Issuer, err)
	}
	return nil, &RefusedTokenError{Reason: fmt.Sprintf("the token is signed by a key that %s does not publish", k.cfg.Issuer)}
}

// cachedKey returns the cached key with an id, or nil if the cache has no such key. fresh
// is false if the cache is older than KeysInterval.
func (k *keyCache) cachedKey(id string) (key any, fresh bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fresh = k.cfg.Now().Sub(k.fetched) < k.cfg.KeysInterval
	if len(k.set.Keys) == 0 {
		return nil, false
	}
	if id == "" {
		if len(k.set.Keys) == 1 {
			return k.set.Keys[0].Key, fresh
		}
		return nil, false // the issuer has several keys, so the token must name one
	}
	for _, found := range k.set.Key(id) {
		if found.Use == "" || found.Use == "sig" {
			return found.Key, fresh
		}
	}
	return nil, false
}

// refreshKeys reads the keys from the issuer. If the last read was less than fetchEvery
// ago, refreshKeys reads nothing and returns the error of that read. The caller must hold
// the lock k.fetching.
func (k *keyCache) refreshKeys(ctx context.Context) error {
	k.mu.Lock()
	now := k.cfg.Now()
	if since := now.Sub(k.asked); 0 <= since && since < fetchEvery {
		defer k.mu.Unlock()
		return k.failed
	}
	k.asked = now
	k.mu.Unlock()

	// Ignore the cancellation of the client's request: other requests wait for the same
	// keys.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	set, err := k.readKeySet(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failed = err
	if err != nil {
		k.cfg.Logger.Warn("reading the keys of the token issuer failed, keeping the old keys", "issuer", k.cfg.Issuer, "err", err)
		return err
	}
	k.set, k.fetched = set, now
	return nil
}

func (k *keyCache) readKeySet(ctx context.Context) (set jose.JSONWebKeySet, err error) {
	var about struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := k.getJSON(ctx, strings.TrimSuffix(k.cfg.Issuer, "/")+"/.well-known/openid-configuration", &about); err != nil {
		return set, err
	}
	if about.Issuer != k.cfg.Issuer {
		return set, fmt.Errorf("the issuer calls itself %q: set oidc.issuer to exactly this name", about.Issuer)
	}
	if err := k.getJSON(ctx, about.Keys, &set); err != nil {
		return set, err
	}
	public := set.Keys[:0]
	for _, key := range set.Keys {
		if key.IsPublic() && key.Valid() {
			public = append(public, key)
		}
	}
	if set.Keys = public; len(public) == 0 {
		return set, errors.New("the issuer publishes no public key")
	}
	return set, nil
}

func (k *keyCache) getJSON(ctx context.Context, url string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	response, err := k.cfg.Client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers with status %d", url, response.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxDocument)).Decode(into); err != nil {
		return fmt.Errorf("decode %s: %w", url, err)
	}
	return nil
}
