package http

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/store"
)

// The acts that are recorded.
const (
	actKeyCreate   = "key.create"
	actKeyRotate   = "key.rotate"
	actKeyRevoke   = "key.revoke"
	actSettingsSet = "settings.set"
	actQuotasSet   = "quotas.set"
	actNodeDrain   = "node.drain"
	actJobsCancel  = "jobs.cancel"
	actBackup      = "backup.make"

	actWebhookCreate = "webhook.create"
	actWebhookChange = "webhook.change"
	actWebhookRotate = "webhook.rotate"
	actWebhookDelete = "webhook.delete"

	actFunctionPublish   = "function.publish"
	actFunctionRollback  = "function.rollback"
	actFunctionUnpublish = "function.unpublish"
)

// maxAuditPage is the most entries of one page.
const maxAuditPage = 100

// An act is something that an administrator asks for, or that is done to many jobs
// at once.
type act struct {
	name    string // one of the constants above
	account string // whom it concerns
	target  string // what it is done to; empty for the account itself
	details any    // what was asked for; never a secret
}

// An auditor keeps the record of acts.
type auditor struct {
	store  store.Audit
	logger *slog.Logger
	now    func() time.Time
}

// record does what is asked for, behind an entry in the audit
// record: there is no act without one. Where do fails, or its outcome is
// unknown, a second entry says so.
func (a *auditor) record(c *gin.Context, what act, do func(context.Context) error) error {
	ctx, who := c.Request.Context(), caller(c)
	details, err := json.Marshal(what.details)
	if err != nil {
		return fmt.Errorf("encode an entry of the audit record: %w", err)
	}
	entry := store.AuditEntry{
		ID: uuid.NewString(), At: a.now().UTC(), Account: what.account, Action: what.name, Target: what.target,
		ByAccount: who.account, ByKey: who.keyID, ByName: who.name, Request: exchange.RequestID(c), Details: details,
	}
	if err := a.store.AppendAudit(ctx, entry); err != nil {
		return fmt.Errorf("record what is asked for: %w", err)
	}
	if err = do(ctx); err == nil {
		a.logger.Info("an act was recorded", exchange.KeyRequest, exchange.RequestID(c), "action", what.name, "account", what.account, "target", what.target, "by", who.keyID)
		return nil
	}
	entry.ID, entry.At, entry.Failed = uuid.NewString(), a.now().UTC(), request.Describe(err).Code
	if again := a.store.AppendAudit(context.WithoutCancel(ctx), entry); again != nil {
		a.logger.Warn("the failure of an act could not be recorded", exchange.KeyRequest, exchange.RequestID(c), exchange.KeyErr, again)
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
	view := auditView{
		ID: e.ID, At: e.At, Account: e.Account, Action: e.Action, Target: orNull(e.Target), Request: orNull(e.Request),
		Details: e.Details, Failed: orNull(e.Failed), By: auditKey{Account: orNull(e.ByAccount)},
	}
	if reader.account == DefaultAccount || reader.account == e.ByAccount {
		view.By.ID, view.By.Name = orNull(e.ByKey), orNull(e.ByName)
	}
	return view
}

// list answers GET /v1/audit.
func (a *auditor) list(c *gin.Context) (any, error) {
	account, err := administeredOrAll(c, c.Query("account"))
	if err != nil {
		return nil, err
	}
	var p request.Problems
	limit := queryInt(c, &p, "limit", maxAuditPage, 1, maxAuditPage)
	if err := p.Err(); err != nil {
		return nil, err
	}
	entries, next, err := a.store.ListAudit(c.Request.Context(), account, int(limit), c.Query("cursor"))
	views := make([]auditView, len(entries))
	for i, e := range entries {
		views[i] = viewAudit(e, caller(c))
	}
	return gin.H{"entries": views, "next_cursor": orNull(next)}, err
}
