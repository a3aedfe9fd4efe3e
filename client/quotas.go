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

// Quota limits one job of an account at one priority; 0 means no limit.
type Quota struct {
	Priority   rowmill.Priority `json:"priority"`
	RowQuota   int64            `json:"row_quota"`
	TokenQuota int64            `json:"token_quota"`
}

// OwnQuota is a quota that is set for this account. Nil fields use the configuration of
// the service.
type OwnQuota struct {
	Priority   rowmill.Priority `json:"priority"`
	RowQuota   *int64           `json:"row_quota,omitempty"`
	TokenQuota *int64           `json:"token_quota,omitempty"`
}

// OwnQuotas holds all quotas that are set for an account.
type OwnQuotas struct {
	Quotas    []OwnQuota `json:"quotas"`
	CostQuota *float64   `json:"cost_quota_usd"` // USD per calendar month (UTC); nil: no limit
}

// Quotas holds the quotas in force for an account, and its own ones among them.
type Quotas struct {
	Account   string    `json:"account"`
	Quotas    []Quota   `json:"quotas"`
	CostQuota *float64  `json:"cost_quota_usd"`
	Own       OwnQuotas `json:"own"`

	Tag string          `json:"-"` // version for SetQuotas
	Raw json.RawMessage `json:"-"` // the service's JSON
}

// Quotas fetches the quotas of an account. An empty account means the key's account. It
// needs an administrator's key.
func (c *Client) Quotas(ctx context.Context, account string) (Quotas, error) {
	req, err := c.request(ctx, http.MethodGet, "/v1/quotas", accountQuery(account), nil)
	if err != nil {
		return Quotas{}, err
	}
	return c.quotas(req)
}

// Limits fetches the quotas in force for the key's account, by priority, with any key.
func (c *Client) Limits(ctx context.Context) ([]Quota, error) {
	var answer struct {
		Quotas []Quota `json:"quotas"`
	}
	err := c.get(ctx, "/v1/get-quotas", nil, &answer)
	return answer.Quotas, err
}

// SetQuotas replaces an account's own quotas if their version still has the tag.
func (c *Client) SetQuotas(ctx context.Context, account string, own OwnQuotas, tag string) (Quotas, error) {
	body, err := json.Marshal(own)
	if err != nil {
		return Quotas{}, fmt.Errorf("encode the quotas: %w", err)
	}
	req, err := c.request(ctx, http.MethodPut, "/v1/quotas", accountQuery(account), bytes.NewReader(body))
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
		return Quotas{}, &UnreachableError{Server: c.base, Err: fmt.Errorf("its answer has no quotas: %w", err)}
	}
	return q, nil
}

// Figures holds the usage of a number of rows.
type Figures struct {
	Rows         int64   `json:"rows"`
	FailedRows   int64   `json:"failed_rows"`
	Deduplicated int64   `json:"deduplicated_rows"` // rows with the answer of an equal row, which were not run
	InputTokens  int64   `json:"input_tokens"`
	OutputTokens int64   `json:"output_tokens"`
	Cost         float64 `json:"cost_usd"`
}

// Usage is the usage of an account.
type Usage struct {
	Account string      `json:"account"`
	From    string      `json:"from"` // the first day, such as 2026-01-31
	To      string      `json:"to"`   // the last day, included
	Usage   []UsageLine `json:"usage"`
	Total   Figures     `json:"total"`

	Raw json.RawMessage `json:"-"` // the service's JSON
}

// A UsageLine is the usage of one group. Fields that are not grouped by are empty.
type UsageLine struct {
	Day     string  `json:"day"`
	Model   string  `json:"model"`
	KeyID   *string `json:"key_id"`   // nil for the configuration's key and in older records
	KeyName *string `json:"key_name"` // nil if the key has no name or is revoked
	Figures
}

// Groups of usage.
const (
	ByDay   = "day"
	ByModel = "model"
	ByKey   = "key"
)

// A UsageQuery selects usage. Defaults: the key's account, the current month, grouped
// by day and model, all keys.
type UsageQuery struct {
	Account  string
	From, To string   // days such as 2026-01-31, both included
	GroupBy  []string // some of ByDay, ByModel and ByKey
	KeyID    string
}

// Usage fetches the usage of an account.
func (c *Client) Usage(ctx context.Context, q UsageQuery) (Usage, error) {
	query := accountQuery(q.Account)
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
		return Usage{}, &UnreachableError{Server: c.base, Err: fmt.Errorf("its answer has no usage: %w", err)}
	}
	return u, nil
}

// accountQuery returns a query with the account, or an empty query.
func accountQuery(account string) url.Values {
	query := url.Values{}
	if account != "" {
		query.Set("account", account)
	}
	return query
}
