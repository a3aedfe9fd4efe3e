package http

import (
	"context"
	"encoding/json"
	"fmt"
	nethttp "net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/store"
)

// settingsView is what an account has chosen, or the defaults.
type settingsView struct {
	Account string `json:"account"`
	store.Settings

	version int64 // of the document; 0 for none
}

// getSettings answers GET /v1/settings.
func (s *Server) getSettings(c *gin.Context) {
	view := settingsView{}
	var err error
	if view.Account, err = administered(c, c.Query("account")); err == nil {
		view.Settings, view.version, err = store.LoadSettings(c.Request.Context(), s.Store, view.Account)
	}
	s.showSettings(c, view, err)
}

// patchSettings answers PATCH /v1/settings: what the body leaves out stays.
func (s *Server) patchSettings(c *gin.Context) {
	view, err := s.changeSettings(c)
	s.showSettings(c, view, err)
}

func (s *Server) showSettings(c *gin.Context, view settingsView, err error) {
	if err != nil {
		s.fail(c, err)
		return
	}
	c.Header("ETag", entityTag(view.version))
	answer(c, nethttp.StatusOK, view)
}

func (s *Server) changeSettings(c *gin.Context) (view settingsView, err error) {
	// Those who may change nothing learn nothing of what a body may hold.
	if _, err := administered(c, ""); err != nil {
		return view, err
	}
	var problems problems
	body, err := s.readObject(c, &problems)
	if err != nil {
		return view, err
	}
	named := namedAccount(c, &body)
	var days *int
	change := body.nulls["retention_days"]
	if body.read("retention_days", "one of 1, 7, 30 and 90, or null for never", &days) {
		change = true
		if !slices.Contains(store.RetentionPresets(), *days) {
			problems.add("retention_days", "is %d; it must be one of 1, 7, 30 and 90, or null for never", *days)
		}
	}
	body.end("account and retention_days")
	if err := problems.err(); err != nil {
		return view, err
	}
	if view.Account, err = administered(c, named); err != nil {
		return view, err
	}
	ctx := c.Request.Context()
	if view.Settings, view.version, err = store.LoadSettings(ctx, s.Store, view.Account); err != nil {
		return view, err
	}
	if want := c.GetHeader("If-Match"); want != "" && want != "*" && want != entityTag(view.version) {
		return view, errorf(nethttp.StatusPreconditionFailed, "changed_meanwhile",
			"the settings are no longer those of %s; read them again and repeat the change", shorten(want, 64))
	}
	if !change {
		return view, nil
	}
	view.RetentionDays = days
	err = s.record(c, act{actSettingsSet, view.Account, "", view.Settings}, func(ctx context.Context) error {
		text, err := json.Marshal(view.Settings)
		if err != nil {
			return fmt.Errorf("encode the settings of an account: %w", err)
		}
		view.version, err = s.Store.PutValue(ctx, store.SettingsValue(view.Account), text, view.version)
		if err != nil {
			return fmt.Errorf("store the settings of an account: %w", err)
		}
		return nil
	})
	return view, err
}
