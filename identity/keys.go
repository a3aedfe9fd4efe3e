package identity

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
	// fetchTimeout bounds one question to the issuer, for which a request waits.
	fetchTimeout = 5 * time.Second
	// fetchEvery is the time between questions, whether they were answered or not: who
	// makes tokens up with keys that do not exist has the issuer asked no more often.
	fetchEvery = 10 * time.Second
	// maxDocument bounds an answer, in bytes; those of issuers have some thousands.
	maxDocument = 1 << 20
)

// keys are the issuer's as it published them a while ago.
type keys struct {
	cfg Config

	fetching sync.Mutex // held by whoever asks the issuer

	mu      sync.Mutex
	set     jose.JSONWebKeySet
	fetched time.Time // when the issuer answered
	asked   time.Time // when it was asked
	failed  error     // what came of that
}

// find returns the key with an id; without an id all keys. Keys that are known are good
// for as long as Config says, and beyond that while the issuer cannot be asked.
func (k *keys) find(ctx context.Context, id string) (any, error) {
	key, fresh := k.known(id)
	if key != nil && fresh {
		return key, nil
	}
	if key != nil && !k.fetching.TryLock() {
		return key, nil // somebody asks
	} else if key == nil {
		k.fetching.Lock()
	}
	defer k.fetching.Unlock()
	if key, fresh = k.known(id); key != nil && fresh { // somebody has asked meanwhile
		return key, nil
	}
	err := k.fetch(ctx)
	if again, _ := k.known(id); again != nil {
		return again, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the keys of %s: %w", k.cfg.Issuer, err)
	}
	return nil, &Refusal{Reason: fmt.Sprintf("the token is signed by a key that %s does not publish", k.cfg.Issuer)}
}

// known returns the key with an id as it was fetched last, nil for none, and whether
// that need not be asked for again.
func (k *keys) known(id string) (key any, fresh bool) {
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
		return nil, false // whose it is cannot be told
	}
	for _, found := range k.set.Key(id) {
		if found.Use == "" || found.Use == "sig" {
			return found.Key, fresh
		}
	}
	return nil, false
}

// fetch asks the issuer, unless it was asked a moment ago; then it returns what came of
// that. fetching is held.
func (k *keys) fetch(ctx context.Context) error {
	k.mu.Lock()
	now := k.cfg.Now()
	if since := now.Sub(k.asked); 0 <= since && since < fetchEvery {
		defer k.mu.Unlock()
		return k.failed
	}
	k.asked = now
	k.mu.Unlock()

	// Its own context: a client that leaves does not fail the others.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	set, err := k.ask(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failed = err
	if err != nil {
		k.cfg.Logger.Warn("the keys of the issuer of tokens cannot be read", "issuer", k.cfg.Issuer, "err", err)
		return err
	}
	k.set, k.fetched = set, now
	return nil
}

func (k *keys) ask(ctx context.Context) (set jose.JSONWebKeySet, err error) {
	var about struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := k.get(ctx, strings.TrimSuffix(k.cfg.Issuer, "/")+"/.well-known/openid-configuration", &about); err != nil {
		return set, err
	}
	if about.Issuer != k.cfg.Issuer {
		return set, fmt.Errorf("it calls itself %q: oidc.issuer must be that, to the letter", about.Issuer)
	}
	if err := k.get(ctx, about.Keys, &set); err != nil {
		return set, err
	}
	public := set.Keys[:0]
	for _, key := range set.Keys {
		if key.IsPublic() && key.Valid() {
			public = append(public, key)
		}
	}
	if set.Keys = public; len(public) == 0 {
		return set, errors.New("it publishes no public key")
	}
	return set, nil
}

func (k *keys) get(ctx context.Context, url string, into any) error {
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
