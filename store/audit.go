package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// AuditEntry records one administrative action: who did what, when, and with which key.
// It never holds a secret.
type AuditEntry struct {
	ID      string    `json:"id"` // unique for ever
	At      time.Time `json:"at"`
	Account string    `json:"account"` // the account that the action concerns
	Action  string    `json:"action"`  // such as key.create
	Target  string    `json:"target"`  // id of the changed object, such as an API key; empty if the account itself changed

	ByAccount string `json:"by_account"` // account of the API key that made the request; empty for the service itself
	ByKey     string `json:"by_key"`     // id of the API key that made the request; empty for the key in the configuration
	ByName    string `json:"by_name"`    // name of this API key at that time
	Request   string `json:"request_id"` // the X-Request-Id in logs and answers

	// Details holds the requested change, a JSON object.
	Details json.RawMessage `json:"details"`
	// Failed is the code of the error that the request returned. An action is recorded
	// before it runs, so a failed action may have two entries: one without the code, and
	// a later one with the code.
	Failed string `json:"failed,omitempty"`
}

// Check refuses an entry that cannot be recorded.
func (e AuditEntry) Check() error {
	if err := CheckName("the id of an audit entry", e.ID); err != nil {
		return err
	}
	if err := CheckName("the account", e.Account); err != nil {
		return err
	}
	if e.At.IsZero() {
		return errors.New("its time is not set")
	}
	if e.Action == "" {
		return errors.New("its action is empty")
	}
	if !json.Valid(e.Details) {
		return fmt.Errorf("the details of entry %s are not JSON", e.ID)
	}
	return nil
}

// AuditLog is the log of administrative actions. It only grows: no call changes or removes
// an entry.
type AuditLog interface {
	// AppendAudit adds an entry. A repeated call with the same entry is harmless.
	AppendAudit(ctx context.Context, e AuditEntry) error
	// ListAudit returns at most limit (> 0) entries of an account, or of all accounts
	// when account is "", newest first, after cursor (empty: from the newest). next is
	// empty on the last page. A malformed cursor is a *rowmill.InvalidError on field
	// "cursor". Entries that are added between two calls are neither skipped nor
	// repeated.
	ListAudit(ctx context.Context, account string, limit int, cursor string) (entries []AuditEntry, next string, err error)
	// AuditAfter returns at most limit (> 0) entries of all accounts, oldest first,
	// that come after the position (at, id). The order is by time and then by id; an
	// empty id means the position before all entries of that time. An entry that is
	// added later may sort before known entries. AuditAfter leaves out the ids in known, and
	// does not decode these entries.
	AuditAfter(ctx context.Context, at time.Time, id string, limit int, known map[string]bool) ([]AuditEntry, error)
}
