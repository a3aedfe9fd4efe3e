package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Webhook is a URL that gets an event when a job of the account ends. Calls about
// webhooks need an administrator's key.
type Webhook struct {
	ID             string     `json:"id"`
	Account        string     `json:"account"`
	URL            string     `json:"url"`
	Events         []string   `json:"events"` // empty: the event type of each job's dialect
	Description    string     `json:"description"`
	Secret         string     `json:"secret,omitempty"` // signs events; only set in the answer that created it
	ShownSecret    string     `json:"secret_prefix"`
	OldSecretUntil *time.Time `json:"old_secret_until"` // until when the old secret signs too
	Disabled       bool       `json:"disabled"`
	DisabledAt     *time.Time `json:"disabled_at"`
	DisabledReason *string    `json:"disabled_reason"`
	Created        time.Time  `json:"created_at"`
	Rotated        *time.Time `json:"rotated_at"`

	Raw json.RawMessage `json:"-"` // the service's JSON
}

// NewWebhook holds the properties of a new webhook. The service sets defaults for zero
// fields.
type NewWebhook struct {
	URL         string   `json:"url"`
	Events      []string `json:"events,omitempty"`
	Description string   `json:"description,omitempty"`
}

// WebhookChange holds changes to a webhook. Nil fields stay unchanged.
type WebhookChange struct {
	URL         *string   `json:"url,omitempty"`
	Events      *[]string `json:"events,omitempty"`
	Description *string   `json:"description,omitempty"`
	Disabled    *bool     `json:"disabled,omitempty"`
}

// Webhooks holds the webhooks of an account, oldest first.
type Webhooks struct {
	Webhooks []Webhook `json:"webhooks"`

	Raw json.RawMessage `json:"-"` // the service's JSON
}

// A WebhookAttempt is one request with an event, and its outcome.
type WebhookAttempt struct {
	At      time.Time `json:"at"`
	Status  *int      `json:"status"` // nil if no answer came
	Error   *string   `json:"error"`
	Answer  string    `json:"answer"` // beginning of the answer's body
	Seconds float64   `json:"duration_seconds"`
}

// WebhookTest is the outcome of a test.
type WebhookTest struct {
	ID        string         `json:"id"`
	Event     string         `json:"event"`
	Delivered bool           `json:"delivered"`
	Attempt   WebhookAttempt `json:"attempt"`

	Raw json.RawMessage `json:"-"` // the service's JSON
}

// Delivery is an event for a webhook, with its attempts.
type Delivery struct {
	ID       string           `json:"id"` // sent as the header webhook-id
	Event    string           `json:"event"`
	Job      *string          `json:"job_id"`
	State    string           `json:"state"` // pending, delivered or failed
	Created  time.Time        `json:"created_at"`
	Next     *time.Time       `json:"next_attempt_at"`
	Attempts []WebhookAttempt `json:"attempts"` // the latest attempts, oldest first
}

// Deliveries is a page of deliveries to a webhook, newest first.
type Deliveries struct {
	Deliveries []Delivery `json:"deliveries"`
	Next       string     `json:"next_cursor"` // empty on the last page

	Raw json.RawMessage `json:"-"` // the service's JSON
}

func webhookPath(id, rest string) string { return "/v1/webhooks/" + url.PathEscape(id) + rest }

// Webhooks lists the webhooks of an account. An empty account means the key's account.
func (c *Client) Webhooks(ctx context.Context, account string) (all Webhooks, err error) {
	if err := c.get(ctx, "/v1/webhooks", accountQuery(account), &all.Raw); err != nil {
		return Webhooks{}, err
	}
	if err := json.Unmarshal(all.Raw, &all); err != nil {
		return Webhooks{}, c.badAnswer("webhooks", err)
	}
	return all, nil
}

// Webhook fetches one webhook.
func (c *Client) Webhook(ctx context.Context, account, id string) (Webhook, error) {
	return c.webhook(ctx, http.MethodGet, webhookPath(id, ""), account, nil)
}

// CreateWebhook creates a webhook. The result holds the only copy of its secret.
func (c *Client) CreateWebhook(ctx context.Context, account string, wanted NewWebhook) (Webhook, error) {
	return c.webhook(ctx, http.MethodPost, "/v1/webhooks", account, wanted)
}

// ChangeWebhook changes a webhook.
func (c *Client) ChangeWebhook(ctx context.Context, account, id string, change WebhookChange) (Webhook, error) {
	return c.webhook(ctx, http.MethodPatch, webhookPath(id, ""), account, change)
}

// RotateWebhook replaces the secret of a webhook. The result holds the only copy of the
// new secret. The old secret still signs for a day.
func (c *Client) RotateWebhook(ctx context.Context, account, id string) (Webhook, error) {
	return c.webhook(ctx, http.MethodPost, webhookPath(id, "/rotate"), account, nil)
}

func (c *Client) webhook(ctx context.Context, method, path, account string, body any) (w Webhook, err error) {
	if err := c.exchangeJSON(ctx, method, path, accountQuery(account), body, &w.Raw); err != nil {
		return Webhook{}, err
	}
	if err := json.Unmarshal(w.Raw, &w); err != nil {
		return Webhook{}, c.badAnswer("webhook", err)
	}
	return w, nil
}

// DeleteWebhook deletes a webhook. Its waiting deliveries are not sent.
func (c *Client) DeleteWebhook(ctx context.Context, account, id string) error {
	var done json.RawMessage
	return c.exchangeJSON(ctx, http.MethodDelete, webhookPath(id, ""), accountQuery(account), nil, &done)
}

// TestWebhook sends a test event to a webhook and waits for the answer. An empty event
// means the first type that the webhook gets.
func (c *Client) TestWebhook(ctx context.Context, account, id, event string) (test WebhookTest, err error) {
	query := accountQuery(account)
	if event != "" {
		query.Set("event", event)
	}
	if err := c.exchangeJSON(ctx, http.MethodPost, webhookPath(id, "/test"), query, nil, &test.Raw); err != nil {
		return WebhookTest{}, err
	}
	if err := json.Unmarshal(test.Raw, &test); err != nil {
		return WebhookTest{}, c.badAnswer("outcome of a test", err)
	}
	return test, nil
}

// Deliveries lists up to limit deliveries to a webhook (0: the service's default),
// after a cursor.
func (c *Client) Deliveries(ctx context.Context, account, id string, limit int, cursor string) (page Deliveries, err error) {
	query := accountQuery(account)
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	if err := c.get(ctx, webhookPath(id, "/deliveries"), query, &page.Raw); err != nil {
		return Deliveries{}, err
	}
	if err := json.Unmarshal(page.Raw, &page); err != nil {
		return Deliveries{}, c.badAnswer("deliveries", err)
	}
	return page, nil
}

// Redeliver sends an event again.
func (c *Client) Redeliver(ctx context.Context, account, id, delivery string) (d Delivery, err error) {
	err = c.exchangeJSON(ctx, http.MethodPost, webhookPath(id, "/deliveries/"+url.PathEscape(delivery)+"/redeliver"), accountQuery(account), nil, &d)
	return d, err
}
