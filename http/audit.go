package http

import (
	"context"
	"encoding/json"
	"fmt"
	nethttp "net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"github.com/rowmill/rowmill/store"
)

// The acts of administration that are recorded.
const (
	actKeyCreate   = "key.create"
	actKeyRotate   = "key.rotate"
	actKeyRevoke   = "key.revoke"
	actSettingsSet = "settings.set"
	actQuotasSet   = "quotas.set"
	actNodeDrain   = "node.drain"

	actFunctionPublish   = "function.publish"
	actFunctionRollback  = "function.rollback"
	actFunctionUnpublish = "function.unpublish"
)

// maxAuditPage is the most entries of one page.
const maxAuditPage = 100

// An act is something that an administrator asks for.
type act struct {
	name    string // one of the constants above
	account string // whom it concerns
	target  string // what it is done to; empty for the account itself
	details any    // what was asked for; never a secret
}

// record does what an administrator asks for, behind an entry in the audit
// record: there is no act without one. Where do fails, or its outcome is
// unknown, a second entry says so.
func (s *Server) record(c *gin.Context, a act, do func(context.Context) error) error {
	ctx, who := c.Request.Context(), caller(c)
	details, err := json.Marshal(a.details)
	if err != nil {
		return fmt.Errorf("encode an entry of the audit record: %w", err)
	}
	entry := store.AuditEntry{
		ID: uuid.NewString(), At: s.Now().UTC(), Account: a.account, Action: a.name, Target: a.target,
		ByAccount: who.account, ByKey: who.keyID, ByName: who.name, Request: requestID(c), Details: details,
	}
	if err := s.Store.AppendAudit(ctx, entry); err != nil {
		return fmt.Errorf("record what is asked for: %w", err)
	}
	if err = do(ctx); err == nil {
		s.Logger.Info("administered", keyRequest, requestID(c), "action", a.name, "account", a.account, "target", a.target, "by", who.keyID)
		return nil
	}
	entry.ID, entry.At, entry.Failed = uuid.NewString(), s.Now().UTC(), describe(err).code
	if again := s.Store.AppendAudit(context.WithoutCancel(ctx), entry); again != nil {
		s.Logger.Warn("record that an act failed", keyRequest, requestID(c), keyErr, again)
	}
	return err
}

// auditView is an entry as the API shows it.
type auditView struct {
	ID      string          `json:"id"`
	At      time.Time       `json:"at"`
	Account string          `json:"account"`
	Action  string          `json:"action"`
	Target  *string         `json:"target"`
	By      auditKey        `json:"by"`
	Request *string         `json:"request_id"`
	Details json.RawMessage `json:"details"`
	Failed  *string         `json:"failed"`
}

// auditKey is the key that was used. Its account is null for the service
// itself, its id for the configured key, too, and where it is another
// account's than the reader's.
type auditKey struct {
	Account *string `json:"account"`
	ID      *string `json:"key_id"`
	Name    *string `json:"key_name"`
}

func viewAudit(e store.AuditEntry, reader principal) auditView {
	optional := func(text string) *string {
		if text == "" {
			return nil
		}
		return &text
	}
	view := auditView{
		ID: e.ID, At: e.At, Account: e.Account, Action: e.Action, Target: optional(e.Target), Request: optional(e.Request),
		Details: e.Details, Failed: optional(e.Failed), By: auditKey{Account: optional(e.ByAccount)},
	}
	if reader.account == DefaultAccount || reader.account == e.ByAccount {
		view.By.ID, view.By.Name = optional(e.ByKey), optional(e.ByName)
	}
	return view
}

// listAudit answers GET /v1/audit.
func (s *Server) listAudit(c *gin.Context) {
	account, err := administeredOrAll(c, c.Query("account"))
	limit := maxAuditPage
	if text, given := c.GetQuery("limit"); given && err == nil {
		n, bad := strconv.Atoi(text)
		if bad != nil || n < 1 || n > maxAuditPage {
			var p problems
			p.add("limit", "is %q; it must be an integer from 1 to %d", shorten(text, 32), maxAuditPage)
			err = p.err()
		}
		limit = n
	}
	var entries []store.AuditEntry
	var next string
	if err == nil {
		entries, next, err = s.Store.ListAudit(c.Request.Context(), account, limit, c.Query("cursor"))
	}
	if err != nil {
		s.fail(c, err)
		return
	}
	views := make([]auditView, len(entries))
	for i, e := range entries {
		views[i] = viewAudit(e, caller(c))
	}
	body := gin.H{"entries": views, "next_cursor": nil}
	if next != "" {
		body["next_cursor"] = next
	}
	answer(c, nethttp.StatusOK, body)
}
