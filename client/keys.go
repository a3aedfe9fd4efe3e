package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Key is an API key.
type Key struct {
	ID        string     `json:"id"`
	Key       string     `json:"key,omitempty"` // the secret; only set in the answer that created it
	Name      string     `json:"name"`
	Account   string     `json:"account"`
	Role      string     `json:"role"` // admin, user or reader
	Dialect   *string    `json:"dialect"`
	PerMinute *int       `json:"requests_per_minute"`
	Created   time.Time  `json:"created_at"`
	Expires   *time.Time `json:"expires_at"`
	Rotated   *time.Time `json:"rotated_at"`
	LastUsed  *time.Time `json:"last_used_at"`

	Raw json.RawMessage `json:"-"` // the service's JSON
}

// NewKey holds the properties of a new key. The service sets defaults for zero fields.
type NewKey struct {
	Name      string     `json:"name,omitempty"`
	Account   string     `json:"account,omitempty"`
	Role      string     `json:"role,omitempty"`
	Dialect   string     `json:"dialect,omitempty"`
	PerMinute int        `json:"requests_per_minute,omitempty"`
	Expires   *time.Time `json:"expires_at,omitempty"`
}

// Keys holds API keys, oldest first.
type Keys struct {
	Keys []Key `json:"keys"`

	Raw json.RawMessage `json:"-"` // the service's JSON; the keys of all pages in one list
}

// Keys lists all keys of an account, with one request per page. An empty account means
// the key's account, or all accounts for an administrator of the account default. Calls
// about keys need an administrator's key.
func (c *Client) Keys(ctx context.Context, account string) (Keys, error) {
	query := accountQuery(account)
	var all Keys
	var texts []json.RawMessage
	for pages := 1; ; pages++ {
		var raw json.RawMessage
		var page struct {
			Keys []json.RawMessage `json:"keys"`
			Next string            `json:"next_cursor"`
		}
		if err := c.get(ctx, "/v1/keys", query, &raw); err != nil {
			return Keys{}, err
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			return Keys{}, c.badAnswer("keys", err)
		}
		texts = append(texts, page.Keys...)
		if page.Next != "" {
			query.Set("cursor", page.Next)
			continue
		}
		if pages > 1 {
			raw, _ = json.Marshal(map[string][]json.RawMessage{"keys": texts}) // never fails for valid JSON
		}
		if err := json.Unmarshal(raw, &all); err != nil {
			return Keys{}, c.badAnswer("keys", err)
		}
		all.Raw = raw
		return all, nil
	}
}

// CreateKey creates a key. The result holds the only copy of the secret.
func (c *Client) CreateKey(ctx context.Context, wanted NewKey) (Key, error) {
	return c.makeKey(ctx, "/v1/keys", wanted)
}

// RotateKey replaces the secret of a key. The result holds the only copy of the new
// secret.
func (c *Client) RotateKey(ctx context.Context, id string) (Key, error) {
	return c.makeKey(ctx, "/v1/keys/"+url.PathEscape(id)+"/rotate", nil)
}

func (c *Client) makeKey(ctx context.Context, path string, body any) (Key, error) {
	var k Key
	if err := c.exchangeJSON(ctx, http.MethodPost, path, nil, body, &k.Raw); err != nil {
		return Key{}, err
	}
	if err := json.Unmarshal(k.Raw, &k); err != nil {
		return Key{}, c.badAnswer("key", err)
	}
	return k, nil
}

// RevokeKey revokes a key for ever.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	var done json.RawMessage
	err := c.exchangeJSON(ctx, http.MethodDelete, "/v1/keys/"+url.PathEscape(id), nil, nil, &done)
	return err
}

// Settings holds the settings of an account.
type Settings struct {
	Account       string `json:"account"`
	RetentionDays *int   `json:"retention_days"` // nil: keep for ever

	Raw json.RawMessage `json:"-"` // the service's JSON
}

// Settings fetches the settings of an account. An empty account means the key's
// account.
func (c *Client) Settings(ctx context.Context, account string) (Settings, error) {
	return c.settings(ctx, http.MethodGet, account, nil)
}

// SetRetention sets how many days a job's data is kept after the end of the job; nil
// means for ever.
func (c *Client) SetRetention(ctx context.Context, account string, days *int) (Settings, error) {
	return c.settings(ctx, http.MethodPatch, account, map[string]*int{"retention_days": days})
}

// RetentionPreview shows the data that each choice of retention would remove now.
type RetentionPreview struct {
	Account       string            `json:"account"`
	RetentionDays *int              `json:"retention_days"` // in force; nil: keep for ever
	LookedAt      int               `json:"looked_at"`      // number of checked jobs with data, in order of their end
	All           bool              `json:"looked_at_all"`  // all jobs were checked
	Presets       []RetentionEffect `json:"presets"`

	Raw json.RawMessage `json:"-"` // the service's JSON
}

// RetentionEffect shows the data that one choice would remove at once.
type RetentionEffect struct {
	RetentionDays *int       `json:"retention_days"` // nil: keep for ever
	Jobs          int        `json:"jobs"`           // jobs whose data would be removed
	AtLeast       bool       `json:"at_least"`       // Jobs is a lower bound: later jobs were not checked
	ResultBytes   int64      `json:"result_bytes"`   // size of their finished results
	OldestEndedAt *time.Time `json:"oldest_ended_at"`
	NextAt        *time.Time `json:"next_at"` // when the next data would be removed
}

// PreviewRetention fetches the effect of each choice of retention on an account's data.
// An empty account means the key's account.
func (c *Client) PreviewRetention(ctx context.Context, account string) (RetentionPreview, error) {
	var p RetentionPreview
	if err := c.exchangeJSON(ctx, http.MethodGet, "/v1/settings/preview", accountQuery(account), nil, &p.Raw); err != nil {
		return RetentionPreview{}, err
	}
	if err := json.Unmarshal(p.Raw, &p); err != nil {
		return RetentionPreview{}, c.badAnswer("preview of the settings", err)
	}
	return p, nil
}

func (c *Client) settings(ctx context.Context, method, account string, body any) (Settings, error) {
	var s Settings
	if err := c.exchangeJSON(ctx, method, "/v1/settings", accountQuery(account), body, &s.Raw); err != nil {
		return Settings{}, err
	}
	if err := json.Unmarshal(s.Raw, &s); err != nil {
		return Settings{}, c.badAnswer("settings", err)
	}
	return s, nil
}

// exchangeJSON sends a small request with a JSON body, or without one for nil.
func (c *Client) exchangeJSON(ctx context.Context, method, path string, query url.Values, body, into any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
	}
	req, err := c.request(ctx, method, path, query, bytes.NewReader(text))
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	_, err = c.exchange(req, into)
	return err
}

func (c *Client) badAnswer(what string, err error) error {
	return &UnreachableError{Server: c.base, Err: fmt.Errorf("its answer has no %s: %w", what, err)}
}
