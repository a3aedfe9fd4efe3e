package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// AuditEntry is an act of administration: who did what, when, with which key.
// It never holds a secret.
type AuditEntry struct {
	ID      string    `json:"id"` // unique for ever
	At      time.Time `json:"at"`
	Account string    `json:"account"` // whom the act concerns
	Action  string    `json:"action"`  // such as key.create
	Target  string    `json:"target"`  // what it was done to, such as the id of a key; empty for the account itself

	ByAccount string `json:"by_account"` // whose key was used; empty for the service itself
	ByKey     string `json:"by_key"`     // its id; empty for the key of the configuration
	ByName    string `json:"by_name"`    // and its name at that time
	Request   string `json:"request_id"` // in logs and answers

	// Details are what was asked for, a JSON object.
	Details json.RawMessage `json:"details"`
	// Failed is the code of the error that the request got instead. An act is
	// recorded before it is done, so it may have an entry without and a later
	// one with it.
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

// Audit is the record of acts of administration. It only grows: there is no
// way to change or remove an entry.
type Audit interface {
	// AppendAudit adds an entry. Repeating it for the same entry is harmless.
	AppendAudit(ctx context.Context, e AuditEntry) error
	// ListAudit returns an account's entries, or those of all for the account
	// "", newest first, at most limit of them (limit > 0), after cursor
	// (empty: from the newest). next is empty when nothing is left. A
	// malformed cursor is a *rowmill.InvalidError on field "cursor". Entries
	// added meanwhile cause neither skips nor repeats.
	ListAudit(ctx context.Context, account string, limit int, cursor string) (entries []AuditEntry, next string, err error)
	// AuditAfter returns entries of all accounts that stand behind a place, oldest
	// first, at most limit of them (limit > 0). They stand by time and then by id; an
	// empty id is the place before all entries of that time. One that is added later
	// may stand before others.
	AuditAfter(ctx context.Context, at time.Time, id string, limit int) ([]AuditEntry, error)
}
