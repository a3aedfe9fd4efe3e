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
	// MaxEndpoints bounds the endpoints of an account: each is a delivery of each
	// job, and all stand in one document that is read when a job ends.
	MaxEndpoints = 10
	// oldSecretLives is for how long a secret that was replaced signs along: a day,
	// in which its receivers get the new one.
	oldSecretLives = 24 * time.Hour
)

// errTooMany refuses a further endpoint of an account that has MaxEndpoints.
var errTooMany = errors.New("the account has as many webhooks as it may have")

// An Endpoint is where an account wants to be told of the ends of its jobs.
type Endpoint struct {
	ID          string    `json:"id"`
	URL         string    `json:"url"` // it may hold what is secret: never log it
	Events      []string  `json:"events,omitempty"`
	Description string    `json:"description,omitempty"`
	Created     time.Time `json:"created"`

	Disabled       *time.Time `json:"disabled,omitempty"` // nothing is sent since
	DisabledReason string     `json:"disabled_reason,omitempty"`

	// Secret signs. It is stored as it is: a hash could not.
	Secret   string     `json:"secret"`
	Replaced string     `json:"replaced,omitempty"` // the secret before
	Until    *time.Time `json:"until,omitempty"`    // when that stops to sign along
	Rotated  *time.Time `json:"rotated,omitempty"`
}

// NewEndpoint returns an endpoint with an id and a secret of its own.
func NewEndpoint(now time.Time) Endpoint {
	return Endpoint{ID: "we_" + strings.ReplaceAll(uuid.Must(uuid.NewV7()).String(), "-", ""), Created: now.UTC(), Secret: newSecret()}
}

// Rotate gives the endpoint another secret; the one before signs along for a
// while.
func (e *Endpoint) Rotate(now time.Time) {
	now = now.UTC()
	until := now.Add(oldSecretLives)
	e.Replaced, e.Until, e.Rotated = e.Secret, &until, &now
	e.Secret = newSecret()
}

// ShownSecret is as much of the secret as may be shown.
func (e *Endpoint) ShownSecret() string { return e.Secret[:min(len(e.Secret), shownPrefix)] }

// SetDisabled disables an endpoint for a reason, or enables it for none.
func (e *Endpoint) SetDisabled(reason string, now time.Time) {
	e.Disabled, e.DisabledReason = nil, reason
	if reason != "" {
		now = now.UTC()
		e.Disabled = &now
	}
}

// Signatures is the header of a body that is sent under an id at a time: a
// signature by each secret that holds, the newest first.
func (e *Endpoint) Signatures(id string, at time.Time, body string) (string, error) {
	secrets := []string{e.Secret}
	if e.Until != nil && at.Before(*e.Until) {
		secrets = append(secrets, e.Replaced)
	}
	return SignAll(secrets, id, at, body)
}

// value names the value that holds the endpoints of an account: a document
// {"endpoints": [...]}.
func value(account string) string { return "webhooks/" + account }

// Endpoints are those of an account, the oldest first.
type Endpoints struct {
	Endpoints []Endpoint `json:"endpoints"`

	version int64 // of the document; 0 for none
}

// Load returns the endpoints of an account.
func Load(ctx context.Context, values store.Values, account string) (all Endpoints, err error) {
	doc, version, err := values.GetValue(ctx, value(account))
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

// Find returns an endpoint, to be changed in place.
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

// Remove removes an endpoint, if it is there.
func (all *Endpoints) Remove(id string) {
	all.Endpoints = slices.DeleteFunc(all.Endpoints, func(e Endpoint) bool { return e.ID == id })
}

// Save stores the endpoints of an account; rowmill.ErrConflict where somebody else
// has since they were loaded.
func (all *Endpoints) Save(ctx context.Context, values store.Values, account string) error {
	version, err := store.RewriteValue(ctx, values, value(account), *all, all.version)
	if err != nil {
		return fmt.Errorf("store the webhooks of an account: %w", err)
	}
	all.version = version
	return nil
}
