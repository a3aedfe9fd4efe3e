package http

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	nethttp "net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
)

// QuotasValue names the value that holds an account's own quotas: a document
// {"quotas": [{"priority", "row_quota", "token_quota"}], "cost_quota_usd"}.
// What it leaves out is as configured.
func QuotasValue(account string) string { return "quotas/" + account }

// ownQuotas are those of one account. What is nil is as configured, and the
// cost without a limit.
type ownQuotas struct {
	Quotas    []ownQuota `json:"quotas"`
	CostQuota *decimal   `json:"cost_quota_usd"` // USD in a calendar month, UTC
}

type ownQuota struct {
	Priority   int    `json:"priority"`
	RowQuota   *int64 `json:"row_quota,omitempty"`
	TokenQuota *int64 `json:"token_quota,omitempty"`
}

// accountQuotas are the quotas in force for an account and those of its own
// among them.
type accountQuotas struct {
	Account   string    `json:"account"`
	Quotas    []Quota   `json:"quotas"` // in the order of priority
	CostQuota *decimal  `json:"cost_quota_usd"`
	Own       ownQuotas `json:"own"`

	version int64 // of the document; 0 for none
}

// quotas returns what bounds an account.
func (s *Server) quotas(ctx context.Context, account string) (accountQuotas, error) {
	text, version, err := s.Store.GetValue(ctx, QuotasValue(account))
	if errors.Is(err, rowmill.ErrNotFound) {
		return s.inForce(account, ownQuotas{}, 0), nil
	}
	var own ownQuotas
	if err == nil {
		err = json.Unmarshal(text, &own)
	}
	if err != nil {
		return accountQuotas{}, fmt.Errorf("read the quotas of an account: %w", err)
	}
	return s.inForce(account, own, version), nil
}

// inForce lays an account's own quotas over the configured ones.
func (s *Server) inForce(account string, own ownQuotas, version int64) accountQuotas {
	quotas := slices.Clone(s.Quotas)
	slices.SortFunc(quotas, func(a, b Quota) int { return a.Priority - b.Priority })
	for _, q := range own.Quotas {
		for i := range quotas {
			if quotas[i].Priority != q.Priority {
				continue
			}
			if q.RowQuota != nil {
				quotas[i].RowQuota = *q.RowQuota
			}
			if q.TokenQuota != nil {
				quotas[i].TokenQuota = *q.TokenQuota
			}
		}
	}
	if own.Quotas == nil {
		own.Quotas = []ownQuota{}
	}
	return accountQuotas{Account: account, Quotas: quotas, CostQuota: own.CostQuota, Own: own, version: version}
}

// getQuotas answers GET /v1/get-quotas, for any key of the account.
func (s *Server) getQuotas(c *gin.Context) {
	quotas, err := s.quotas(c.Request.Context(), caller(c).account)
	if err != nil {
		s.fail(c, err)
		return
	}
	answer(c, nethttp.StatusOK, gin.H{"quotas": quotas.Quotas})
}

// showQuotas answers GET /v1/quotas, for administrators.
func (s *Server) showQuotas(c *gin.Context) {
	account, err := administered(c, c.Query("account"))
	var quotas accountQuotas
	if err == nil {
		quotas, err = s.quotas(c.Request.Context(), account)
	}
	if err != nil {
		s.fail(c, err)
		return
	}
	c.Header("ETag", entityTag(quotas.version))
	answer(c, nethttp.StatusOK, quotas)
}

// putQuotas answers PUT /v1/quotas: the body replaces the account's own.
func (s *Server) putQuotas(c *gin.Context) {
	quotas, err := s.replaceQuotas(c)
	if err != nil {
		s.fail(c, err)
		return
	}
	c.Header("ETag", entityTag(quotas.version))
	answer(c, nethttp.StatusOK, quotas)
}

func (s *Server) replaceQuotas(c *gin.Context) (accountQuotas, error) {
	// Those who may change nothing learn nothing of what a body may hold.
	if _, err := administered(c, ""); err != nil {
		return accountQuotas{}, err
	}
	var problems problems
	body, err := s.readObject(c, &problems)
	if err != nil {
		return accountQuotas{}, err
	}
	own, named := decodeQuotas(&body), namedAccount(c, &body)
	body.end("account, quotas and cost_quota_usd")
	if err := problems.err(); err != nil {
		return accountQuotas{}, err
	}
	account, err := administered(c, named)
	if err != nil {
		return accountQuotas{}, err
	}
	ctx := c.Request.Context()
	before, err := s.quotas(ctx, account)
	if err != nil {
		return accountQuotas{}, err
	}
	if want := c.GetHeader("If-Match"); want != "" && want != "*" && want != entityTag(before.version) {
		return accountQuotas{}, errorf(nethttp.StatusPreconditionFailed, "changed_meanwhile",
			"the quotas are no longer those of %s; read them again and repeat the change", shorten(want, 64))
	}
	var after accountQuotas
	err = s.record(c, act{actQuotasSet, account, "", own}, func(ctx context.Context) error {
		text, err := json.Marshal(own)
		if err != nil {
			return fmt.Errorf("encode the quotas of an account: %w", err)
		}
		version, err := s.Store.PutValue(ctx, QuotasValue(account), text, before.version)
		if err != nil {
			return fmt.Errorf("store the quotas of an account: %w", err)
		}
		after = s.inForce(account, own, version)
		return nil
	})
	return after, err
}

// decodeQuotas takes the quotas out of a body.
func decodeQuotas(body *object) ownQuotas {
	var own ownQuotas
	seen := map[int]bool{}
	for _, entry := range body.objects("quotas") {
		q := ownQuota{Priority: -1}
		if _, given := entry.fields["priority"]; !given {
			body.problems.add(entry.prefix+"priority", "is missing; it must be 0 or 1")
		} else if entry.read("priority", "the integer 0 or 1", &q.Priority) {
			switch {
			case q.Priority != 0 && q.Priority != 1:
				body.problems.add(entry.prefix+"priority", "is %d; it must be 0 or 1", q.Priority)
			case seen[q.Priority]:
				body.problems.add(entry.prefix+"priority", "%d stands in the list twice; name it once", q.Priority)
			}
			seen[q.Priority] = true
		}
		q.RowQuota = entry.count("row_quota", "rows")
		q.TokenQuota = entry.count("token_quota", "tokens")
		entry.end("priority, row_quota and token_quota")
		own.Quotas = append(own.Quotas, q)
	}
	var usd float64
	if body.read("cost_quota_usd", "a number of US dollars, or null for no limit", &usd) {
		if usd < 0 || usd > rowmill.Money(math.MaxInt64).USD() {
			body.problems.add("cost_quota_usd", "is %v; it must be from 0 to %.0f US dollars, or null for no limit", usd, rowmill.Money(math.MaxInt64).USD())
		}
		own.CostQuota = (*decimal)(&usd)
	}
	return own
}

// count reads a quota; nil is as configured.
func (o *object) count(field, of string) *int64 {
	var n int64
	if !o.read(field, "a whole number of "+of+", or null for the configured one", &n) {
		return nil
	}
	if n < 1 {
		o.problems.add(o.prefix+field, "is %d; it must be at least 1, or null for the configured one", n)
	}
	return &n
}

// entityTag is a version in the form of HTTP.
func entityTag(version int64) string { return fmt.Sprintf("%q", fmt.Sprint(version)) }
