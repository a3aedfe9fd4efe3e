// Package quotas manages the quotas of accounts: limits on rows, tokens and cost. The
// configured quotas apply to all accounts; an account's own quotas replace them. A new
// job gets the quotas of its account.
package quotas

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/http/audit"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/store"
)

// ValueName returns the name of the stored value with an account's own quotas: a document
// {"quotas": [{"priority", "row_quota", "token_quota"}], "cost_quota_usd"}. An absent
// row_quota or token_quota means that the configured quota applies.
func ValueName(account string) string { return "quotas/" + account }

// ownQuotas has the quotas that were set for one account. A nil row quota or token
// quota means that the configured quota applies; a nil cost quota means no limit.
type ownQuotas struct {
	Quotas    []client.OwnQuota `json:"quotas"`
	CostQuota *exchange.Decimal `json:"cost_quota_usd"` // USD in a calendar month, UTC
}

// accountQuotas has the quotas that apply to an account (Quotas, CostQuota), and the
// quotas that were set for this account (Own).
type accountQuotas struct {
	Account   string            `json:"account"`
	Quotas    []client.Quota    `json:"quotas"` // sorted by priority
	CostQuota *exchange.Decimal `json:"cost_quota_usd"`
	Own       ownQuotas         `json:"own"`

	version int64 // version of the stored value; 0: nothing is stored
}

// Quotas answers requests about the quotas of accounts, and applies the quotas to new
// jobs.
type Quotas struct {
	*exchange.Exchange
	Store      store.Store
	Configured []client.Quota
	Audit      *audit.Auditor
}

// Route adds the routes of quotas.
func (q *Quotas) Route(v1 gin.IRoutes) {
	v1.GET("/accounts", q.Handle(q.listAccounts))
	v1.GET("/get-quotas", q.Handle(q.showOwnQuotas))
	v1.GET("/quotas", q.Handle(q.show))
	v1.PUT("/quotas", q.Handle(q.replaceOwnQuotas))
}

// loadQuotas returns the quotas that apply to an account: its own quotas, and the configured
// quotas where the account has no own.
func (q *Quotas) loadQuotas(ctx context.Context, account string) (accountQuotas, error) {
	doc, version, err := q.Store.GetValue(ctx, ValueName(account))
	if errors.Is(err, rowmill.ErrNotFound) {
		return q.applicableQuotas(account, ownQuotas{}, 0), nil
	}
	var own ownQuotas
	if err == nil {
		err = json.Unmarshal(doc, &own)
	}
	if err != nil {
		return accountQuotas{}, fmt.Errorf("read the quotas of an account: %w", err)
	}
	return q.applicableQuotas(account, own, version), nil
}

// ApplyQuotas sets the account in the specification of a job, and copies the quotas of
// this account to the specification.
func (q *Quotas) ApplyQuotas(ctx context.Context, account string, spec *rowmill.Spec) error {
	bounds, err := q.loadQuotas(ctx, account)
	if err != nil {
		return err
	}
	bound := bounds.Quotas[spec.Priority]
	spec.Account, spec.RowQuota, spec.TokenQuota = account, bound.RowQuota, bound.TokenQuota
	spec.CostQuota = (*float64)(bounds.CostQuota)
	return nil
}

// applicableQuotas returns the quotas that apply to an account: its own quotas where they are
// set, else the configured quotas. version is the version of the stored value with own.
func (q *Quotas) applicableQuotas(account string, own ownQuotas, version int64) accountQuotas {
	bounds := slices.Clone(q.Configured)
	slices.SortFunc(bounds, func(a, b client.Quota) int { return cmp.Compare(a.Priority, b.Priority) })
	for _, mine := range own.Quotas {
		for i := range bounds {
			if bounds[i].Priority != mine.Priority {
				continue
			}
			if mine.RowQuota != nil {
				bounds[i].RowQuota = *mine.RowQuota
			}
			if mine.TokenQuota != nil {
				bounds[i].TokenQuota = *mine.TokenQuota
			}
		}
	}
	own.Quotas = exchange.OrEmptyList(own.Quotas)
	return accountQuotas{Account: account, Quotas: bounds, CostQuota: own.CostQuota, Own: own, version: version}
}

// listAccounts answers GET /v1/accounts with the names of all accounts, and the cost quotas of
// the accounts that have one.
func (q *Quotas) listAccounts(c *gin.Context) (any, error) {
	if err := caller.CheckOperator(c); err != nil {
		return nil, err
	}
	ctx := c.Request.Context()
	accounts, err := q.Store.Accounts(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(accounts, caller.DefaultAccount) {
		accounts = append([]string{caller.DefaultAccount}, accounts...)
	}
	names, err := q.Store.ListValues(ctx, ValueName(""))
	if err != nil {
		return nil, fmt.Errorf("list the accounts that have quotas: %w", err)
	}
	costs := map[string]*exchange.Decimal{}
	for _, name := range names {
		account := strings.TrimPrefix(name, ValueName(""))
		bounds, err := q.loadQuotas(ctx, account)
		if err != nil {
			return nil, err
		}
		if bounds.CostQuota != nil {
			costs[account] = bounds.CostQuota
		}
	}
	return gin.H{"accounts": accounts, "cost_quotas_usd": costs}, nil
}

// showOwnQuotas answers GET /v1/get-quotas with the quotas of the caller's account. Every key may
// request them.
func (q *Quotas) showOwnQuotas(c *gin.Context) (any, error) {
	bounds, err := q.loadQuotas(c.Request.Context(), caller.PrincipalOf(c).Account)
	return gin.H{"quotas": bounds.Quotas}, err
}

// show answers GET /v1/quotas with the quotas of an account. It is only for
// administrators.
func (q *Quotas) show(c *gin.Context) (any, error) {
	account, err := caller.ResolveAdminAccount(c, c.Query("account"))
	if err != nil {
		return nil, err
	}
	bounds, err := q.loadQuotas(c.Request.Context(), account)
	exchange.SetETagOnSuccess(c, bounds.version, err)
	return bounds, err
}

// replaceOwnQuotas answers PUT /v1/quotas: the body replaces the account's own quotas.
func (q *Quotas) replaceOwnQuotas(c *gin.Context) (any, error) {
	var own ownQuotas
	account, err := caller.ReadAdminRequest(q.Exchange, c, exchange.SmallObject, func(body *request.JSONObject) {
		own = readQuotas(body)
		body.RejectUnknown("account, quotas and cost_quota_usd")
	})
	if err != nil {
		return nil, err
	}
	bounds, err := q.loadQuotas(c.Request.Context(), account)
	if err == nil {
		err = exchange.CheckIfMatch(c, bounds.version, "quotas")
	}
	if err != nil {
		return nil, err
	}
	err = q.Audit.RecordAndRun(c, audit.Action{Name: audit.QuotasSet, Account: account, Target: "", Details: own}, func(ctx context.Context) error {
		version, err := store.RewriteValue(ctx, q.Store, ValueName(account), own, bounds.version)
		if err != nil {
			return fmt.Errorf("store the quotas of an account: %w", err)
		}
		bounds = q.applicableQuotas(account, own, version)
		return nil
	})
	exchange.SetETagOnSuccess(c, bounds.version, err)
	return bounds, err
}

// readQuotas reads the account's own quotas from a body.
func readQuotas(body *request.JSONObject) ownQuotas {
	var own ownQuotas
	seen := map[rowmill.Priority]bool{}
	for _, entry := range body.ReadInnerObjects("quotas") {
		q := client.OwnQuota{Priority: -1}
		if entry.Require("priority", "the integer "+rowmill.PriorityValues, &q.Priority, "it must be "+rowmill.PriorityValues) {
			err := q.Priority.Validate()
			switch {
			case err != nil:
				entry.AddProblem("priority", "%v", err)
			case seen[q.Priority]:
				entry.AddProblem("priority", "%d occurs twice in the list; name it once", q.Priority)
			}
			seen[q.Priority] = true
		}
		q.RowQuota = readQuota(&entry, "row_quota", "rows")
		q.TokenQuota = readQuota(&entry, "token_quota", "tokens")
		entry.RejectUnknown("priority, row_quota and token_quota")
		own.Quotas = append(own.Quotas, q)
	}
	var usd float64
	if body.Read("cost_quota_usd", "a number of US dollars, or null for no limit", &usd) {
		if usd < 0 || usd > rowmill.Money(math.MaxInt64).USD() {
			body.AddProblem("cost_quota_usd", "is %v; it must be from 0 to %.0f US dollars, or null for no limit", usd, rowmill.Money(math.MaxInt64).USD())
		}
		own.CostQuota = (*exchange.Decimal)(&usd)
	}
	return own
}

// readQuota reads a row quota or a token quota. It returns nil if the field is absent,
// which means that the configured quota applies. unit is for errors.
func readQuota(entry *request.JSONObject, field, unit string) *int64 {
	var n int64
	if !entry.Read(field, "a whole number of "+unit+", or null for the configured one", &n) {
		return nil
	}
	if n < 1 {
		entry.AddProblem(field, "is %d; it must be at least 1, or null for the configured one", n)
	}
	return &n
}

// Defaults returns the default quotas of each priority, in order.
func Defaults() (quotas []client.Quota) {
	for _, p := range rowmill.Priorities() {
		rows, tokens := p.DefaultQuotas()
		quotas = append(quotas, client.Quota{Priority: p, RowQuota: rows, TokenQuota: tokens})
	}
	return quotas
}

// Validate returns an error that names the first configured quota that is missing or out
// of range.
func Validate(configured []client.Quota) error {
	seen := map[rowmill.Priority]bool{}
	for i, q := range configured {
		if err := q.Priority.Validate(); err != nil {
			return fmt.Errorf("http: Config.Quotas[%d].Priority: %w", i, err)
		}
		if q.RowQuota < 1 || q.TokenQuota < 1 {
			return fmt.Errorf("http: Config.Quotas[%d]: row_quota %d and token_quota %d must be at least 1", i, q.RowQuota, q.TokenQuota)
		}
		seen[q.Priority] = true
	}
	if all := len(rowmill.Priorities()); len(seen) != all || len(configured) != all {
		return errors.New("http: Config.Quotas must hold each priority once")
	}
	return nil
}
