// Package settings answers requests about the settings of accounts: how long results are
// kept, and a preview of a new retention.
package settings

import (
	"context"
	"fmt"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/http/audit"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/store"
)

// settingsView has the settings of an account, or the default settings if none are
// stored.
type settingsView struct {
	Account string `json:"account"`
	store.AccountSettings

	version int64 // version of the stored value; 0: nothing is stored
}

// Settings answers requests about the settings of accounts.
type Settings struct {
	*exchange.Exchange
	Store store.Store
	Audit *audit.Auditor
}

// Route adds the routes of settings.
func (s *Settings) Route(v1 gin.IRoutes) {
	v1.GET("/settings", s.Handle(s.show))
	v1.PATCH("/settings", s.Handle(s.patch))
	v1.GET("/settings/preview", s.Handle(s.previewRetention))
}

// loadSettings returns the settings of an account and their version.
func (s *Settings) loadSettings(c *gin.Context, account string) (view settingsView, err error) {
	view.Account = account
	view.AccountSettings, view.version, err = store.LoadSettings(c.Request.Context(), s.Store, account)
	return view, err
}

// show answers GET /v1/settings with the settings of an account.
func (s *Settings) show(c *gin.Context) (any, error) {
	account, err := caller.ResolveReadAccount(c)
	if err != nil {
		return nil, err
	}
	view, err := s.loadSettings(c, account)
	exchange.SetETagOnSuccess(c, view.version, err)
	return view, err
}

// patch answers PATCH /v1/settings. A field that is absent in the body keeps its value.
func (s *Settings) patch(c *gin.Context) (any, error) {
	var days *int
	change := false
	account, err := caller.ReadAdminRequest(s.Exchange, c, exchange.SmallObject, func(body *request.JSONObject) {
		change = body.IsNull("retention_days")
		if body.Read("retention_days", "one of 1, 7, 30 and 90, or null for never", &days) {
			change = true
			if !slices.Contains(store.RetentionPresets(), *days) {
				body.AddProblem("retention_days", "is %d; it must be one of 1, 7, 30 and 90, or null for never", *days)
			}
		}
		body.RejectUnknown("account and retention_days")
	})
	if err != nil {
		return nil, err
	}
	view, err := s.loadSettings(c, account)
	if err == nil {
		err = exchange.CheckIfMatch(c, view.version, "settings")
	}
	if err != nil {
		return nil, err
	}
	if change {
		view.RetentionDays = days
		err = s.Audit.RecordAndRun(c, audit.Action{Name: audit.SettingsSet, Account: account, Target: "", Details: view.AccountSettings}, func(ctx context.Context) error {
			version, err := store.RewriteValue(ctx, s.Store, store.SettingsValueName(account), view.AccountSettings, view.version)
			if err != nil {
				return fmt.Errorf("store the settings of an account: %w", err)
			}
			view.version = version
			return nil
		})
	}
	exchange.SetETagOnSuccess(c, view.version, err)
	return view, err
}
