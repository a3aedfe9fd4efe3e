package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

const (
	// MaxEndpoints limits the endpoints of an account. Each endpoint adds a delivery to every
	// job, and all endpoints are in one document that is read when a job ends.
	MaxEndpoints = 10
	// oldSecretTTL is how long bodies are signed with a replaced secret too, next to the new
	// secret: a day to give the new secret to receivers.
	oldSecretTTL = 24 * time.Hour
)

// errTooMany reports that the account already has MaxEndpoints endpoints.
var errTooMany = errors.New("the account has the largest number of webhooks; delete one first")

// An Endpoint is a URL to which the events of an account are sent, with its secrets.
type Endpoint struct {
	ID          string    `json:"id"`
	URL         string    `json:"url"` // may hold credentials: never log it
	Events      []string  `json:"events,omitempty"`
	Description string    `json:"description,omitempty"`
	Created     time.Time `json:"created"`

	Disabled       *time.Time `json:"disabled,omitempty"` // when the endpoint was disabled; it gets nothing after that
	DisabledReason string     `json:"disabled_reason,omitempty"`

	// Secret is the signing key in clear text, because the signature is computed from it.
	Secret   string     `json:"secret"`
	Replaced string     `json:"replaced,omitempty"` // the previous secret
	Until    *time.Time `json:"until,omitempty"`    // until when bodies are signed with Replaced too
	Rotated  *time.Time `json:"rotated,omitempty"`  // when Rotate last replaced the secret
}

// NewEndpoint returns an endpoint with a new id and a new secret.
func NewEndpoint(now time.Time) Endpoint {
	return Endpoint{ID: "we_" + strings.ReplaceAll(uuid.Must(uuid.NewV7()).String(), "-", ""), Created: now.UTC(), Secret: newSecret()}
}

// Rotate gives the endpoint a new secret. For oldSecretTTL, bodies are signed with the
// old secret too.
func (e *Endpoint) Rotate(now time.Time) {
	now = now.UTC()
	until := now.Add(oldSecretTTL)
	e.Replaced, e.Until, e.Rotated = e.Secret, &until, &now
	e.Secret = newSecret()
}

// SecretPrefix returns the beginning of the secret, which the API may show.
func (e *Endpoint) SecretPrefix() string { return e.Secret[:min(len(e.Secret), shownLength)] }

// SetDisabled disables the endpoint for a reason. An empty reason enables it.
func (e *Endpoint) SetDisabled(reason string, now time.Time) {
	e.Disabled, e.DisabledReason = nil, reason
	if reason != "" {
		now = now.UTC()
		e.Disabled = &now
	}
}

// SignBody returns the value of HeaderSignature for a body: one signature per valid
// secret, the newest secret first. id is the message id, at the time of the attempt.
func (e *Endpoint) SignBody(id string, at time.Time, body string) (string, error) {
	secrets := []string{e.Secret}
	if e.Until != nil && at.Before(*e.Until) {
		secrets = append(secrets, e.Replaced)
	}
	return SignAll(secrets, id, at, body)
}

// valueName returns the name of the stored value that holds the endpoints of an account: a
// document {"endpoints": [...]}.
func valueName(account string) string { return "webhooks/" + account }

// Endpoints holds all endpoints of an account, the oldest first.
type Endpoints struct {
	Endpoints []Endpoint `json:"endpoints"`

	version int64 // version of the document; 0: no document yet
}

// LoadEndpoints returns the endpoints of an account.
func LoadEndpoints(ctx context.Context, values store.NamedValues, account string) (all Endpoints, err error) {
	doc, version, err := values.GetValue(ctx, valueName(account))
	if errors.Is(err, rowmill.ErrNotFound) {
		return Endpoints{}, nil
	}
	if err == nil {
		err = json.Unmarshal(doc, &all)
	}
	if err != nil {
		return Endpoints{}, fmt.Errorf("read the webhooks of an account: %w", err)
	}
	all.version = version
	return all, nil
}

// Find returns a pointer to an endpoint, for changes in place.
func (all *Endpoints) Find(id string) (e *Endpoint, found bool) {
	at := slices.IndexFunc(all.Endpoints, func(e Endpoint) bool { return e.ID == id })
	if at < 0 {
		return nil, false
	}
	return &all.Endpoints[at], true
}

// Add adds an endpoint, or returns errTooMany.
func (all *Endpoints) Add(e Endpoint) error {
	if len(all.Endpoints) >= MaxEndpoints {
		return errTooMany
	}
	all.Endpoints = append(all.Endpoints, e)
	return nil
}

// Remove removes an endpoint. Remove does nothing if there is no such endpoint.
func (all *Endpoints) Remove(id string) {
	all.Endpoints = slices.DeleteFunc(all.Endpoints, func(e Endpoint) bool { return e.ID == id })
}

// Save stores the endpoints of an account. It returns rowmill.ErrConflict if another
// request changed the stored endpoints after LoadEndpoints.
func (all *Endpoints) Save(ctx context.Context, values store.NamedValues, account string) error {
	version, err := store.RewriteValue(ctx, values, valueName(account), *all, all.version)
	if err != nil {
		return fmt.Errorf("store the webhooks of an account: %w", err)
	}
	all.version = version
	return nil
}
