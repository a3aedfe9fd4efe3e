package http

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/store"
)

// settingsView is what an account has chosen, or the defaults.
type settingsView struct {
	Account string `json:"account"`
	store.Settings

	version int64 // of the document; 0 for none
}

// settingsStore is what settings need of a store.
type settingsStore interface {
	store.Values
	Held(ctx context.Context, account string, ended time.Time, limit int) ([]string, error)
	Get(ctx context.Context, jobID string) (store.Record, error)
	Time(ctx context.Context) (time.Time, error)
}

// settings are what accounts choose.
type settings struct {
	*exchange.Exchange
	store settingsStore
	audit *auditor
}

func (s *settings) of(c *gin.Context, account string) (view settingsView, err error) {
	view.Account = account
	view.Settings, view.version, err = store.LoadSettings(c.Request.Context(), s.store, account)
	return view, err
}

// show answers GET /v1/settings.
func (s *settings) show(c *gin.Context) (any, error) {
	account, err := readAccount(c)
	if err != nil {
		return nil, err
	}
	view, err := s.of(c, account)
	setTag(c, view.version, err)
	return view, err
}

// patch answers PATCH /v1/settings: what the body leaves out stays.
func (s *settings) patch(c *gin.Context) (any, error) {
	var days *int
	change := false
	account, err := administer(s.Exchange, c, exchange.SmallObject, func(body *request.Object) {
		change = body.Null("retention_days")
		if body.Read("retention_days", "one of 1, 7, 30 and 90, or null for never", &days) {
			change = true
			if !slices.Contains(store.RetentionPresets(), *days) {
				body.Add("retention_days", "is %d; it must be one of 1, 7, 30 and 90, or null for never", *days)
			}
		}
		body.End("account and retention_days")
	})
	if err != nil {
		return nil, err
	}
	view, err := s.of(c, account)
	if err == nil {
		err = checkTag(c, view.version, "settings")
	}
	if err != nil {
		return nil, err
	}
	if change {
		view.RetentionDays = days
		err = s.audit.record(c, act{actSettingsSet, account, "", view.Settings}, func(ctx context.Context) (err error) {
			view.version, err = s.put(ctx, view)
			return err
		})
	}
	setTag(c, view.version, err)
	return view, err
}

func (s *settings) put(ctx context.Context, view settingsView) (version int64, err error) {
	version, err = store.RewriteValue(ctx, s.store, store.SettingsValue(view.Account), view.Settings, view.version)
	if err != nil {
		return 0, fmt.Errorf("store the settings of an account: %w", err)
	}
	return version, nil
}
