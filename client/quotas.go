package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/rowmill/rowmill"
)

// Quota bounds one job of an account at one priority; 0 is no bound.
type Quota struct {
	Priority   rowmill.Priority `json:"priority"`
	RowQuota   int64            `json:"row_quota"`
	TokenQuota int64            `json:"token_quota"`
}

// OwnQuota is what an account has of its own; nil is as the service is
// configured.
type OwnQuota struct {
	Priority   rowmill.Priority `json:"priority"`
	RowQuota   *int64           `json:"row_quota,omitempty"`
	TokenQuota *int64           `json:"token_quota,omitempty"`
}

// OwnQuotas are all of an account's own.
type OwnQuotas struct {
	Quotas    []OwnQuota `json:"quotas"`
	CostQuota *float64   `json:"cost_quota_usd"` // USD in a calendar month (UTC); nil for no limit
}

// Quotas are what bounds an account, and which of it is its own.
type Quotas struct {
	Account   string    `json:"account"`
	Quotas    []Quota   `json:"quotas"`
	CostQuota *float64  `json:"cost_quota_usd"`
	Own       OwnQuotas `json:"own"`

	Tag string          `json:"-"` // tells this version from others
	Raw json.RawMessage `json:"-"` // as the service wrote it
}

// Quotas fetches what bounds an account; empty is that of the key. It needs an
// administrator's key.
func (c *Client) Quotas(ctx context.Context, account string) (Quotas, error) {
	req, err := c.request(ctx, http.MethodGet, "/v1/quotas", about(account), nil)
	if err != nil {
		return Quotas{}, err
	}
	return c.quotas(req)
}

// Limits fetches the quotas in force for the key's account, by priority. Any key may.
func (c *Client) Limits(ctx context.Context) ([]Quota, error) {
	var answer struct {
		Quotas []Quota `json:"quotas"`
	}
	err := c.get(ctx, "/v1/get-quotas", nil, &answer)
	return answer.Quotas, err
}

// SetQuotas replaces an account's own quotas, if they are still those of the
// tag.
func (c *Client) SetQuotas(ctx context.Context, account string, own OwnQuotas, tag string) (Quotas, error) {
	body, err := json.Marshal(own)
	if err != nil {
		return Quotas{}, fmt.Errorf("encode the quotas: %w", err)
	}
	req, err := c.request(ctx, http.MethodPut, "/v1/quotas", about(account), bytes.NewReader(body))
	if err != nil {
		return Quotas{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("If-Match", tag)
	return c.quotas(req)
}

func (c *Client) quotas(req *http.Request) (Quotas, error) {
	var q Quotas
	header, err := c.exchange(req, &q.Raw)
	if err != nil {
		return Quotas{}, err
	}
	q.Tag = header.Get("ETag")
	if err := json.Unmarshal(q.Raw, &q); err != nil {
		return Quotas{}, &UnreachableError{Server: c.base, Err: fmt.Errorf("its answer holds no quotas: %w", err)}
	}
	return q, nil
}

// Figures are what rows used.
type Figures struct {
	Rows         int64   `json:"rows"`
	FailedRows   int64   `json:"failed_rows"`
	Deduplicated int64   `json:"deduplicated_rows"` // that have the answer of an equal row, and were not run
	InputTokens  int64   `json:"input_tokens"`
	OutputTokens int64   `json:"output_tokens"`
	Cost         float64 `json:"cost_usd"`
}

// Usage is what an account used.
type Usage struct {
	Account string      `json:"account"`
	From    string      `json:"from"` // the first day, such as 2026-01-31
	To      string      `json:"to"`   // the last day, included
	Usage   []UsageLine `json:"usage"`
	Total   Figures     `json:"total"`

	Raw json.RawMessage `json:"-"` // as the service wrote it
}

// A UsageLine has what its usage is grouped by; the rest is empty.
type UsageLine struct {
	Day     string  `json:"day"`
	Model   string  `json:"model"`
	KeyID   *string `json:"key_id"`   // nil for the key of the configuration, and before keys were recorded
	KeyName *string `json:"key_name"` // nil where the key has none or was revoked
	Figures
}

// What usage may be grouped by.
const (
	ByDay   = "day"
	ByModel = "model"
	ByKey   = "key"
)

// A UsageQuery says which usage is asked for. What is empty is left to the service:
// the key's account, the current month, by day and model, of all keys.
type UsageQuery struct {
	Account  string
	From, To string   // days such as 2026-01-31, both included
	GroupBy  []string // some of ByDay, ByModel and ByKey
	KeyID    string
}

// Usage fetches what an account used.
func (c *Client) Usage(ctx context.Context, q UsageQuery) (Usage, error) {
	query := about(q.Account)
	for name, value := range map[string]string{
		"from": q.From, "to": q.To, "group_by": strings.Join(q.GroupBy, ","), "key_id": q.KeyID,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var u Usage
	if err := c.get(ctx, "/v1/usage", query, &u.Raw); err != nil {
		return Usage{}, err
	}
	if err := json.Unmarshal(u.Raw, &u); err != nil {
		return Usage{}, &UnreachableError{Server: c.base, Err: fmt.Errorf("its answer holds no usage: %w", err)}
	}
	return u, nil
}

// about names an account in a query.
func about(account string) url.Values {
	query := url.Values{}
	if account != "" {
		query.Set("account", account)
	}
	return query
}
