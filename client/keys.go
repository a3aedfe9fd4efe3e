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
	Key       string     `json:"key"` // the text; empty but in the answer that made it
	Name      string     `json:"name"`
	Account   string     `json:"account"`
	Role      string     `json:"role"` // admin, user or reader
	Dialect   *string    `json:"dialect"`
	PerMinute *int       `json:"requests_per_minute"`
	Created   time.Time  `json:"created_at"`
	Expires   *time.Time `json:"expires_at"`
	Rotated   *time.Time `json:"rotated_at"`
	LastUsed  *time.Time `json:"last_used_at"`

	Raw json.RawMessage `json:"-"` // as the service wrote it
}

// NewKey is what a key shall be. What is zero is left to the service.
type NewKey struct {
	Name      string     `json:"name,omitempty"`
	Account   string     `json:"account,omitempty"`
	Role      string     `json:"role,omitempty"`
	Dialect   string     `json:"dialect,omitempty"`
	PerMinute int        `json:"requests_per_minute,omitempty"`
	Expires   *time.Time `json:"expires_at,omitempty"`
}

// Keys are API keys, oldest first.
type Keys struct {
	Keys []Key `json:"keys"`

	Raw json.RawMessage `json:"-"` // as the service wrote it; of several pages their keys
}

// Keys lists the keys of an account, all of them, however many answers that
// takes; empty is that of the key, or all for an administrator of the account
// default. Like all about keys it needs an administrator's key.
func (c *Client) Keys(ctx context.Context, account string) (Keys, error) {
	query := about(account)
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
			return Keys{}, c.noSuch("keys", err)
		}
		texts = append(texts, page.Keys...)
		if page.Next != "" {
			query.Set("cursor", page.Next)
			continue
		}
		if pages > 1 {
			raw, _ = json.Marshal(map[string][]json.RawMessage{"keys": texts}) // which were parts of JSON
		}
		if err := json.Unmarshal(raw, &all); err != nil {
			return Keys{}, c.noSuch("keys", err)
		}
		all.Raw = raw
		return all, nil
	}
}

// CreateKey makes a key. What it returns holds the only copy of its text.
func (c *Client) CreateKey(ctx context.Context, wanted NewKey) (Key, error) {
	return c.makeKey(ctx, "/v1/keys", wanted)
}

// RotateKey gives a key another text and returns the only copy.
func (c *Client) RotateKey(ctx context.Context, id string) (Key, error) {
	return c.makeKey(ctx, "/v1/keys/"+url.PathEscape(id)+"/rotate", nil)
}

func (c *Client) makeKey(ctx context.Context, path string, body any) (Key, error) {
	var k Key
	if err := c.exchangeJSON(ctx, http.MethodPost, path, nil, body, &k.Raw); err != nil {
		return Key{}, err
	}
	if err := json.Unmarshal(k.Raw, &k); err != nil {
		return Key{}, c.noSuch("key", err)
	}
	return k, nil
}

// RevokeKey ends a key for good.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	var done json.RawMessage
	err := c.exchangeJSON(ctx, http.MethodDelete, "/v1/keys/"+url.PathEscape(id), nil, nil, &done)
	return err
}

// Settings are what an account has chosen.
type Settings struct {
	Account       string `json:"account"`
	RetentionDays *int   `json:"retention_days"` // nil for ever

	Raw json.RawMessage `json:"-"` // as the service wrote it
}

// Settings fetches what an account has chosen; empty is that of the key.
func (c *Client) Settings(ctx context.Context, account string) (Settings, error) {
	return c.settings(ctx, http.MethodGet, account, nil)
}

// SetRetention changes for how many days after its end a job's data is kept;
// nil is for ever.
func (c *Client) SetRetention(ctx context.Context, account string, days *int) (Settings, error) {
	return c.settings(ctx, http.MethodPatch, account, map[string]*int{"retention_days": days})
}

// RetentionPreview is what each choice of retention would remove, had it been made.
type RetentionPreview struct {
	Account  string            `json:"account"`
	LookedAt int               `json:"looked_at"`     // jobs with data, those that ended first
	All      bool              `json:"looked_at_all"` // no later job was left out
	Presets  []RetentionEffect `json:"presets"`

	Raw json.RawMessage `json:"-"` // as the service wrote it
}

// RetentionEffect is what one choice would remove at once.
type RetentionEffect struct {
	RetentionDays *int       `json:"retention_days"` // nil for ever
	Jobs          int        `json:"jobs"`           // whose data would go
	AtLeast       bool       `json:"at_least"`       // more may, which were not looked at
	ResultBytes   int64      `json:"result_bytes"`   // of their finished results
	OldestEndedAt *time.Time `json:"oldest_ended_at"`
	NextAt        *time.Time `json:"next_at"` // when the first that stays would go
}

// PreviewRetention fetches what each choice of retention would remove of an
// account's data; empty is that of the key.
func (c *Client) PreviewRetention(ctx context.Context, account string) (RetentionPreview, error) {
	var p RetentionPreview
	if err := c.exchangeJSON(ctx, http.MethodGet, "/v1/settings/preview", about(account), nil, &p.Raw); err != nil {
		return RetentionPreview{}, err
	}
	if err := json.Unmarshal(p.Raw, &p); err != nil {
		return RetentionPreview{}, c.noSuch("preview of the settings", err)
	}
	return p, nil
}

func (c *Client) settings(ctx context.Context, method, account string, body any) (Settings, error) {
	var s Settings
	if err := c.exchangeJSON(ctx, method, "/v1/settings", about(account), body, &s.Raw); err != nil {
		return Settings{}, err
	}
	if err := json.Unmarshal(s.Raw, &s); err != nil {
		return Settings{}, c.noSuch("settings", err)
	}
	return s, nil
}

// exchangeJSON sends a small request with a body, none for nil.
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

func (c *Client) noSuch(what string, err error) error {
	return &UnreachableError{Server: c.base, Err: fmt.Errorf("its answer holds no %s: %w", what, err)}
}
