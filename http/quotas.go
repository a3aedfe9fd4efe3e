package http

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	nethttp "net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
)

// QuotasValue names the value that holds an account's own quotas: a document
// {"quotas": [{"priority", "row_quota", "token_quota"}]}. What it leaves out
// is as configured.
func QuotasValue(account string) string { return "quotas/" + account }

// quotas returns an account's quotas in the order of priority.
func (s *Server) quotas(ctx context.Context, account string) ([]Quota, error) {
	quotas := slices.Clone(s.Quotas)
	slices.SortFunc(quotas, func(a, b Quota) int { return a.Priority - b.Priority })
	text, _, err := s.Store.GetValue(ctx, QuotasValue(account))
	if errors.Is(err, rowmill.ErrNotFound) {
		return quotas, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the quotas of an account: %w", err)
	}
	var own struct {
		Quotas []struct {
			Priority   int    `json:"priority"`
			RowQuota   *int64 `json:"row_quota"`
			TokenQuota *int64 `json:"token_quota"`
		} `json:"quotas"`
	}
	if err := json.Unmarshal(text, &own); err != nil {
		return nil, fmt.Errorf("decode the quotas of an account: %w", err)
	}
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
	return quotas, nil
}

func (s *Server) getQuotas(c *gin.Context) {
	quotas, err := s.quotas(c.Request.Context(), caller(c).account)
	if err != nil {
		s.fail(c, err)
		return
	}
	answer(c, nethttp.StatusOK, gin.H{"quotas": quotas})
}
