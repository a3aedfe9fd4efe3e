// Package audit records the actions of administrators, and actions on many jobs at once.
// Handlers run such an action through Auditor.RecordAndRun.
package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/store"
)

// Names of the actions that the audit record contains.
const (
	KeyCreate   = "key.create"
	KeyRotate   = "key.rotate"
	KeyRevoke   = "key.revoke"
	SettingsSet = "settings.set"
	QuotasSet   = "quotas.set"
	NodeDrain   = "node.drain"
	ServerSet   = "server.set"
	JobsCancel  = "jobs.cancel"
	Backup      = "backup.make"

	WebhookCreate = "webhook.create"
	WebhookChange = "webhook.change"
	WebhookRotate = "webhook.rotate"
	WebhookDelete = "webhook.delete"

	FunctionPublish   = "function.publish"
	FunctionRollback  = "function.rollback"
	FunctionUnpublish = "function.unpublish"
)

// maxAuditPage limits the audit entries on a page of GET /v1/audit.
const maxAuditPage = 100

// An Action is an action to record.
type Action struct {
	Name    string // name of the action, such as KeyCreate
	Account string // account that the action affects
	Target  string // id of the object that the action changes; empty for the account itself
	Details any    // details of the request; never a secret
}

// An Auditor writes and lists the audit record.
type Auditor struct {
	*exchange.Exchange
	Store store.AuditLog
	Now   func() time.Time
}

// Route adds the route that lists the audit record.
func (a *Auditor) Route(v1 gin.IRoutes) { v1.GET("/audit", a.Handle(a.list)) }

// RecordAndRun writes an entry to the audit record and then calls do. If the entry cannot be
// written, it does not call do. If do fails or its outcome is unknown, RecordAndRun writes a
// second entry.
func (a *Auditor) RecordAndRun(c *gin.Context, action Action, do func(context.Context) error) error {
	ctx, who := c.Request.Context(), caller.PrincipalOf(c)
	details, err := json.Marshal(action.Details)
	if err != nil {
		return fmt.Errorf("encode an entry of the audit record: %w", err)
	}
	entry := store.AuditEntry{
		ID: uuid.NewString(), At: a.Now().UTC(), Account: action.Account, Action: action.Name, Target: action.Target,
		ByAccount: who.Account, ByKey: who.KeyID, ByName: who.Name, Request: exchange.RequestID(c), Details: details,
	}
	if err := a.Store.AppendAudit(ctx, entry); err != nil {
		return fmt.Errorf("record the action: %w", err)
	}
	if err = do(ctx); err == nil {
		a.Logger.Info("an action was done and recorded in the audit record", exchange.KeyRequest, exchange.RequestID(c), "action", action.Name, "account", action.Account, "target", action.Target, "by", who.KeyID)
		return nil
	}
	entry.ID, entry.At, entry.Failed = uuid.NewString(), a.Now().UTC(), request.FromError(err).Code
	if again := a.Store.AppendAudit(context.WithoutCancel(ctx), entry); again != nil {
		a.Logger.Warn("an action failed and its failure could not be recorded, the audit record shows only the start of the action", exchange.KeyRequest, exchange.RequestID(c), exchange.KeyErr, again)
	}
	return err
}

// auditView is an entry of the audit record in the answer of GET /v1/audit.
type auditView struct {
	ID      string          `json:"id"`
	At      time.Time       `json:"at"`
	Account string          `json:"account"`
	Action  string          `json:"action"`
	Target  *string         `json:"target"`
	By      actingKey       `json:"by"`
	Request *string         `json:"request_id"`
	Details json.RawMessage `json:"details"`
	Failed  *string         `json:"failed"`
}

// actingKey is the key that was used for an action. The account is null if the service
// itself acted, and the id is null for a configured key. If the key belongs to another
// account than the reader's, the id and the name are null, except for a reader of the
// account default.
type actingKey struct {
	Account *string `json:"account"`
	ID      *string `json:"key_id"`
	Name    *string `json:"key_name"`
}

// viewAudit returns an entry for an answer. It leaves out the key if the reader may not
// see which key was used.
func viewAudit(e store.AuditEntry, reader caller.Principal) auditView {
	view := auditView{
		ID: e.ID, At: e.At, Account: e.Account, Action: e.Action, Target: exchange.NilIfZero(e.Target), Request: exchange.NilIfZero(e.Request),
		Details: e.Details, Failed: exchange.NilIfZero(e.Failed), By: actingKey{Account: exchange.NilIfZero(e.ByAccount)},
	}
	if reader.Account == caller.DefaultAccount || reader.Account == e.ByAccount {
		view.By.ID, view.By.Name = exchange.NilIfZero(e.ByKey), exchange.NilIfZero(e.ByName)
	}
	return view
}

// list answers GET /v1/audit with a page of the audit record.
func (a *Auditor) list(c *gin.Context) (any, error) {
	account, err := caller.ResolveAdminAccountOrAll(c, c.Query("account"))
	if err != nil {
		return nil, err
	}
	var p request.Problems
	limit := exchange.QueryInt(c, &p, "limit", maxAuditPage, 1, maxAuditPage)
	if err := p.Err(); err != nil {
		return nil, err
	}
	entries, next, err := a.Store.ListAudit(c.Request.Context(), account, int(limit), c.Query("cursor"))
	views := make([]auditView, len(entries))
	for i, e := range entries {
		views[i] = viewAudit(e, caller.PrincipalOf(c))
	}
	return gin.H{"entries": views, "next_cursor": exchange.NilIfZero(next)}, err
}
