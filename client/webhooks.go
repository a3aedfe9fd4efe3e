package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Webhook is an address that is told of the ends of an account's jobs. All about
// webhooks needs an administrator's key.
type Webhook struct {
	ID             string     `json:"id"`
	Account        string     `json:"account"`
	URL            string     `json:"url"`
	Events         []string   `json:"events"` // none for that of each job's own dialect
	Description    string     `json:"description"`
	Secret         string     `json:"secret"` // by which events are signed; empty but in the answer that made it
	ShownSecret    string     `json:"secret_prefix"`
	OldSecretUntil *time.Time `json:"old_secret_until"` // the secret before signs along until then
	Disabled       bool       `json:"disabled"`
	DisabledAt     *time.Time `json:"disabled_at"`
	DisabledReason *string    `json:"disabled_reason"`
	Created        time.Time  `json:"created_at"`
	Rotated        *time.Time `json:"rotated_at"`

	Raw json.RawMessage `json:"-"` // as the service wrote it
}

// NewWebhook is what a webhook shall be. What is zero is left to the service.
type NewWebhook struct {
	URL         string   `json:"url"`
	Events      []string `json:"events,omitempty"`
	Description string   `json:"description,omitempty"`
}

// WebhookChange is what shall change of a webhook; what is nil stays.
type WebhookChange struct {
	URL         *string   `json:"url,omitempty"`
	Events      *[]string `json:"events,omitempty"`
	Description *string   `json:"description,omitempty"`
	Disabled    *bool     `json:"disabled,omitempty"`
}

// Webhooks are those of an account, oldest first.
type Webhooks struct {
	Webhooks []Webhook `json:"webhooks"`

	Raw json.RawMessage `json:"-"` // as the service wrote it
}

// A WebhookAttempt is one time that an event was sent.
type WebhookAttempt struct {
	At      time.Time `json:"at"`
	Status  *int      `json:"status"` // nil where no answer came
	Error   *string   `json:"error"`
	Answer  string    `json:"answer"` // how its body begins
	Seconds float64   `json:"duration_seconds"`
}

// WebhookTest is what came back of a test.
type WebhookTest struct {
	ID        string         `json:"id"`
	Event     string         `json:"event"`
	Delivered bool           `json:"delivered"`
	Attempt   WebhookAttempt `json:"attempt"`

	Raw json.RawMessage `json:"-"` // as the service wrote it
}

// Delivery is an event on its way to a webhook, and what became of it.
type Delivery struct {
	ID       string           `json:"id"` // the webhook-id
	Event    string           `json:"event"`
	Job      *string          `json:"job_id"`
	State    string           `json:"state"` // pending, delivered or failed
	Created  time.Time        `json:"created_at"`
	Next     *time.Time       `json:"next_attempt_at"`
	Attempts []WebhookAttempt `json:"attempts"` // the last ones, oldest first
}

// Deliveries are a page of those to a webhook, newest first.
type Deliveries struct {
	Deliveries []Delivery `json:"deliveries"`
	Next       string     `json:"next_cursor"` // empty when nothing is left

	Raw json.RawMessage `json:"-"` // as the service wrote it
}

func webhookPath(id, rest string) string { return "/v1/webhooks/" + url.PathEscape(id) + rest }

// Webhooks lists the webhooks of an account; empty is that of the key.
func (c *Client) Webhooks(ctx context.Context, account string) (all Webhooks, err error) {
	if err := c.get(ctx, "/v1/webhooks", about(account), &all.Raw); err != nil {
		return Webhooks{}, err
	}
	if err := json.Unmarshal(all.Raw, &all); err != nil {
		return Webhooks{}, c.noSuch("webhooks", err)
	}
	return all, nil
}

// Webhook fetches one of them.
func (c *Client) Webhook(ctx context.Context, account, id string) (Webhook, error) {
	return c.webhook(ctx, http.MethodGet, webhookPath(id, ""), account, nil)
}

// CreateWebhook makes a webhook. What it returns holds the only copy of its secret.
func (c *Client) CreateWebhook(ctx context.Context, account string, wanted NewWebhook) (Webhook, error) {
	return c.webhook(ctx, http.MethodPost, "/v1/webhooks", account, wanted)
}

// ChangeWebhook changes a webhook.
func (c *Client) ChangeWebhook(ctx context.Context, account, id string, change WebhookChange) (Webhook, error) {
	return c.webhook(ctx, http.MethodPatch, webhookPath(id, ""), account, change)
}

// RotateWebhook gives a webhook another secret and returns the only copy. The one
// before signs along for a day.
func (c *Client) RotateWebhook(ctx context.Context, account, id string) (Webhook, error) {
	return c.webhook(ctx, http.MethodPost, webhookPath(id, "/rotate"), account, nil)
}

func (c *Client) webhook(ctx context.Context, method, path, account string, body any) (w Webhook, err error) {
	if err := c.exchangeJSON(ctx, method, path, about(account), body, &w.Raw); err != nil {
		return Webhook{}, err
	}
	if err := json.Unmarshal(w.Raw, &w); err != nil {
		return Webhook{}, c.noSuch("webhook", err)
	}
	return w, nil
}

// DeleteWebhook deletes a webhook. What waits to be sent to it is not.
func (c *Client) DeleteWebhook(ctx context.Context, account, id string) error {
	var done json.RawMessage
	return c.exchangeJSON(ctx, http.MethodDelete, webhookPath(id, ""), about(account), nil, &done)
}

// TestWebhook has a webhook sent an event that tells of no job, and waits for what
// comes back. An empty event is the first that the webhook gets.
func (c *Client) TestWebhook(ctx context.Context, account, id, event string) (test WebhookTest, err error) {
	query := about(account)
	if event != "" {
		query.Set("event", event)
	}
	if err := c.exchangeJSON(ctx, http.MethodPost, webhookPath(id, "/test"), query, nil, &test.Raw); err != nil {
		return WebhookTest{}, err
	}
	if err := json.Unmarshal(test.Raw, &test); err != nil {
		return WebhookTest{}, c.noSuch("outcome of a test", err)
	}
	return test, nil
}

// Deliveries lists what was sent to a webhook, up to limit of them (0: as many as
// the service answers), behind a cursor.
func (c *Client) Deliveries(ctx context.Context, account, id string, limit int, cursor string) (page Deliveries, err error) {
	query := about(account)
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
		return Deliveries{}, c.noSuch("deliveries", err)
	}
	return page, nil
}

// Redeliver has an event sent once more.
func (c *Client) Redeliver(ctx context.Context, account, id, delivery string) (d Delivery, err error) {
	err = c.exchangeJSON(ctx, http.MethodPost, webhookPath(id, "/deliveries/"+url.PathEscape(delivery)+"/redeliver"), about(account), nil, &d)
	return d, err
}
